"""Images built by buildah on a base of Debian's packages, and processes in them, without a daemon.

Both need root: a base image of a registry is not within reach everywhere, nor is a runtime.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from engines.downloads import debian_system

_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# What a machine needs to reach its registries, and what images of Python allow, unlike Debian.
_BASE_VARIABLES = {
    "SSL_CERT_FILE": _CERTIFICATES,
    "PIP_CERT": _CERTIFICATES,
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
}
# What a container of the chart has: a root that is read-only, a /tmp of its own, and no capability.
# Every step replaces the one before it, so that signals reach the last.
_CONTAIN = """
root=$1 user=$2; shift 2
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
for each in proc dev; do mount --rbind "/$each" "$root/$each"; done
exec chroot "$root" setpriv --reuid="$user" --regid="$user" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all env --ignore-environment "$@"
"""


class Image(NamedTuple):
    """An image whose files are in a folder."""

    root: Path
    config: Mapping[str, Any]

    def start(
        self, *command: str, variables: Mapping[str, str], **options: Any
    ) -> subprocess.Popen[str]:
        """Start a command as the user of the image."""
        given = [f"{name}={value}" for name, value in variables.items()]
        words = (f"--chdir={self.config['WorkingDir']}", *self.config["Env"], *given, *command)
        contained = ("sh", "-ec", _CONTAIN, "contain", str(self.root), self.config["User"], *words)
        return subprocess.Popen(["unshare", "--mount", *contained], text=True, **options)


class Images:
    """Images in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make_base(self, name: str) -> None:
        """Make an image of Debian's packages."""
        container = self._run("from", "scratch")
        self._run("add", "--quiet", container, str(debian_system()), "/")
        self._run("add", "--quiet", container, _CERTIFICATES, _CERTIFICATES)
        words = (f"--env={name}={value}" for name, value in _BASE_VARIABLES.items())
        self._run("config", *words, container)
        self._run("commit", "--quiet", "--rm", container, name)

    def build(self, name: str, folder: Path, dockerfile: Path, **arguments: str) -> Image:
        """Build an image and return it."""
        given = (f"--build-arg={argument}={value}" for argument, value in arguments.items())
        how = ("--isolation=chroot", "--layers=false", f"--file={dockerfile}", f"--tag={name}")
        self._run("build", "--quiet", *how, *given, str(folder))
        root = self._run("mount", self._run("from", name))
        described = json.loads(self._run("inspect", "--type=image", name))
        return Image(Path(root), described["OCIv1"]["config"])

    def layers(self, name: str) -> Sequence[int]:
        """Return the sizes of the layers of an image as a registry gets them, in bytes."""
        pushed = self._folder / f"pushed-{name}"
        self._run("push", "--quiet", name, f"oci:{pushed}")
        [entry] = json.loads((pushed / "index.json").read_bytes())["manifests"]
        manifest = (pushed / "blobs" / entry["digest"].replace(":", "/")).read_bytes()
        return [layer["size"] for layer in json.loads(manifest)["layers"]]

    def _run(self, command: str, *arguments: str) -> str:
        places = (f"--root={self._folder}/storage", f"--runroot={self._folder}/run")
        program = ["buildah", *places, "--storage-driver=vfs", command, *arguments]
        ran = subprocess.run(program, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, f"{' '.join(program)}\n{ran.stdout[-4000:]}{ran.stderr[-4000:]}"
        return ran.stdout.strip()
