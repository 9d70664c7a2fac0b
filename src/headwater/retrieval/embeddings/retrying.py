"""Decisions about a failed request: whether and when it is sent again, and what the error says."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from datetime import datetime
from http.client import responses
from typing import NamedTuple

import msgspec

from headwater.core.retry_after import retry_after_seconds

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0
_RETRYABLE = {408, 409, 425, 429}
_LONGEST_MESSAGE = 300
_SHORTEN = "correct the request: a text may be too long for the model, so lower chunk_tokens"
_REMEDIES = {
    404: "check the model, and embeddings.base_url",
    429: "check your plan and its limits",
}
_RESET = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class RequestFailure(NamedTuple):
    """A request that failed.

    ``message`` is the provider's, which may quote texts; ``pause`` is the time in seconds that it
    wants, if any.
    """

    problem: str
    remedy: str
    status: int | None
    is_temporary: bool
    message: str = ""
    pause: float | None = None


class _Details(msgspec.Struct):
    message: str = ""
    code: str | int | None = None


class _Refusal(msgspec.Struct):
    """The two forms in which providers describe an error."""

    error: _Details | str | None = None
    message: str | None = None


def unreachable(url: str, error: Exception) -> RequestFailure:
    """Return the failure of a request that had no answer."""
    problem = f"{url} did not answer: {type(error).__name__}"
    return RequestFailure(
        problem, "check the network and embeddings.base_url", None, is_temporary=True
    )


def refused(
    status: int, headers: Mapping[str, str], content: bytes, now: datetime, variables: str
) -> RequestFailure:
    """Return the failure of a request that was answered with an error."""
    details = _details(content)
    problem = f"the provider answered {status} ({responses.get(status, 'unknown')})"
    if status in (401, 403):
        # Their messages repeat parts of the key.
        return RequestFailure(
            problem, f"correct the key in {variables}", status, is_temporary=False
        )
    message = details.message[:_LONGEST_MESSAGE]
    if details.code != "insufficient_quota" and (status in _RETRYABLE or status >= 500):
        remedy = "try again later" + ("; lower embeddings.concurrency" if status == 429 else "")
        pause = requested_pause(headers, now)
        return RequestFailure(
            problem, remedy, status, is_temporary=True, message=message, pause=pause
        )
    remedy = _REMEDIES.get(status, _SHORTEN)
    return RequestFailure(problem, remedy, status, is_temporary=False, message=message)


def pause_before(attempt: int, failure: RequestFailure) -> float:
    """Return the seconds to wait before the next attempt; the first attempt is 0."""
    longest: float = min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE)
    backoff = random.uniform(longest / 2, longest)
    # A server that asks for no pause would be asked in a loop.
    return backoff if failure.pause is None else max(failure.pause, backoff / 4)


def requested_pause(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds after which the server wants to be asked again, if it says so."""
    milliseconds = retry_after_seconds(headers.get("retry-after-ms", ""), now)
    if milliseconds is not None:
        return milliseconds / 1000
    seconds = retry_after_seconds(headers.get("retry-after", ""), now)
    return _until_reset(headers) if seconds is None else seconds


def _until_reset(headers: Mapping[str, str]) -> float | None:
    """Return when the limits that are used up are reset, by the headers of OpenAI and others."""
    resets = [
        sum(float(number) * _UNITS[unit] for number, unit in _RESET.findall(reset))
        for limit in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{limit}") == "0"
        and (reset := headers.get(f"x-ratelimit-reset-{limit}"))
    ]
    return max(resets, default=None)


def _details(content: bytes) -> _Details:
    try:
        refusal = msgspec.json.decode(content, type=_Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Details()
    if isinstance(refusal.error, _Details):
        return refusal.error
    return _Details(refusal.error or refusal.message or "")
