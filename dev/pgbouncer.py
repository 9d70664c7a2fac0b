"""Find the PgBouncer that tests use (`python -m dev.pgbouncer`).

As a program, install it through apt where that is possible and it is missing.
"""

from __future__ import annotations

import os
import shutil
import sys

from dev.apt import install

VARIABLE = "HEADWATER_PGBOUNCER"
_FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))

MISSING = (
    "no PgBouncer was found: install it (Debian: `apt-get install pgbouncer`), or name its "
    f"executable in {VARIABLE}"
)


def find_pgbouncer() -> str | None:
    """Return the executable of PgBouncer, or None."""
    return shutil.which(os.environ.get(VARIABLE) or "pgbouncer", path=_FOLDERS)


if __name__ == "__main__":
    install("pgbouncer", "the tests of poolers", find_pgbouncer)
    if find_pgbouncer() is None:
        sys.stderr.write(MISSING + "\n")
