"""The functions of the user that answer and score, as options of `headwater eval run`."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from headwater.contexts.evaluation.answers import AnswerOptions, UserFunction
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest


def answer_options(
    answer: str | None, score: str | None, *, concurrency: int, recorded_answers: bool
) -> AnswerOptions | None:
    """Return what is asked; None if nothing is. Raise InvalidInputError for a missing function."""
    if answer is None:
        if score is not None or recorded_answers:
            raise InvalidInputError(
                "--score and --recorded-answers compare answers, and there are none of the new "
                "code; pass --answer module:function, too"
            )
        return None
    return AnswerOptions(
        _function("--answer", answer),
        None if score is None else _function("--score", score),
        concurrency,
        is_recorded_used=recorded_answers,
    )


def _function(option: str, target: str) -> UserFunction:
    """Return a function that is named as ``module:function``."""
    module_name, _, name = target.partition(":")
    if not module_name or not name or module_name.endswith(".py"):
        raise InvalidInputError(
            f"{option} {target!r} does not name a module and a function of it, as in "
            f"{option} judges:helpful"
        )
    # Not only for this import: the function may import more when it is called.
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InvalidInputError(
            f"{option} {target!r}: there is no module {error.name!r} in {folder} or installed"
        ) from error
    function: Callable[..., Any] | None = vars(module).get(name)
    if not callable(function):
        names = [each for each, value in vars(module).items() if callable(value)]
        raise InvalidInputError(
            f"{option} {target!r}: {module_name} has no function {name!r}; {nearest(name, names)}"
        )
    return UserFunction(target, function)
