"""The checks that the decorators of functions share; their errors have file and line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import FrameType
from typing import Any

from headwater.core.durations import Duration, to_timedelta
from headwater.errors import DeclarationError, InvalidInputError
from headwater.errors.hints import Location, nearest
from headwater.model.values import LONGEST_NAME

_OWN_MODULES = ("headwater.declarations.", "headwater.store.")


class Checks:
    """A declaration that is being checked: its decorator, its name and its place."""

    def __init__(
        self,
        decorator: Callable[..., Any],
        function: Callable[..., Any],
        name: str | None,
        unknown: Mapping[str, object],
        caller: FrameType | None = None,
    ) -> None:
        self._decorator = decorator
        self.location = location_of(function, caller)
        self.name = function.__name__ if name is None else name
        spec = inspect.getfullargspec(decorator)
        for option in unknown:
            hint = nearest(option, spec.args + spec.kwonlyargs)
            raise self.error(f"unknown option {option!r}; {hint}")
        if not str(self.name).isidentifier() or len(self.name) > LONGEST_NAME:
            raise DeclarationError(
                f"{decorator.__name__} name {self.name!r} is not an identifier", self.location
            )

    def check(self, option: str, wanted: str, *, holds: bool) -> None:
        """Raise DeclarationError unless an option is as it must be."""
        if not holds:
            raise self.error(f"{option} must be {wanted}")

    def span(
        self,
        option: str,
        duration: Duration | None,
        read: Callable[[Duration], timedelta] = to_timedelta,
    ) -> timedelta | None:
        """Return the duration of an option."""
        try:
            return None if duration is None else read(duration)
        except InvalidInputError as error:
            raise self.error(f"{option}: {error}") from error

    def error(self, problem: str) -> DeclarationError:
        """Return the error of this declaration."""
        return DeclarationError(
            f"{self._decorator.__name__} {self.name!r}: {problem}", self.location
        )


def location_of_frame(frame: FrameType | None) -> Location:
    """Return the file and line that a frame is at."""
    return Location(frame.f_code.co_filename, frame.f_lineno) if frame else Location("?", 0)


def calling_frame() -> FrameType | None:
    """Return the frame of the code outside this module and the store that uses a decorator."""
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith(_OWN_MODULES):
        frame = frame.f_back
    return frame


def location_of(function: Callable[..., Any], caller: FrameType | None) -> Location:
    """Return the file and line of a function; raise DeclarationError for other objects."""
    plain = inspect.unwrap(function)
    if inspect.isfunction(plain):
        return Location(plain.__code__.co_filename, plain.__code__.co_firstlineno)
    raise DeclarationError(
        f"{function!r} cannot be declared; decorate a function, written with def",
        location_of_frame(caller) if caller else None,
    )
