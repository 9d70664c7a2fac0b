"""Bodies that are kept in a file, because they may be larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from starlette.types import Receive, Scope

from headwater.errors import BackendError, InvalidInputError
from headwater.http.routing.request_errors import MediaTypeError, TooLargeError
from headwater.http.routing.request_parsing import check_head, part_of
from headwater.model.history import CSV, PARQUET
from headwater.model.progress import NDJSON

_SUFFIXES = {PARQUET: ".parquet", CSV: ".csv", NDJSON: ".ndjson"}


class UploadedFile:
    """A body in a file of a folder of its own, which exists until it is closed."""

    def __init__(self, media_type: str) -> None:
        self._folder = TemporaryDirectory(prefix="headwater-")
        self.folder = Path(self._folder.name)
        self.path = self.folder / f"upload{_SUFFIXES[media_type]}"

    def close(self) -> None:
        """Remove the folder."""
        self._folder.cleanup()

    @contextmanager
    def named(self) -> Iterator[None]:
        """Leave the path out of the messages of errors, which the client reads."""
        try:
            yield
        except InvalidInputError as error:
            message = str(error)
            if str(self.path) not in message:
                raise
            raise InvalidInputError(message.replace(str(self.path), "the uploaded file")) from error


async def receive_file(
    scope: Scope, receive: Receive, accepted: Sequence[str], limit: int
) -> UploadedFile:
    """Write the body to a file; raise if its media type is not accepted or it is too large."""
    too_large = TooLargeError(limit, "http.max_upload_bytes")
    media_type = check_head(scope, accepted, too_large)
    if not media_type:
        raise MediaTypeError(media_type, accepted)
    try:
        upload = UploadedFile(media_type)
        try:
            await _write(upload.path, scope, receive, too_large)
        except BaseException:
            upload.close()
            raise
    except OSError as error:
        raise BackendError(
            f"cannot keep the uploaded file in {gettempdir()}: {error.strerror}; free space there, "
            "or set TMPDIR of the server to another folder"
        ) from error
    return upload


async def _write(path: Path, scope: Scope, receive: Receive, too_large: TooLargeError) -> None:
    size, has_more = 0, True
    with path.open("wb") as file:
        while has_more:
            message = await receive()
            size += file.write(part_of(message, scope))
            if size > too_large.limit:
                raise too_large
            has_more = message.get("more_body", False)
