"""Values on the command line: UTF-8 text, key=value pairs, or one JSON object."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import typer

from headwater.cli import is_utf8, quote_bytes


def check_utf8(arguments: Sequence[str | None], consequence: str) -> None:
    """Raise BadParameter if an argument is not UTF-8 text."""
    for argument in arguments:
        if argument is not None and not is_utf8(argument):
            raise typer.BadParameter(f"{quote_bytes(argument)} is not UTF-8 text; {consequence}")


def parse_values(
    arguments: Sequence[str], what: str, annotations: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return values by name, from one JSON object or from key=value pairs.

    The value of a pair may be JSON. It stays text if its annotation accepts only text.
    """
    if len(arguments) == 1 and arguments[0].lstrip().startswith("{"):
        try:
            return msgspec.json.decode(arguments[0], type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise typer.BadParameter(f"the {what} is not JSON: {error}") from error
    values: dict[str, Any] = {}
    for argument in arguments:
        key, equals, text = argument.partition("=")
        if not key or not equals:
            raise typer.BadParameter(
                f"{argument!r} is not a {what}; write key=value pairs or one JSON object"
            )
        if key in values:
            raise typer.BadParameter(
                f"{key!r} appears twice; write it once, or as a list: {key}='[1, 2]'"
            )
        annotation = (annotations or {}).get(key, Any)
        values[key] = text if _fits_only_as_text(text, annotation) else _parse_value(text, key)
    return values


def _parse_value(text: str, key: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.ValidationError, RecursionError) as error:
        # Valid JSON with a number that is out of range; taken as text it would be another value.
        raise typer.BadParameter(
            f"{key!r}: {error}; use another value, or text: {key}='\"…\"'"
        ) from error
    except msgspec.DecodeError:
        return text


def _fits_only_as_text(text: str, annotation: Any) -> bool:
    """Return whether an annotation accepts an argument as text but not as parsed JSON."""
    if annotation is Any or not _fits(text, annotation):
        return False
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return True
    # A Decimal keeps the digits of the text; a float would round them.
    is_exact = type(value) is float and type(msgspec.convert(text, annotation)) is not str
    return is_exact or not _fits(value, annotation)


def _fits(value: Any, annotation: Any) -> bool:
    try:
        msgspec.convert(value, annotation)
    except (msgspec.ValidationError, TypeError):  # TypeError: msgspec does not know the type
        return False
    return True
