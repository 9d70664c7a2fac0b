"""`make release` makes the commit, tag and package of a version, or refuses and says why."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from zipfile import ZipFile

import pytest

from dev.release import (
    ROOT,
    ReleaseError,
    released_changelog,
    require_complete,
    require_later,
)
from dev.ui_build import build

# All that a release changes or a package is made of. Of the web UI only the built files are copied.
FOLDERS = ("src", "dev", "deploy", "verifier", "clients")
COPIED = (*FOLDERS, "pyproject.toml", "README.md", "LICENSE")
CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-11-16\n"


def test_unreleased_changes_become_those_of_the_version() -> None:
    text = released_changelog(CHANGES, "0.2.0", date(2026, 12, 1))
    assert text == CHANGES.replace(
        "## [Unreleased]\n", "## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n"
    )
    with pytest.raises(ReleaseError, match=r"no line below '## \[Unreleased\]'"):
        released_changelog(text, "0.3.0", date(2026, 12, 2))


@pytest.mark.parametrize("version", ["0.2", "v0.2.0", "0.2.0rc1", "0.02.0", "1.0.0-beta", ""])
def test_what_is_not_a_version_is_refused(version: str) -> None:
    with pytest.raises(ReleaseError, match=r"is not a version: write MAJOR\.MINOR\.PATCH"):
        require_later(version, "0.1.0")


def test_a_version_must_be_above_the_last_one() -> None:
    require_later("0.10.0", "0.9.1")
    for version in ("0.9.1", "0.9.0", "0.1.10"):
        with pytest.raises(ReleaseError, match=r"is not above the last version, 0\.9\.1"):
            require_later(version, "0.9.1")


def test_a_wheel_with_other_files_than_it_needs_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "headwater-0.2.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as package:
        package.writestr("headwater-0.2.0.dist-info/METADATA", "Version: 0.1.0\nSummary: Short\n\n")
        package.writestr("headwater/ui/assets/index.js.map", "")
        package.writestr("tests/test_it.py", "")
    with pytest.raises(ReleaseError) as refused:
        require_complete(wheel, "0.2.0")
    for problem in (
        "says that it is 0.1.0",
        "has no License-Expression",
        "has no Description",
        "lacks headwater/ui/index.html",
        "lacks headwater/ui/licenses.md",
        "has headwater/ui/assets/index.js.map",
        "has tests/test_it.py",
    ):
        assert problem in str(refused.value)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    build()
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "node_modules", "dist")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(source, tmp_path)
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    (tmp_path / ".gitignore").write_text("/build/\n/dist/\n/src/headwater/ui/\n__pycache__/\n")
    git(tmp_path, "init", "--quiet", "--initial-branch=main")
    for name, value in (("user.name", "A"), ("user.email", "a@example.com")):
        git(tmp_path, "config", name, value)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message=all")
    return tmp_path


def test_chart_and_client_have_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = (ROOT / "deploy" / "chart" / "Chart.yaml").read_text().splitlines()
    assert {f"version: {project['version']}", f"appVersion: {project['version']}"} <= {*chart}
    client = (ROOT / "clients" / "typescript" / "package.json").read_text()
    assert json.loads(client)["version"] == project["version"]


def git(folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        ("git", *arguments), cwd=folder, check=True, capture_output=True, text=True
    )
    return ran.stdout


def release(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command: Iterable[str] = (sys.executable, "-m", "dev.release", *arguments)
    return subprocess.run([*command], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.release
def test_a_release_is_a_commit_a_tag_and_a_package(clone: Path) -> None:
    changed = clone / "LICENSE"
    text = changed.read_text()
    changed.write_text(f"{text}\n")
    refused = release(clone, "--no-checks", "99.0.0")
    assert (refused.returncode, refused.stderr) == (
        1,
        "there are changes that are not committed: commit or remove them\n",
    )
    changed.write_text(text)
    done = release(clone, "--no-checks", "99.0.0")
    assert done.returncode == 0, done.stderr
    assert "Released 99.0.0" in done.stdout
    assert git(clone, "log", "--format=%s %D", "-1").strip() == (
        "release: 99.0.0 HEAD -> main, tag: v99.0.0"
    )
    assert git(clone, "show", "--format=", "--name-only").split() == [
        "CHANGELOG.md",
        "clients/typescript/package.json",
        "deploy/chart/Chart.yaml",
        "deploy/rendered/all.yaml",
        "deploy/rendered/default.yaml",
        "pyproject.toml",
        "verifier/released/99.0.0.json",
    ]
    assert git(clone, "status", "--porcelain") == ""
    kept = json.loads((clone / "verifier" / "released" / "99.0.0.json").read_text())
    assert {"full", "private", "redacted", "signed-hmac"} <= {case["name"] for case in kept}
    assert {file.name for file in (clone / "dist").iterdir()} == {
        "headwater-99.0.0.tar.gz",
        "headwater-99.0.0-py3-none-any.whl",
    }
    again = release(clone, "--no-checks", "99.0.1")
    assert (again.returncode, "has no line below" in again.stderr) == (1, True)
