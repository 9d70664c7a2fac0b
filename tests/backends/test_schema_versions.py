"""A change of tables has a version of its own, so that it reaches the stores that exist."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from headwater.backends.postgres import migrate as postgres
from headwater.backends.sqlite import home as sqlite


@pytest.mark.parametrize(
    ("schema", "version", "of"),
    [
        (sqlite.SCHEMA, sqlite.SCHEMA_VERSION, (18, "4522480e2b53235c")),
        (postgres.SCHEMA, postgres.VERSION, (13, "ca8407f995a4ffb3")),
    ],
    ids=["sqlite", "postgres"],
)
def test_tables_that_changed_have_a_new_version_and_a_migration(
    schema: str, version: int, of: tuple[int, str]
) -> None:
    statements = " ".join(re.sub("--.*", "", schema).split())
    now = version, sha256(statements.encode()).hexdigest()[:16]
    assert now == of, (
        "the tables changed: raise the version, migrate the earlier tables in migration.py or "
        "upgrade.sql, add their definition to the test of migrations, and state the new digest here"
    )
