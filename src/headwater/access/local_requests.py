"""Requests from this machine, which a server without an API key answers."""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.types import Scope

from headwater.access.errors import ForeignRequestError

# A proxy or a CDN adds one of these, so the request comes from elsewhere: X-Forwarded-For,
# CF-Connecting-IP, True-Client-IP, Fastly-Client-IP, X-Azure-ClientIP and many more.
_OF_PROXIES = re.compile(
    rb".*forwarded.*|.*[-_]ip(v6)?|.*clientip|via|cdn-loop|cf-ray|x-envoy-external-address"
    rb"|x-original-(host|url)|x-amz-cf-id|x-amzn-trace-id"
)
_OWN_SITE = (b"same-origin", b"none")


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def check_local(scope: Scope) -> None:
    """Raise if the request comes from another machine, or from a page of another site.

    A web page can make the browser on this machine send requests here, with the page's Origin or,
    after DNS rebinding, with a Host name of the page's site. A proxy on this machine forwards
    requests of other machines.
    """
    client: tuple[str, int] | None = scope.get("client")
    if client and not is_loopback(client[0]):
        raise ForeignRequestError("the address", client[0])
    site, has_origin = _OWN_SITE[0], False
    for name, value in scope["headers"]:
        if name in (b"host", b"origin"):
            text = value.decode("latin-1")
            if not _is_local_url(text if name == b"origin" else f"//{text}"):
                raise ForeignRequestError(f"the header {name.decode()}", text)
            has_origin = has_origin or name == b"origin"
        elif name == b"sec-fetch-site":
            site = value
        elif _is_of_proxy(name):
            raise ForeignRequestError(f"the header {name.decode()}", value.decode("latin-1"))
    # Images, forms and links of other sites have no Origin. One that names this machine is that of
    # a page which another local server has sent.
    if site not in _OWN_SITE and not has_origin:
        raise ForeignRequestError("the header sec-fetch-site", site.decode("latin-1"))


@lru_cache(256)
def _is_of_proxy(header: bytes) -> bool:
    return _OF_PROXIES.fullmatch(header) is not None


@lru_cache(256)
def _is_local_url(url: str) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
