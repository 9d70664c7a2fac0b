"""The texts of failures in dead letters and logs; private ones have no inputs of contexts."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from types import TracebackType

from headwater.core.tracebacks import chain_of, format_traceback
from headwater.errors import (
    BackendError,
    FeatureValueError,
    FunctionRaisedError,
    HandlerTimeoutError,
    HeadwaterError,
)

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
# Messages about the store and about the feature's own value.
_WITHOUT_INPUTS = (BackendError, FeatureValueError, HandlerTimeoutError)


class FailureTexts:
    """Writes the errors of feature functions; if ``private``, some only by type and place.

    A function that assembles a context or searches fails with an error of ours whose message may
    contain their inputs. Its own exceptions are about the event, which the dead letter has anyway.
    """

    def __init__(self, *, private: bool) -> None:
        self._private = private

    def is_hidden(self, error: Exception) -> bool:
        """Return whether the message of an error must not be written."""
        return self._private and any(
            isinstance(raised, HeadwaterError) and not isinstance(raised, _WITHOUT_INPUTS)
            for raised in chain_of(error)
        )

    def message(self, error: Exception) -> str:
        """Return the type of an error and, unless it is hidden, its message."""
        name = type(error).__name__
        return name if self.is_hidden(error) else f"{name}: {error}"

    def traceback(self, error: Exception) -> str:
        """Return the traceback of an error from the user's function on."""
        if self.is_hidden(error):
            return format_traceback(error, private=True)
        # The message of a FeatureValueError says it all; its cause is in the codec.
        chain = not isinstance(error, FeatureValueError)
        frames = _own_frames(error)
        return "".join(traceback.format_exception(type(error), error, frames, chain=chain))


def own_error(feature: str, error: HeadwaterError) -> Exception:
    """Return what the function of a feature raised itself, or else the error of what it called.

    A function that reads another feature fails with the error of that feature.
    """
    if isinstance(error, FunctionRaisedError) and error.feature == feature:
        return error.raised
    return error


def _own_frames(error: BaseException) -> TracebackType | None:
    """Return the traceback from the user's function on; None if the error is not raised in it."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        frames = frames.tb_next
    return frames
