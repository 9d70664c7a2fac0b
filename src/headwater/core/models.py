"""Models by their names: provider, encoding, window, and the tokens around a request.

The rows are those of ``models.toml``, a table with a date, and of the setting ``tokens.models``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache, lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headwater.errors import InvalidInputError

Provider = Literal["openai", "anthropic", "gemini"]
EncodingName = Literal["o200k_base", "cl100k_base"]

UNKNOWN = "unknown"
_CACHED_NAMES = 1_024
# Amazon's names have a region and the provider before them.
_HOST = re.compile(r"((us|eu|apac|jp|au|ca|global)\.)?(openai|anthropic|google)\.")
_VARIANT = r"([-:@].*)?"


class ImageRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many tokens an image has; `largest` is the most that any image has."""

    kind: Literal["tiles", "crops", "patches", "pixels", "fixed"]
    largest: int
    base: int = 0
    each: int = 1
    percent: int = 100


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model; `encoding` is None if its tokens can only be estimated."""

    family: str = UNKNOWN
    provider: Provider | None = None
    encoding: EncodingName | None = None
    margin_percent: int = msgspec.field(default=0, name="margin")
    window: int | None = None
    max_output: int | None = msgspec.field(default=None, name="output")
    request_tokens: int = msgspec.field(name="request")
    message_tokens: int = msgspec.field(name="message")
    tools_tokens: int = msgspec.field(name="tools")
    call_tokens: int = msgspec.field(name="call")
    image: ImageRule
    folder: str | None = None
    """The folder of the tokenizer and the chat template of an open model."""


class ModelOverride(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the setting ``tokens.models`` says of a model; the rest is that of the table."""

    family: str | None = None
    encoding: EncodingName | Literal["estimate"] | None = None
    provider: Provider | None = None
    window: Annotated[int, Meta(ge=1)] | None = None
    output: Annotated[int, Meta(ge=1)] | None = None
    folder: str | None = None


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    names: str
    family: str
    window: int | None = None
    output: int | None = None


class ModelTable:
    """Finds models by their names."""

    def __init__(self, overrides: Mapping[str, ModelOverride] | None = None) -> None:
        self.as_of, self.version, self._families, self._rows = _read()
        self._overrides = {
            plain_name(name): override for name, override in (overrides or {}).items()
        }
        for name, override in (overrides or {}).items():
            if override.family is not None and override.family not in self._families:
                raise InvalidInputError(
                    f"{override.family!r} of {name!r} is not a family of models; the families are "
                    + ", ".join(self._families)
                )
        self.find = lru_cache(_CACHED_NAMES)(self._find)

    def _find(self, model: str | None) -> Model:
        """Return a model by its name, which may be ``provider/model`` or fine-tuned."""
        name = plain_name(model or "")
        found = self._families[UNKNOWN]
        for pattern, listed in self._rows:
            if pattern.fullmatch(name):
                found = listed
                break
        override = self._override(name)
        return found if override is None else self._replaced(found, override)

    def _override(self, name: str) -> ModelOverride | None:
        """Return the override of the longest name that this name begins with."""
        names = [known for known in self._overrides if _is_variant(name, known)]
        return self._overrides[max(names, key=len)] if names else None

    def _replaced(self, model: Model, override: ModelOverride) -> Model:
        if override.family is not None:
            family = self._families[override.family]
            model = msgspec.structs.replace(
                family, window=model.window, max_output=model.max_output
            )
        changes: dict[str, Any] = {
            "provider": override.provider,
            "window": override.window,
            "max_output": override.output,
            "folder": override.folder,
        }
        if override.encoding == "estimate":
            margin = model.margin_percent or self._families[UNKNOWN].margin_percent
            model = msgspec.structs.replace(model, encoding=None, margin_percent=margin)
        elif override.encoding is not None:
            changes |= {"encoding": override.encoding, "margin_percent": 0}
        given = {field: value for field, value in changes.items() if value is not None}
        return msgspec.structs.replace(model, **given)


@cache
def default_models() -> ModelTable:
    """Return the table without a setting."""
    return ModelTable()


def plain_name(model: str) -> str:
    """Return a name in small letters, without a provider or host before it."""
    name = model.lower().rpartition("/")[2].removeprefix("ft:")
    match = _HOST.match(name)
    return name[match.end() :] if match else name


def _is_variant(name: str, known: str) -> bool:
    rest = name.removeprefix(known) if name.startswith(known) else None
    return rest is not None and (not rest or rest[0] in "-:@.")


@cache
def _read() -> tuple[date, int, dict[str, Model], list[tuple[re.Pattern[str], Model]]]:
    text = (files("headwater.core") / "models.toml").read_text(encoding="utf-8")
    tree = tomllib.loads(text)
    raw: dict[str, dict[str, Any]] = {}
    for name, fields in tree["families"].items():
        raw[name] = raw.get(fields.pop("like", ""), {}) | fields | {"family": name}
    families = {name: msgspec.convert(fields, Model) for name, fields in raw.items()}
    rows = [
        (
            re.compile(f"({row.names}){_VARIANT}"),
            msgspec.structs.replace(families[row.family], window=row.window, max_output=row.output),
        )
        for row in msgspec.convert(tree["models"], list[_Row])
    ]
    return tree["as_of"], tree["version"], families, rows
