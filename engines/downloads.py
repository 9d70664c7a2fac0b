"""Jars of Maven, programs of Go, packages of Debian and environments of Python, in `.engines`.

A jar is added as a dependency of a profile in `engines/pom.xml`, with its version; all else is a
constant here. ``python -m engines.downloads`` fetches everything.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path

from dev.apt import install

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".engines"
_POM = ROOT / "engines" / "pom.xml"
_PROGRAMS = ("java", "mvn", "go", "apt-get", "buildah", "mmdebstrap")

PROFILES = ("kafka", "iceberg-spark", "iceberg-rest")
ENVIRONMENTS = ("iceberg-spark", "daft", "jupyterlab", "producers")
S3_SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
HELM = "helm.sh/helm/v3/cmd/helm@v3.19.0"
KUBECONFORM = "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0"
KEDA = "github.com/kedacore/keda/v2@v2.17.2"
PROMETHEUS_OPERATOR = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
PROMETHEUS = "prometheus"
# The release of Debian whose Python is that of the image, and the packages of a base for it.
DEBIAN = "trixie"
_SYSTEM = "python3,python3-pip,python-is-python3,ca-certificates"
SCHEMA_REGISTRY = "io.apicurio:apicurio-registry-app:3.0.9:tar.gz:all"


def main() -> None:
    """Fetch everything that the tests on engines use."""
    for program in ("buildah", "mmdebstrap"):
        install(program, "the image", partial(shutil.which, program))
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            sys.exit(f"`make engines` needs {program}, which is not installed")
    for profile in PROFILES:
        jars(profile)
    maven_archive(SCHEMA_REGISTRY)
    for package in (S3_SERVER, HELM, KUBECONFORM):
        go_program(package)
    for module in (KEDA, PROMETHEUS_OPERATOR):
        go_module(module)
    debian_package(PROMETHEUS)
    debian_system()
    for name in ENVIRONMENTS:
        environment(name)


def jars(profile: str) -> list[Path]:
    """Return the jars of a profile of the pom, with all that they need."""
    version = sha256(_POM.read_bytes()).hexdigest()[:12]
    folder = FOLDER / "jars" / f"{profile}-{version}"
    with _downloading(folder):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            goal = ("dependency:copy-dependencies", f"-DoutputDirectory={new}")
            _run("mvn", "--batch-mode", "--quiet", f"--file={_POM}", f"-P{profile}", *goal)
            new.rename(folder)
    return sorted(folder.glob("*.jar"))


def maven_archive(artifact: str) -> Path:
    """Return the folder of an unpacked archive, such as ``group:name:version:tar.gz:all``."""
    _, name, version, *_ = artifact.split(":")
    folder = FOLDER / "archives" / f"{name}-{version}"
    with _downloading(folder):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            goal = ("dependency:unpack", f"-Dartifact={artifact}", f"-DoutputDirectory={new}")
            # Maven would unpack it once only, whatever became of the folder.
            again = "-Dmdep.overWriteReleases=true"
            _run("mvn", "--batch-mode", "--quiet", f"--file={_POM}", *goal, again)
            new.rename(folder)
    return folder


def go_program(package: str, *, tags: str = "") -> Path:
    """Return the program of a package at a version, such as ``example.com/tool@v1.2.3``."""
    name, _, version = package.partition("@")
    folder = FOLDER / "go" / f"{Path(name).name}-{version}"
    with _downloading(folder):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            _run("go", "install", f"-tags={tags}", package, GOBIN=str(new))
            new.rename(folder)
    return folder / Path(name).name


def go_module(module: str) -> Path:
    """Return the folder with the files of a module at a version."""
    command = ("go", "mod", "download", "-json", module)
    # The folder has no module of its own, which would be asked about.
    ran = subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, text=True)
    return Path(json.loads(ran.stdout)["Dir"])


def debian_package(name: str) -> Path:
    """Return the folder of an unpacked package, which is not installed and needs no rights."""
    folder = FOLDER / "debian" / name
    with _downloading(folder):
        if not folder.exists():
            new = folder.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            subprocess.run(["apt-get", "-qq", "download", name], check=True, cwd=new)
            (archive,) = new.glob("*.deb")
            _run("dpkg-deb", "--extract", str(archive), str(new))
            new.rename(folder)
    return folder


def debian_system() -> Path:
    """Return an archive of a small Debian with Python, whose packages are installed (as root)."""
    archive = FOLDER / "debian" / f"{DEBIAN}.tar"
    with _downloading(archive):
        if not archive.exists():
            new = archive.with_suffix(".new.tar")
            _run(
                "mmdebstrap",
                "--quiet",
                "--variant=minbase",
                f"--include={_SYSTEM}",
                DEBIAN,
                str(new),
            )
            new.rename(archive)
    return archive


def environment(name: str) -> Path:
    """Return the Python of an environment with the packages of ``requirements/NAME.txt`` alone.

    It is for engines that need other versions than those of the project's own environment.
    """
    locked = ROOT / "requirements" / f"{name}.txt"
    folder = FOLDER / "environments" / f"{name}-{sha256(locked.read_bytes()).hexdigest()[:12]}"
    python = folder / "bin" / "python"
    with _downloading(folder):
        if not (folder / "ready").exists():
            uv = str(ROOT / ".tools" / "bin" / "uv")
            _run(uv, "venv", "--quiet", "--clear", f"--python={sys.executable}", str(folder))
            install = ("pip", "install", "--quiet", "--require-hashes", f"--python={python}")
            _run(uv, *install, f"--requirements={locked}")
            (folder / "ready").touch()
    return python


@contextmanager
def _downloading(folder: Path) -> Iterator[None]:
    """Let one process at a time look for a download, and fetch it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(program: str, *arguments: str, **variables: str) -> None:
    subprocess.run([program, *arguments], check=True, env=os.environ | variables)


if __name__ == "__main__":
    main()
