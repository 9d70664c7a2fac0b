"""The wheel and the sdist contain the built web UI, and the wheel serves it without Node.

It contains the verifier of records and the shop of the demo too.
"""

import json
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dev.ui_build import BUILT, ROOT, UI
from tests.records.node import VERIFIER
from tests.ui.site import SECONDS, Site


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel made from the sdist, as package installers make one."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return _build("wheel", next(folder.iterdir()), tmp_path_factory.mktemp("dist"))


def _build(target: str, source: Path, to: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(to)]
    built = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return next(to.iterdir())


def _built_files() -> set[str]:
    return {str(file.relative_to(BUILT)) for file in BUILT.rglob("*") if file.is_file()}


def test_the_sdist_contains_the_built_ui_and_the_wheel_made_from_it_too(
    sdist: Path, wheel: Path
) -> None:
    marker = "src/headwater/ui/"
    with tarfile.open(sdist) as archive:
        names = {name.partition(marker)[2] for name in archive.getnames() if marker in name}
        assert not any("/node_modules/" in name for name in archive.getnames())
    assert names == _built_files()
    with zipfile.ZipFile(wheel) as package:
        names = {name for name in package.namelist() if name.startswith("headwater/ui/")}
    assert {name.removeprefix("headwater/ui/") for name in names} == _built_files()
    assert not any(name.endswith(".map") for name in names)


def test_the_wheel_lists_the_licence_of_every_package_of_the_ui(wheel: Path) -> None:
    needed = json.loads((UI / "package.json").read_text(encoding="utf-8"))["dependencies"]
    with zipfile.ZipFile(wheel) as package:
        listed = package.read("headwater/ui/licenses.md").decode()
    licences = dict(re.findall(r"^## (\S+) - \S+ \((.+)\)$", listed, flags=re.M))
    assert needed.keys() <= licences.keys()
    assert {*licences.values()} <= {"0BSD", "BSD-3-Clause", "ISC", "MIT", "OFL-1.1", "Unlicense"}


def test_the_wheel_contains_the_verifier(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        for name in ("verify.mjs", "cli.mjs", "page.html", "README.md"):
            packed = package.read(f"headwater/cli/verifier/{name}")
            assert packed == (VERIFIER / name).read_bytes()


def test_the_wheel_contains_the_examples_of_the_demo(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as package:
        for link, name in (("shop", "shop"), ("example", "tour")):
            for file in filter(Path.is_file, (ROOT / "examples" / name).iterdir()):
                assert package.read(f"headwater/cli/demo/{link}/{file.name}") == file.read_bytes()


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Site]:
    """Yield a server of the wheel in a new environment, which borrows only dependencies."""
    environment = tmp_path / "venv"
    venv.create(environment, symlinks=True)
    packages = next(environment.glob("lib/*/site-packages"))
    with zipfile.ZipFile(wheel) as package:
        package.extractall(packages)
    (packages / "dependencies.pth").write_text(next(each for each in sys.path if "site-pa" in each))
    site = Site(tmp_path, {"PATH": ""}, python=environment / "bin" / "python").start()
    yield site
    site.close()


def test_an_installed_wheel_serves_the_ui_without_node(installed: Site) -> None:
    page = httpx.get(installed.url, follow_redirects=True, timeout=SECONDS)
    assert page.url.path == "/ui/"
    script = page.text.partition('src="')[2].partition('"')[0]
    loaded = httpx.get(page.url.join(script), timeout=SECONDS)
    assert loaded.headers["content-type"].startswith("text/javascript")
