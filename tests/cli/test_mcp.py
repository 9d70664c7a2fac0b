"""`headwater mcp` without its extra, and the verbs that do not need it."""

import subprocess
import sys
from pathlib import Path

WITHOUT_SDK = """
import sys
sys.modules["mcp"] = sys.modules["mcp_types"] = None
sys.argv = ["headwater", *sys.argv[1:]]
from headwater.cli import main
main()
"""


def test_without_the_extra_the_error_says_what_to_install(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SDK, "mcp", "features.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert ran.stdout == ""
    assert ran.stderr.startswith("error: the MCP server needs the extra 'mcp': `pip install")


def test_other_verbs_do_not_load_the_sdk(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_SDK, "graph", "features.py"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
