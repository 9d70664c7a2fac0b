"""URLs for requests: credentials are sent, and kept out of the log of the HTTP client."""

from __future__ import annotations

import httpx


def without_credentials(url: httpx.URL) -> tuple[httpx.URL, httpx.BasicAuth | None]:
    """Return a URL without its user and password, and these as they are sent."""
    if not url.userinfo:
        return url, None
    return url.copy_with(userinfo=b""), httpx.BasicAuth(url.username, url.password)
