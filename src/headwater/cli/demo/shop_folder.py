"""The folder of the shop: its files, and the process that fills its store."""

import shutil
import subprocess
import sys
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from headwater.cli.demo.tour import DemoError
from headwater.records.signing import generate_key
from headwater.settings.loading import FILE, environment_without_settings

_SHIPPED = ("features.py", "customers.csv", "suppliers.csv")
_SIGNING_PACKAGE = "cryptography"
_SETTINGS = """\
partitions = 4

[prices] # in nano-USD per million input tokens
gpt-4o = 2_500_000_000
gpt-4o-mini = 150_000_000
claude-sonnet-4-5 = 3_000_000_000
"""


def write_shop(folder: Path) -> None:
    """Write the features file, the sources and the settings of the shop to a folder."""
    for name in _SHIPPED:
        with as_file(files("headwater.cli.demo") / "shop" / name) as shipped:
            shutil.copy(shipped, folder)
    signing = ""
    if find_spec(_SIGNING_PACKAGE):
        signing = f'signing_key = "{generate_key("shop-2026", "Ed25519")}"\n'
    (folder / FILE).write_text(signing + _SETTINGS, encoding="utf-8")


class Filling:
    """A process that fills the store of the shop with days of made-up data.

    Leaving the block ends the process, also if it is not done.
    """

    def __init__(self, folder: Path, days: int) -> None:
        self._log = folder / "filling.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headwater.cli.demo.filling", str(days)],
                cwd=folder,
                env=environment_without_settings(),
                stdout=output,
                stderr=output,
                start_new_session=True,  # a signal reaches only the demo, which ends this process
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def finish(self) -> None:
        """Wait until the store is filled; raise DemoError if that failed."""
        if self._process.wait():
            problem = self._log.read_text(encoding="utf-8", errors="replace")[-2000:].strip()
            raise DemoError(f"the made-up data could not be written: {problem}")
