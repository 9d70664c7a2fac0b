"""Packages of Debian that some tests use."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

_APT = ("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300")


def install(package: str, purpose: str, find: Callable[[], str | None]) -> None:
    """Install a package where this user may and apt has it; elsewhere the tests say what to do."""
    if find() or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    sys.stderr.write(f"Installing {package} for {purpose}.\n")
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = [*_APT, "install", "-y", "--no-install-recommends", package]
    for step in (command, [*_APT, "update"], command):
        ran = subprocess.run(step, env=environment, stdout=subprocess.DEVNULL, check=False)
        if ran.returncode == 0 and find():
            return
