"""The verb of a client that reads past values for the rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headwater.client.server import Server
from headwater.client.stream_lines import counted, written
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import ConnectionLostError, InvalidInputError
from headwater.model.declarations import StoreListing
from headwater.model.history import PARQUET, SentTable
from headwater.model.progress import OnStep


class PastValueCalls:
    """The part of a client that reads past values for the rows of tables."""

    _server: Server

    async def get_historical_features(
        self,
        frame: Any,
        features: Sequence[FeatureRef],
        *,
        at: str = "timestamp",
        known: bool = False,
        with_as_of: bool = False,
        output: str | Path | None = None,
        progress: OnStep | None = None,
    ) -> Any:
        """Return a table with the values that features had at the time of each row.

        ``frame`` is a pandas, Polars or Arrow table, a DuckDB relation, the path of a Parquet or
        CSV file or a list of dicts, and the result is of the same kind, as with
        ``FeatureStore.get_historical_features``. Only its ids and times are sent to the server,
        which limits their size by ``http.max_upload_bytes``.

        >>> rows = [{"user_id": "ada", "timestamp": datetime(2026, 1, 1, tzinfo=UTC)}]
        >>> await client.get_historical_features(rows, ["total_spend"])
        [{'user_id': 'ada', 'timestamp': ..., 'total_spend': None}]
        """
        from headwater.client.remote_frames import RemoteFrame, is_sql  # noqa: PLC0415 - loads DuckDB

        if is_sql(frame):
            raise InvalidInputError(
                "a query as the frame runs where the store is; pass its rows, for example as a "
                "DuckDB relation"
            )
        declared = await self._server.get(StoreListing, "/api/store")
        target = None if output is None else Path(output)
        async with RemoteFrame(frame, target, declared, features, at) as remote:
            points = await remote.write_points(with_as_of=with_as_of)
            with remote.answer.open("wb") as opened:
                sent = await self._server.upload(
                    SentTable,
                    "/v1/history/read",
                    file=points,
                    media_type=PARQUET,
                    on_line=written(opened, counted(progress)),
                    features=",".join(map(feature_name, features)),
                    at=at,
                    known=known,
                    with_as_of=with_as_of,
                )
            if remote.answer.stat().st_size != sent.bytes:
                raise ConnectionLostError(self._server.url, "parts of the table are missing")
            return await remote.attach(sent.json_columns)
