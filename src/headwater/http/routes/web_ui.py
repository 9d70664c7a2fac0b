"""The files of the web UI below `/ui/`, and the page that takes its place where it is not built."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import mimetypes
import re
from collections.abc import Sequence
from functools import lru_cache
from html import escape
from pathlib import Path

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope

from headwater.core.ui_files import BUILD_UI, is_ui_installed
from headwater.http.routes.documentation import HTML, PAGE_HEADERS
from headwater.http.routing.request_errors import NoRouteError
from headwater.http.routing.responses import NO_SNIFF, SMALLEST_COMPRESSED, ApiResponse
from headwater.http.routing.route import RouteScope, RouteTree

_SEE_OTHER = 303
_INDEX = "index.html"
# The names of built files; no other name is ever looked for, so no path leads out of the folder.
_FILE = re.compile(r"(assets/)?[A-Za-z0-9_-][A-Za-z0-9._-]*\.[a-z0-9]+")
_ASSETS = "assets/"
_COMPRESSED_TYPES = ("text/", "application/json", "image/svg+xml")
_MOST_FILES = 256
_DEEPEST = 8  # segments of a path that the UI routes
# Python's own table depends on the files of the machine.
_TYPES = mimetypes.MimeTypes(filenames=())
for _type, _suffix in (
    ("text/javascript", ".js"),
    ("font/woff2", ".woff2"),
    ("application/manifest+json", ".webmanifest"),
):
    _TYPES.add_type(_type, _suffix)

_SECURITY = [
    NO_SNIFF,
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        b"frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
# The name of an asset contains a hash of its content.
_FOREVER = (b"cache-control", b"public, max-age=31536000, immutable")
_REVALIDATED = (b"cache-control", b"no-cache")

_REMEDY = re.sub("`(.+?)`", r"<code>\1</code>", escape(BUILD_UI))
_START_PAGE = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Headwater</title><link rel="stylesheet" href="docs.css"></head>
<body><main><h1>Headwater is running</h1>
<p>This installation has no web UI; the <a href="docs">API</a> does not need it.</p>
<p>To add it, {_REMEDY}; then reload this page.</p>
</main></body></html>
""".encode()


class UiFile(msgspec.Struct, frozen=True):
    """A file as it is sent; ``gzipped`` is empty if it is not compressed."""

    body: bytes
    gzipped: bytes
    etag: bytes
    media_type: bytes


class WebUi:
    """Serves the files of a folder, and `index.html` for the paths that the UI itself routes.

    Everything is public: the files are the same in every installation and contain no data. Links
    are relative, so the UI works below a prefix that a proxy adds.
    """

    scope: RouteScope = "public"
    applies_limits = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def respond(self, scope: Scope, receive: Receive, path: Sequence[str]) -> Response:
        """Return a file of the UI, or lead to it or to the page that says how to build it."""
        if not is_ui_installed(self._folder):
            if path:
                return _redirect("../" * (path[0].count("/") + 1))
            return ApiResponse(_START_PAGE, headers=PAGE_HEADERS, media_type=HTML)
        if not path:
            return _redirect("ui/")
        file = await asyncio.to_thread(self._read, path[0])
        response = ApiResponse(file.body)
        response.etag, response.gzipped, response.is_negotiable = file.etag, file.gzipped, True
        response.raw_headers = [
            (b"content-type", file.media_type),
            (b"content-length", b"%d" % len(file.body)),
            _FOREVER if path[0].startswith(_ASSETS) else _REVALIDATED,
            *_SECURITY,
        ]
        return response

    def _read(self, name: str) -> UiFile:
        file = self._folder / name
        if _FILE.fullmatch(name) is not None and name != _INDEX and file.is_file():
            return _read_file(file, file.stat().st_mtime_ns)
        depth = name.count("/")
        # HTML in place of a script would hide that it is missing.
        if name.startswith(_ASSETS) or depth > _DEEPEST:
            raise NoRouteError
        index = self._folder / _INDEX
        return _read_file(index, index.stat().st_mtime_ns, depth)


def add_web_ui(tree: RouteTree, folder: Path) -> None:
    """Add the web UI of a folder, and lead to it from the root."""
    ui = WebUi(folder)
    for path in ("/", "/ui", "/ui/*"):
        tree.add("GET", path, ui)


@lru_cache(_MOST_FILES)
def _read_file(file: Path, changed_at: int, depth: int = 0) -> UiFile:
    """Read and compress a file, once for each change of it.

    Relative links of `index.html` lead from a path that is ``depth`` segments below `/ui/`.
    """
    body = file.read_bytes()
    if depth:
        body = body.replace(b'="./', b'="' + b"../" * depth)
    media_type = _TYPES.guess_type(file.name)[0] or "application/octet-stream"
    is_compressed = media_type.startswith(_COMPRESSED_TYPES) and len(body) >= SMALLEST_COMPRESSED
    return UiFile(
        body,
        gzip.compress(body, mtime=0) if is_compressed else b"",
        b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode(),
        (media_type + "; charset=utf-8" * media_type.startswith("text/")).encode(),
    )


def _redirect(location: str) -> Response:
    return ApiResponse(b"", _SEE_OTHER, {"location": location}, media_type=HTML)
