"""Files in S3-compatible storage, as a DuckDB session reaches them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlsplit

import duckdb
import msgspec

from headwater.core.duckdb_session import Session
from headwater.core.sql_literals import text
from headwater.core.warehouses import load_extension
from headwater.errors import ConfigError


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
        else:
            load_extension(session, "aws", "lake")
            options["PROVIDER"] = "credential_chain"
        if self.endpoint:
            address = urlsplit(self.endpoint)
            options |= {"ENDPOINT": address.netloc, "URL_STYLE": "path"}
            options |= {"USE_SSL": "true" if address.scheme == "https" else "false"}
        given = ", ".join(f"{name} {text(value)}" for name, value in options.items())
        try:
            session.run(f"CREATE OR REPLACE SECRET headwater_lake (TYPE s3, {given})")
        except duckdb.Error as error:
            if self.access_key:
                raise
            raise ConfigError(
                "lake.access_key is empty, and this machine has no keys of AWS: set it and "
                "lake.secret_key, or give the process a profile or a role"
            ) from error

    @staticmethod
    def gone(files: Iterable[str], error: Exception) -> list[str]:
        """Return the files that a read failed at with an error because they were removed."""
        cause, problem = error.__cause__ or error, str(error)
        # An error of a task in another process begins with the class that it had there.
        is_http = isinstance(cause, duckdb.HTTPException) or "HTTPException: " in problem
        return [file for file in files if file in problem] if is_http and "404" in problem else []
