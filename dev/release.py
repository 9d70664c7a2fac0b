"""Release a version (`make release VERSION=0.2.0`): changelog, version, vectors, package, tag.

The version is written in `pyproject.toml`, from where programs read it through the installed
package, and copied into the Helm chart, its rendered copies and the package of the TypeScript
client. Nothing is pushed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from datetime import UTC, date, datetime
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
VECTORS = ROOT / "verifier" / "vectors"
RELEASED = ROOT / "verifier" / "released"
_PROJECT = ROOT / "pyproject.toml"
_CHANGELOG = ROOT / "CHANGELOG.md"
_DEPLOY = ROOT / "deploy"
_NPM = ROOT / "clients" / "typescript" / "package.json"
_DIST = ROOT / "dist"

_NUMBER = r"(?:0|[1-9]\d*)"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}")
_UNRELEASED = "## [Unreleased]\n"
_NEEDED = (
    "headwater/py.typed",
    "headwater/cli/verifier/verify.mjs",
    "headwater/ui/index.html",
    "headwater/ui/licenses.md",
)
_METADATA = ("Summary", "License-Expression", "License-File", "Requires-Python", "Description")
_UNDO = "nothing was committed; `git restore . && git clean -f verifier/released` undoes the edits"


class ReleaseError(Exception):
    """The version cannot be released; the message says why and what to do."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dev.release", description=__doc__)
    parser.add_argument("version", help="MAJOR.MINOR.PATCH, above the last one")
    parser.add_argument(
        "--no-checks",
        action="store_true",
        help="leave out `make check ARGS=--all-environments`, for a commit that CI has checked",
    )
    arguments = parser.parse_args()
    try:
        release(arguments.version, checks=not arguments.no_checks)
    except ReleaseError as error:
        sys.exit(str(error))


def release(version: str, *, checks: bool) -> None:
    """Make the commit and the tag of a version, after building and checking its package."""
    if _git("status", "--porcelain"):
        raise ReleaseError("there are changes that are not committed: commit or remove them")
    project = _PROJECT.read_text(encoding="utf-8")
    last = tomllib.loads(project)["project"]["version"]
    require_later(version, last)
    if _git("tag", "--list", f"v{version}"):
        raise ReleaseError(f"there is a tag v{version} already: choose the next version")
    changelog = released_changelog(
        _CHANGELOG.read_text(encoding="utf-8"), version, datetime.now(UTC).date()
    )
    _PROJECT.write_text(
        project.replace(f'\nversion = "{last}"\n', f'\nversion = "{version}"\n', 1),
        encoding="utf-8",
    )
    rendered = sorted((_DEPLOY / "rendered").iterdir())
    for file in (_DEPLOY / "chart" / "Chart.yaml", *rendered, _NPM):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace(last, version), encoding="utf-8")
    _CHANGELOG.write_text(changelog, encoding="utf-8")
    (RELEASED / f"{version}.json").write_text(kept_vectors(VECTORS), encoding="utf-8")
    try:
        _run(sys.executable, "-m", "hatchling", "build", "--clean", "--directory", str(_DIST))
        require_complete(_DIST / f"headwater-{version}-py3-none-any.whl", version)
        if checks:
            _run("make", "check", "ARGS=--all-environments")
    except ReleaseError as error:
        raise ReleaseError(f"{error}\n{_UNDO}") from error
    _git("add", str(_PROJECT), str(_CHANGELOG), str(_DEPLOY), str(_NPM), str(RELEASED))
    _git("commit", "--quiet", f"--message=release: {version}")
    _git("tag", "--annotate", f"v{version}", f"--message=Headwater {version}")
    sys.stdout.write(
        f"Released {version}: dist/ has its package, and v{version} is its tag. To publish it, "
        f"push the tag and upload both files of dist/.\n"
    )


def require_later(version: str, last: str) -> None:
    """Refuse a version that is not one, or not above the last one."""
    if not _VERSION.fullmatch(version):
        raise ReleaseError(f"{version!r} is not a version: write MAJOR.MINOR.PATCH, such as 0.2.0")
    if _numbers(version) <= _numbers(last):
        raise ReleaseError(f"{version} is not above the last version, {last}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def released_changelog(text: str, version: str, day: date) -> str:
    """Return the changelog with its unreleased changes under the version."""
    before, heading, after = text.partition(_UNRELEASED)
    changes = after.partition("\n## [")[0]
    if not heading or not re.search(r"^- ", changes, flags=re.M):
        raise ReleaseError(f"CHANGELOG.md has no line below {_UNRELEASED.strip()!r}: write some")
    return f"{before}{heading}\n## [{version}] - {day}\n{after}"


def kept_vectors(vectors: Path) -> str:
    """Return the valid records of the vectors, each once, which every later version must read."""
    kept: dict[str, dict[str, object]] = {}
    for case in json.loads((vectors / "records.json").read_text(encoding="utf-8")):
        expected = case["expected"]
        if expected and expected["ok"]:
            text = (vectors / case.pop("file")).read_text(encoding="utf-8")
            kept.setdefault(text, case | {"document": json.loads(text)})
    return "[\n" + ",\n".join(map(json.dumps, kept.values())) + "\n]\n"


def require_complete(wheel: Path, version: str) -> None:
    """Refuse a wheel that lacks a file or metadata, or has a file that it does not need."""
    information = f"headwater-{version}.dist-info/"
    with zipfile.ZipFile(wheel) as package:
        names = package.namelist()
        metadata = HeaderParser().parsestr(package.read(f"{information}METADATA").decode())
    about = {**metadata, "Description": metadata.get_payload()}
    problems = [f"has no {name}" for name in _METADATA if not about.get(name)]
    needed = (*_NEEDED, f"{information}licenses/LICENSE")
    problems += [f"lacks {name}" for name in needed if name not in names]
    problems += [f"has {name}" for name in names if not _belongs(name, information)]
    if metadata["Version"] != version:
        problems.append(f"says that it is {metadata['Version']}")
    if problems:
        raise ReleaseError(f"{wheel.name} {', '.join(problems)}")


def _belongs(name: str, information: str) -> bool:
    folders = {"__pycache__", "node_modules", "tests"}
    return (
        name.startswith(("headwater/", information))
        and not folders.intersection(name.split("/"))
        and not name.endswith((".pyc", ".map"))
    )


def _git(*arguments: str) -> str:
    return _run("git", *arguments, quiet=True)


def _run(*command: str, quiet: bool = False) -> str:
    output = subprocess.PIPE if quiet else None
    ran = subprocess.run(
        command, cwd=ROOT, stdout=output, stderr=output, encoding="utf-8", check=False
    )
    if ran.returncode:
        raise ReleaseError(f"`{' '.join(command)}` failed\n{ran.stderr or ''}".rstrip())
    return ran.stdout or ""


if __name__ == "__main__":
    main()
