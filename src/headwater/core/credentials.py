"""The user and the password of a server, which may change while the process runs."""

from __future__ import annotations

import asyncio
import inspect
import math
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from headwater.core.logging import Outage
from headwater.core.masking import FileText, present
from headwater.errors import BackendUnavailableError, ConfigError

_LOOK_SECONDS = 5.0
"""How often files are looked at, and how soon a function that failed is called again."""
_PATIENCE_SECONDS = 10.0
"""How long callers without a valid login wait for the next one."""
_LONGEST_FETCH = 60.0
"""After this the function is called again; a coroutine is cancelled, a thread left to itself."""
_LONGEST_MARGIN = 300.0
_MARGIN_SHARE = 0.2


class Login(NamedTuple):
    """A user and a password, either of which may be empty."""

    user: str = ""
    password: str = ""


_Fetch = Callable[[], Awaitable[tuple[Login, float]]]


class Credentials:
    """A login that is fetched again before it expires, when its file changes, or when refused.

    While one is valid, callers do not wait for the next.
    """

    def __init__(
        self, source: str, fetch: _Fetch, every: float = math.inf, first: Login | None = None
    ) -> None:
        """``fetch`` returns a login and in how many seconds it expires; ``source`` names it.

        It is called again before that, and after ``every`` seconds at the latest. ``first`` is used
        as long as there has been no other.
        """
        self._source = source
        self._first = first
        self._fetch = fetch
        self._every = every
        self._login: Login | None = None
        self._due = self._expires = -math.inf
        self._is_refused = False
        self._fetching: asyncio.Task[None] | None = None
        self._failure: Exception | None = None
        self._outage = Outage("credentials")

    @property
    def due_in(self) -> float:
        """Seconds until the login should be fetched again."""
        return max(0.0, self._due - time.monotonic())

    def latest(self) -> Login | None:
        """Return the last login, valid or not, and begin to fetch the next one if it is due."""
        if self._fetching is None and time.monotonic() >= self._due:
            self._fetching = asyncio.get_running_loop().create_task(self._renew())
        return self._login

    async def current(self) -> Login:
        """Return a valid login; raise BackendUnavailableError if there is none."""
        login = self.latest()
        if login is None or self._is_refused or time.monotonic() >= self._expires:
            return await self.renewed()
        return login

    async def renewed(self) -> Login:
        """Return what ``current`` does, but wait for the next login if it is due."""
        self.latest()
        if self._fetching is not None:
            done, _ = await asyncio.wait([self._fetching], timeout=_PATIENCE_SECONDS)
            if not done:
                self._fail(TimeoutError(f"it gave no answer within {_PATIENCE_SECONDS:g} s"))
        if self._login is None or time.monotonic() >= self._expires:
            raise self._unavailable() from self._failure
        return self._login

    def refuse(self, login: Login) -> None:
        """Fetch again next time, because the server has refused this login."""
        if login == self._login:
            self._due = -math.inf
            self._is_refused = True

    async def close(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.wait([self._fetching])

    async def _renew(self) -> None:
        try:
            login, seconds = await self._fetch()
            if seconds <= 0:
                raise ValueError("its credentials have expired already")
        except Exception as error:  # noqa: BLE001 - a function of the user
            self._due = time.monotonic() + _LOOK_SECONDS
            if self._login is None and self._first is not None:
                self._login, self._expires = self._first, math.inf
            self._fail(error)
        else:
            self._outage.recovered(self._source)
            self._login = login
            now = time.monotonic()
            self._expires = now + seconds
            margin = min(_LONGEST_MARGIN, seconds * _MARGIN_SHARE)
            self._due = min(self._expires - margin, now + self._every)
        finally:
            self._is_refused = False
            self._fetching = None

    def _fail(self, error: Exception) -> None:
        self._failure = error
        if time.monotonic() < self._expires:
            problem = "credentials not renewed"
            self._outage.report("warning", problem, self._unavailable(), self._source)

    def _unavailable(self) -> BackendUnavailableError:
        error = self._failure
        return BackendUnavailableError(
            f"{self._source} failed: {type(error).__name__}: {error}; correct it"
        )


def credentials_of(
    setting: str, function: str, texts: Sequence[str], read: Callable[..., Login]
) -> Credentials | None:
    """Return the credentials from a function ``module:function``, or else from texts of files.

    ``read`` makes a login of the texts. None means that it stays as the settings have it.
    """
    if function:
        called = _loaded(setting, function)
        return Credentials(f"{setting} = {function!r}", lambda: _call(called))
    files = [str(text.path) for text in texts if isinstance(text, FileText)]
    if not files:
        return None

    async def look() -> tuple[Login, float]:
        # While a file cannot be read, its last text holds: at first that of the settings, since a
        # task on another machine may not have the file.
        return read(*map(present, texts)), math.inf

    return Credentials(f"reading {' and '.join(files)}", look, _LOOK_SECONDS, read(*texts))


async def _call(function: Callable[[], Any]) -> tuple[Login, float]:
    async with asyncio.timeout(_LONGEST_FETCH):
        if inspect.iscoroutinefunction(function):
            answer = await function()
        else:
            answer = await _in_thread(function)
    user, password, expires_at = answer
    if expires_at is None:
        return Login(user or "", password), math.inf
    if isinstance(expires_at, datetime):
        if expires_at.tzinfo is None:
            raise ValueError(
                "its expires_at has no time zone; return datetime.now(UTC) + lifetime, or seconds "
                "since 1970"
            )
        expires_at = expires_at.timestamp()
    return Login(user or "", password), float(expires_at) - time.time()


def _in_thread(function: Callable[[], Any]) -> asyncio.Future[Any]:
    """Call a function in a separate thread: one that hangs keeps neither others nor the end."""
    answer: Future[Any] = Future()

    def call() -> None:
        try:
            answer.set_result(function())
        except BaseException as error:  # noqa: BLE001 - a function of the user
            answer.set_exception(error)

    answer.set_running_or_notify_cancel()  # cancelling the wait leaves the answer alone
    threading.Thread(target=call, name="headwater-credentials", daemon=True).start()
    return asyncio.wrap_future(answer)


def _loaded(setting: str, name: str) -> Callable[[], Any]:
    module, _, function = name.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        loaded: Callable[[], Any] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{setting} = {name!r} cannot be loaded: {error}; name a function that returns user, "
            "password and expires_at as module:function, in a module that Python finds"
        ) from error
    return loaded
