"""Names and values as a command line gives them: key=value pairs, or one JSON object."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import typer


def read_pairs(
    words: Sequence[str], what: str, kinds: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Values by name: one JSON object, or key=value pairs whose values may be JSON as well.

    Where only text fits the kind that is wanted, a pair is text, however much it looks like JSON.
    """
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return _decoded(words[0], what)
    pairs: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not key or not equals:
            raise typer.BadParameter(
                f"{word!r} is no {what}; write key=value pairs or one JSON object"
            )
        if key in pairs:
            raise typer.BadParameter(
                f"{key!r} is given twice; give it once, or a list as in {key}='[1, 2]'"
            )
        kind = (kinds or {}).get(key, Any)
        pairs[key] = value if _only_text_fits(value, kind) else _json_or_text(value, key)
    return pairs


def _decoded(text: str, what: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise typer.BadParameter(f"the {what} is not JSON: {error}") from error


def _json_or_text(text: str, key: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.ValidationError, RecursionError) as error:
        # It is JSON, of a value that nothing here can hold; as text it would pass for another.
        raise typer.BadParameter(
            f"{key!r}: {error}; give another value, or text, as in {key}='\"…\"'"
        ) from error
    except msgspec.DecodeError:
        return text


def _only_text_fits(text: str, kind: Any) -> bool:
    """Says whether a kind takes what is written as text, and not as the JSON that it may be."""
    if kind is Any or not _fits(text, kind):
        return False
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return True
    # A Decimal has the digits that were written, where a float would round them.
    exact = type(value) is float and type(msgspec.convert(text, kind)) is not str
    return exact or not _fits(value, kind)


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except (msgspec.ValidationError, TypeError):  # TypeError: a kind that no JSON is of
        return False
    return True
