"""Build the site of the documentation (`python -m dev.site`), by Zensical as `mkdocs.yml` says.

Its pages are those of `docs/`, and the pages elsewhere in the repository that they link to. Each
release has a folder of its own, which `versions.json` lists; `latest/` is a copy of the newest one,
so that links to it stay as they are.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from dev.ui_build import find_node

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
DOCS = ROOT / "docs"
# One file, which the theme would otherwise ask another host for.
_MERMAID = "mermaid-12.3.0.tgz"
_MERMAID_SHA512 = (
    "4113TdXeLAsMruJ79OpFL5O8+LTFXhQqZ260rF3tgUmiNAtRm4Uume04I+65PRN6yZ69J4f8rVYWW8zRk65UYw=="
)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
# A server shows it in place of any page that is missing, below any path: only a script knows where
# the site begins. Links of the theme's own begin at the root of the server.
_MISSING = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Page not found - Headwater</title>
<body style="font: 1.1rem/1.6 system-ui, sans-serif; max-width: 34rem; margin: 20vh auto; padding: 0 1rem">
<h1>Page not found</h1>
<p>This version of the documentation has no such page. <a href="index.html">Begin at its start</a>,
where all pages are listed and can be searched.</p>
<script>
const version = location.pathname.match(/^.*?\\/(\\d+\\.\\d+|latest)\\//);
if (version) document.querySelector("a").href = version[0] + "index.html";
</script>
"""  # noqa: E501
_CELL = re.compile(r"<td\b.*?</td>", flags=re.S)
_NAME = re.compile(r"<code>[^<]+</code>")
_FENCED = re.compile(r"(^```.*?^```$)", flags=re.S | re.M)


class SiteError(Exception):
    """The site cannot be built; the message says why and what to do."""


def main() -> None:
    try:
        folder = build(BUILD)
    except SiteError as error:
        sys.exit(str(error))
    sys.stderr.write(
        f"Built build/site/{folder.name}; read it: python -m http.server -d build/site\n"
    )


def build(target: Path) -> Path:
    """Build the site of this version below a folder; return where it is."""
    pages, built = target / "docs", target / "version"
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(DOCS, pages)
    shutil.copy(ROOT / "ui" / "public" / "drop.svg", pages)
    (pages / "mermaid.min.js").write_bytes(_mermaid())
    write_pages(pages)
    shutil.copy(ROOT / "mkdocs.yml", target)
    command = (sys.executable, "-m", "zensical", "build", "--strict", "--clean")
    ran = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SiteError(ran.stdout + ran.stderr)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    folder = target / "site" / ".".join(project["version"].split(".")[:2])
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(exist_ok=True)
    built.rename(folder)
    for page in folder.rglob("*.html"):
        page.write_text(_breakable(page.read_text(encoding="utf-8")), encoding="utf-8")
    for place in (folder, folder.parent):
        (place / "404.html").write_text(_MISSING, encoding="utf-8")
    list_versions(folder.parent)
    return folder


def write_pages(pages: Path) -> None:
    """Write all pages, with links from each to the other's place on the site."""
    waiting = sorted(DOCS.rglob("*.md"))
    written = {*waiting}
    while waiting:
        file = waiting.pop()
        text, linked = _rewritten(file)
        for other in linked - written:
            place = pages / _place_of(other)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(other, place)
            waiting += [other] if other.suffix == ".md" else []
        written |= linked
        (pages / _place_of(file)).write_text(text, encoding="utf-8")


def _rewritten(file: Path) -> tuple[str, set[Path]]:
    """Return the text of a page with the links of its site, and the files that it links to."""
    linked: set[Path] = set()

    def link(match: re.Match[str]) -> str:
        mark, text, target = match.groups()
        path, hash_sign, anchor = target.partition("#")
        other = (file.parent / path).resolve()
        if "://" in target or not path:
            return match[0]
        if not other.is_file():
            return text  # a folder has no page
        linked.add(other)
        near = os.path.relpath(_place_of(other), _place_of(file).parent)
        return f"{mark}[{text}]({near}{hash_sign}{anchor})"

    parts = _FENCED.split(file.read_text(encoding="utf-8"))
    texts = [part if part.startswith("```") else _LINK.sub(link, part) for part in parts]
    return "".join(texts), linked


def _breakable(page: str) -> str:
    """Allow a browser to break long names in the cells of a page after their parts."""

    def parts(name: re.Match[str]) -> str:
        return re.sub(r"(?<=\w)([_./])(?=\w)", r"\1<wbr>", name[0])

    return _CELL.sub(lambda cell: _NAME.sub(parts, cell[0]), page)


def _place_of(file: Path) -> Path:
    """Return where the site has a file of the repository."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS)
    path = file.relative_to(ROOT)
    if len(path.parts) == 1:
        return Path("project", path.name.lower())
    return path.parent.with_suffix(".md") if path.name == "README.md" else path


def _mermaid() -> bytes:
    """Return the script that draws diagrams, which is fetched once."""
    archive = BUILD / _MERMAID
    if not archive.exists():
        node = find_node()
        if node is None:
            raise SiteError("the site needs Node, for one package of npm: run `make install`")
        with TemporaryDirectory() as folder:
            package = _MERMAID.removesuffix(".tgz").replace("-", "@")
            if node.run("pack", package, f"--pack-destination={folder}", quiet=True):
                raise SiteError(f"`npm pack {package}` failed: it needs a package registry, once")
            archive.parent.mkdir(exist_ok=True)
            new = shutil.move(Path(folder, _MERMAID), archive.with_suffix(f".{os.getpid()}"))
            Path(new).rename(archive)
    content = archive.read_bytes()
    if base64.b64encode(hashlib.sha512(content).digest()).decode() != _MERMAID_SHA512:
        archive.unlink()
        raise SiteError(f"{_MERMAID} of the registry is not the file that this program names")
    with tarfile.open(archive) as packed:
        script = packed.extractfile("package/dist/mermaid.min.js")
        assert script
        return script.read()


def list_versions(site: Path) -> None:
    """Write the list that pages offer versions from, and `latest/`, where readers are led to."""
    numbers = [each.name for each in site.iterdir() if re.fullmatch(r"\d+\.\d+", each.name)]
    numbers.sort(key=lambda number: [*map(int, number.split("."))], reverse=True)
    listed = [{"version": number, "title": number, "aliases": []} for number in numbers]
    listed[0]["aliases"] = ["latest"]
    (site / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    latest = site / "latest"
    shutil.rmtree(latest, ignore_errors=True)
    shutil.copytree(site / numbers[0], latest)
    refresh = '<meta http-equiv="refresh" content="0; url=latest/index.html">'
    page = f'<!doctype html>{refresh}<a href="latest/index.html">Headwater</a>\n'
    (site / "index.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
