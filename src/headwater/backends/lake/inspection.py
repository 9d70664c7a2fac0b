"""What `headwater doctor` finds in a lake."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

from sqlalchemy.exc import ProgrammingError

from headwater.backends.lake.store import (
    CATALOG_FILE,
    catalog_errors,
    catalog_in_home,
    catalog_in_postgres,
    open_catalog,
    tables_of,
)
from headwater.core.clock import Clock
from headwater.errors import HeadwaterError
from headwater.model.health import Finding, Findings
from headwater.settings.schema import Settings, on_servers

_CHECK = "tables"


async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
    """Examine the tables that the settings name; nothing is created."""
    findings = Findings("lake", settings.lake.url)
    try:
        if not await asyncio.to_thread(_inspect_tables, settings, findings):
            remedy = "run `headwater lake init`; the first use of history creates them too"
            findings.unknown(_CHECK, "they are not created yet", remedy)
    except (HeadwaterError, OSError) as error:
        remedy = "correct lake.url, lake.catalog, lake.endpoint and the keys, or start the servers"
        findings.error(_CHECK, f"they cannot be read: {error}", remedy)
    return findings.all


@catalog_errors()
def _inspect_tables(settings: Settings, findings: Findings) -> bool:
    """Add what each table has; return False if one does not exist."""
    lake, home, address = settings.lake, Path(settings.home).absolute(), ""
    if not lake.catalog and on_servers(settings):
        address = catalog_in_postgres(settings.postgres)
    elif not lake.catalog:
        if not (home / CATALOG_FILE).exists():
            return False
        address = catalog_in_home(home)
    postgres = settings.postgres if address.startswith("postgresql") else None
    with closing(open_catalog(lake, address, postgres, create=False)) as catalog:
        tables = tables_of(lake, catalog)
        try:
            if not all(table.exists() for table in tables.values()):
                return False
        except ProgrammingError:  # the database has no catalog
            return False
        for kind, table in tables.items():
            state = table.state()
            rows = sum(segment.rows for segment in state.segments)
            found = f"{kind} has {rows:,} rows in {len(state.files):,} files"
            findings.ok(_CHECK, found, table.location)
    return True
