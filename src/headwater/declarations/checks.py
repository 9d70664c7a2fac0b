"""The checks that the decorators of functions share; their errors have file and line."""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from types import FrameType
from typing import Any, TypeVar

from headwater.core.durations import Duration, to_timedelta
from headwater.errors import DeclarationError, InvalidInputError
from headwater.errors.hints import Location, nearest
from headwater.model.values import LONGEST_NAME

T = TypeVar("T")
R = TypeVar("R")
_OWN_MODULES = ("headwater.declarations.", "headwater.store.")


class Declaration:
    """A declaration that is being checked: its kind, its name and its place."""

    def __init__(self, kind: str, name: str, location: Location) -> None:
        self._kind = kind
        self.name = name
        self.location = location

    def check(self, option: str, expected: str, *, holds: bool) -> None:
        """Raise DeclarationError unless an option is as it must be."""
        if not holds:
            raise self.error(f"{option} must be {expected}")

    def check_options(self, unknown: Iterable[str], options: Iterable[str]) -> None:
        """Raise DeclarationError for the first option that there is not."""
        for option in unknown:
            raise self.error(f"unknown option {option!r}; {nearest(option, options)}")

    def text(self, option: str, text: object) -> str:
        """Return the text of an option."""
        if not isinstance(text, str):
            raise self.error(f"{option} must be text, not {reprlib.repr(text)}")
        return text.strip()

    def span(
        self,
        option: str,
        duration: Duration | None,
        read: Callable[[Duration], timedelta] = to_timedelta,
    ) -> timedelta | None:
        """Return the duration of an option."""
        return None if duration is None else self.parsed(option, duration, read)

    def parsed(self, option: str, value: T, read: Callable[[T], R]) -> R:
        """Return what a function makes of the value of an option."""
        try:
            return read(value)
        except InvalidInputError as error:
            raise self.error(f"{option}: {error}") from error

    def error(self, problem: str) -> DeclarationError:
        """Return the error of this declaration."""
        return DeclarationError(f"{self._kind} {self.name!r}: {problem}", self.location)


class Checks(Declaration):
    """A function that is being declared by a decorator."""

    def __init__(
        self,
        decorator: Callable[..., Any],
        function: Callable[..., Any],
        name: str | None,
        unknown: Mapping[str, object],
        caller: FrameType | None = None,
    ) -> None:
        plain = inspect.unwrap(function)
        if not inspect.isfunction(plain):
            raise DeclarationError(
                f"{function!r} cannot be declared; decorate a function, written with def",
                location_of_frame(caller) if caller else None,
            )
        location = Location(plain.__code__.co_filename, plain.__code__.co_firstlineno)
        if (plain.__module__ or "").startswith(_OWN_MODULES):
            location = location_of_frame(caller or calling_frame())
        name = function.__name__ if name is None else name
        super().__init__(decorator.__name__, name, location)
        spec = inspect.getfullargspec(decorator)
        self.check_options(unknown, spec.args + spec.kwonlyargs)
        check_identifier(decorator.__name__, name, location)


def check_identifier(kind: str, name: str, location: Location) -> None:
    """Raise DeclarationError if a declared name is not an identifier, or too long."""
    if not str(name).isidentifier() or len(name) > LONGEST_NAME:
        raise DeclarationError(f"{kind} name {name!r} is not an identifier", location)


def location_of_frame(frame: FrameType | None) -> Location:
    """Return the file and line that a frame is at."""
    return Location(frame.f_code.co_filename, frame.f_lineno) if frame else Location("?", 0)


def calling_frame() -> FrameType | None:
    """Return the frame of the code outside this module and the store that uses a decorator."""
    frame = inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith(_OWN_MODULES):
        frame = frame.f_back
    return frame
