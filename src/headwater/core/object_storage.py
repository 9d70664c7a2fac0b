"""Files in S3-compatible storage, as a DuckDB session reaches them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import duckdb
import msgspec

from headwater.core.duckdb_session import Session
from headwater.core.sql_literals import text
from headwater.core.warehouses import load_extension


class ObjectStorage(msgspec.Struct, frozen=True):
    """The address of an S3-compatible server and its keys; empty for those of AWS.

    It is part of tasks that other processes run, so its representation shows no key.
    """

    endpoint: str = ""
    region: str = ""
    access_key: str = ""
    secret_key: str = ""

    def __repr__(self) -> str:
        return f"ObjectStorage(endpoint={self.endpoint!r})"

    def open(self, session: Session) -> None:
        """Let a session read and write the files."""
        load_extension(session, "httpfs")
        options = {"REGION": self.region or "us-east-1"}
        if self.access_key:
            options |= {"KEY_ID": self.access_key, "SECRET": self.secret_key}
        if self.endpoint:
            address = urlsplit(self.endpoint)
            options |= {"ENDPOINT": address.netloc, "URL_STYLE": "path"}
            options |= {"USE_SSL": "true" if address.scheme == "https" else "false"}
        given = ", ".join(f"{name} {text(value)}" for name, value in options.items())
        session.run(f"CREATE OR REPLACE SECRET headwater_lake (TYPE s3, {given})")

    @staticmethod
    def gone(files: Iterable[str], error: Exception) -> list[str]:
        """Return the files that a read failed at with an error because they were removed."""
        if not isinstance(error.__cause__ or error, duckdb.HTTPException) or "404" not in str(
            error
        ):
            return []
        return [file for file in files if file in str(error)]
