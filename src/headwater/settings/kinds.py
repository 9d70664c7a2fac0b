"""One setting: its type, its place, how it is checked and how it is shown."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from headwater.core.durations import format_duration, parse_duration, to_age, to_timedelta
from headwater.core.masking import mask, mask_address
from headwater.core.models import ModelOverride, ModelTable
from headwater.core.prices import Rate
from headwater.core.sql_sources import check_name, kind_of
from headwater.errors import ConfigError, DeclarationError, DurationError, InvalidInputError
from headwater.settings.gates import Gate, check_gates

PREFIX = "HEADWATER_"

_BOOLEANS = dict.fromkeys(("1", "true", "yes", "on"), True) | dict.fromkeys(
    ("0", "false", "no", "off"), False
)


Price = int | str | dict[str, int | str]
"""The price of input, or a table with prices of input, output, cache_read and cache_write."""


def _check_prices(prices: Mapping[str, Price]) -> Mapping[str, Price]:
    rates = usage_rates_of(prices)
    return {
        model: price if isinstance(price, dict) else rates[model].input
        for model, price in prices.items()
    }


def _check_sources(sources: Mapping[str, str]) -> Mapping[str, str]:
    for name, location in sources.items():
        check_name(name)
        kind_of(name, location)
    return sources


def _check_models(models: Mapping[str, ModelOverride]) -> Mapping[str, ModelOverride]:
    ModelTable(models)
    return models


def rates_of(prices: Mapping[str, Price]) -> dict[str, int]:
    """Return the prices of input as whole numbers of nano-USD per million tokens."""
    return {model: rate.input for model, rate in usage_rates_of(prices).items()}


def usage_rates_of(prices: Mapping[str, Price]) -> dict[str, Rate]:
    """Return all prices; a price that is not a table is that of input."""
    rates: dict[str, Rate] = {}
    for model, price in prices.items():
        table = price if isinstance(price, dict) else {"input": price}
        unknown = sorted(table.keys() - set(Rate._fields))
        if unknown or "input" not in table:
            raise InvalidInputError(
                f"the prices of {model!r} are input and, if known, output, cache_read and "
                f"cache_write{', not ' + ', '.join(unknown) if unknown else ''}"
            )
        rates[model] = Rate(**{kind: _rate(model, value) for kind, value in table.items()})
    return rates


def _rate(model: str, price: int | str) -> int:
    text = str(price)
    if not (text.isascii() and text.isdigit()) or len(text) > _LONGEST_RATE:
        raise InvalidInputError(
            f"{price!r} for {model!r} is not a whole number of nano-USD per million "
            f"tokens, such as 2500000000 for 2.50 USD, of at most {_LONGEST_RATE} digits"
        )
    return int(price)


# One dollar per token; the cost of nine million such tokens still fits into a record.
_LONGEST_RATE = 15


def _check_age(text: str) -> str:
    try:
        if text:
            to_age(text)
    except DurationError as error:
        # As a ValueError it would be taken for a value of another type.
        raise InvalidInputError(str(error)) from error
    return text


def _check_origins(origins: str) -> str:
    for origin in filter(None, origins.split(",")):
        if not _ORIGIN.fullmatch(origin.strip()):
            raise InvalidInputError(
                f"{origin.strip()!r} is not the origin of a web page; write each in full, in small "
                "letters and without a path, such as https://app.example.com"
            )
    return origins


def _check_hosts(hosts: str) -> str:
    for host in hosts.split(",") if hosts else ():
        if not _HOST.fullmatch(host.strip()):
            raise InvalidInputError(
                f"{host.strip()!r} is not a host and a port; write them as "
                "one.internal:5432,two.internal:5432"
            )
    return hosts


_HOST = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d{1,5})?", re.ASCII)
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:\d{1,5})?|https?://\[[0-9a-f:]+\](:\d{1,5})?")

_OPTION = re.compile(r",(?=[a-z][a-z0-9._]*=)")
# What librdkafka takes as a secret: passwords, keys, tokens and the files that have them inline.
_SECRET_OPTION = re.compile(r"password|secret|pem|token|jaas|config$")
_EVENT_FIELDS = frozenset({"event_type", "entity_id", "payload", "timestamp", "event_id"})


def options_of(text: str) -> dict[str, str]:
    """Return the settings in ``name=value,name=value``; a value may contain commas.

    >>> options_of("acks=all,debug=broker,topic")
    {'acks': 'all', 'debug': 'broker,topic'}
    """
    pairs = (part.partition("=") for part in _OPTION.split(text) if part)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _check_options(text: str) -> str:
    for part in _OPTION.split(text):
        if part and not re.match(r"[a-z][a-z0-9._]*=", part):
            raise InvalidInputError(
                "options are names and values, such as security.protocol=SSL,ssl.ca.location=ca.pem"
            )
    return text


def _mask_options(text: str) -> str:
    shown = options_of(text).items()
    return ",".join(f"{n}={mask(v) if _SECRET_OPTION.search(n) else v}" for n, v in shown)


def _check_fields(fields: Mapping[str, str]) -> Mapping[str, str]:
    if unknown := sorted(fields.keys() - _EVENT_FIELDS):
        raise InvalidInputError(
            f"events have no field {unknown[0]!r}; they have {', '.join(sorted(_EVENT_FIELDS))}"
        )
    return fields


class Objective(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What shall be true of so many results: at most so old, ready in so much time."""

    freshness: str | None = None
    latency: str | None = None
    target: Annotated[float, Meta(gt=0, lt=1)] = 0.99


def _check_objectives(objectives: Mapping[str, Objective]) -> Mapping[str, Objective]:
    for name, objective in objectives.items():
        limits = [objective.freshness, objective.latency]
        if limits == [None, None]:
            raise InvalidInputError(
                f"the objective of {name} has no limit; set its freshness or its latency, such as "
                'latency = "300ms"'
            )
        for limit in filter(None, limits):
            parse_duration(limit)
    return objectives


_SECONDS = Meta(gt=0)

# Each setting is annotated with one of these types, or a plain one, and its description.
Count = Annotated[int, Meta(ge=1)]
Limit = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Seconds = Annotated[float, _SECONDS]
Text = Annotated[str, Meta(min_length=1)]
Secret = Annotated[str, Meta(extra={"show": mask})]
OpenAIKey = Annotated[str, Meta(extra={"show": mask, "variable": "OPENAI_API_KEY"})]
LangfuseHost = Annotated[str, Meta(min_length=1, extra={"variable": "LANGFUSE_HOST"})]
LangfusePublicKey = Annotated[str, Meta(extra={"variable": "LANGFUSE_PUBLIC_KEY"})]
LangfuseSecretKey = Annotated[str, Meta(extra={"show": mask, "variable": "LANGFUSE_SECRET_KEY"})]
AzureKey = Annotated[str, Meta(extra={"show": mask, "variable": "AZURE_OPENAI_API_KEY"})]
CohereKey = Annotated[str, Meta(extra={"show": mask, "variable": "COHERE_API_KEY"})]
VoyageKey = Annotated[str, Meta(extra={"show": mask, "variable": "VOYAGE_API_KEY"})]
Url = Annotated[str, Meta(extra={"show": mask_address})]
KafkaOptions = Annotated[str, Meta(extra={"show": _mask_options, "check": _check_options})]
EventFields = Annotated[dict[str, str], Meta(extra={"check": _check_fields})]
Sources = Annotated[dict[str, str], Meta(extra={"check": _check_sources})]
Age = Annotated[str, Meta(extra={"check": _check_age})]
Origins = Annotated[str, Meta(extra={"check": _check_origins})]
Hosts = Annotated[str, Meta(extra={"check": _check_hosts})]
AnthropicKey = Annotated[str, Meta(extra={"show": mask, "variable": "ANTHROPIC_API_KEY"})]
GeminiKey = Annotated[str, Meta(extra={"show": mask, "variable": "GEMINI_API_KEY"})]
Models = Annotated[
    dict[str, ModelOverride],
    Meta(extra={"check": _check_models, "variable": "HEADWATER_TOKENS_MODELS"}),
]
Prices = Annotated[dict[str, Price], Meta(extra={"check": _check_prices})]
Options = Annotated[dict[str, str], Meta(extra={"variable": "HEADWATER_RUNNER_OPTIONS"})]
Objectives = Annotated[dict[str, Objective], Meta(extra={"check": _check_objectives})]
Gates = Annotated[dict[str, Gate], Meta(extra={"check": check_gates})]


class SettingsGroup(msgspec.Struct, frozen=True):
    """Settings whose secrets are masked wherever the group is printed, also in tracebacks."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [(field.path, field.shown(field.of(self))) for field in walk(type(self))]

    def __repr__(self) -> str:
        shown = ", ".join(f"{path}={value!r}" for path, value in self.__rich_repr__())
        return f"{type(self).__name__}({shown})"


class Setting(NamedTuple):
    """One setting: its path, type, constraints and description."""

    path: str
    kind: Any
    meta: Meta
    description: str

    @property
    def variable(self) -> str | None:
        """The environment variable, or None for most tables, which only the file can hold."""
        usual: str | None = (self.meta.extra or {}).get("variable")
        if usual is None and get_origin(self.kind) is dict:
            return None
        return usual or PREFIX + self.path.replace(".", "_").upper()

    @property
    def secret_variable(self) -> str | None:
        """The environment variable that names a file with the value, which may be a secret."""
        is_secret = "show" in (self.meta.extra or {})
        return f"{self.variable}_FILE" if is_secret and self.variable else None

    @property
    def allowed(self) -> str:
        """A description of the allowed values."""
        origin = get_origin(self.kind) or self.kind
        if origin is Literal:
            return "one of " + ", ".join(get_args(self.kind))
        meta = self.meta
        bounds = ((" above", meta.gt), (" from", meta.ge), (" to", meta.le))
        limits = "".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
        if meta is _SECONDS:
            limits += ", in seconds, or a duration such as '30s'"
        name = _TYPE_NAMES[self.kind if origin is dict else origin]
        return name + limits + (" that is not empty" if meta.min_length else "")

    def of(self, group: SettingsGroup) -> Any:
        """Return the value of this setting in the group that its path starts from."""
        value: Any = group
        for name in self.path.split("."):
            value = getattr(value, name)
        return value

    def shown(self, value: Any) -> Any:
        """Return a value for display: durations formatted, secrets masked."""
        if isinstance(value, timedelta):
            return format_duration(value // timedelta(milliseconds=1))
        if isinstance(value, dict):  # locations of sources may be URLs with a password
            value = {name: _shown(inner) for name, inner in value.items()}
            return {name: mask_address(v) if "://" in str(v) else v for name, v in value.items()}
        show = (self.meta.extra or {}).get("show")
        return show(str(value)) if show else value

    def check(self, value: object, where: str) -> Any:
        """Return the value in the setting's type; raise ConfigError naming its place otherwise."""
        try:
            return self._convert(os.fspath(value) if isinstance(value, os.PathLike) else value)
        except ValueError as error:
            raise ConfigError(
                f"{where}: {self.shown(value)!r} is not allowed; it must be {self.allowed}"
            ) from error
        except (InvalidInputError, DeclarationError) as error:
            raise ConfigError(f"{where}: {error}") from error

    def check_text(self, text: str, where: str) -> Any:
        """Return the value of an environment variable in the setting's type."""
        value: object = text
        if self.kind is bool:
            value = _BOOLEANS.get(text.lower(), text)
        elif get_origin(self.kind) is dict:
            with suppress(msgspec.DecodeError):
                value = msgspec.json.decode(text)
        elif self.kind in (int, float):
            with suppress(msgspec.ValidationError):
                value = msgspec.convert(text, self.kind, strict=False)
        return self.check(value, where)

    def _convert(self, raw: Any) -> Any:
        if self.kind is timedelta:
            return to_timedelta(raw)
        if self.meta is _SECONDS and isinstance(raw, str):
            raw = to_timedelta(raw).total_seconds()
        value = msgspec.convert(raw, Annotated[self.kind, self.meta])
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(value)
        check = (self.meta.extra or {}).get("check")
        return check(value) if check else value


def _shown(value: object) -> object:
    """Return a value of a table; of a struct only the fields that are given."""
    if not isinstance(value, msgspec.Struct):
        return value
    return {name: field for name, field in msgspec.structs.asdict(value).items() if field}


_TYPE_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict[str, str]: "a table of names and texts",
    dict[str, Objective]: "a table of names, each with a freshness, a latency or both as durations "
    "such as '300ms', and a target above 0 and below 1",
    dict[str, Price]: "a table of names and whole numbers, or tables of them",
    dict[str, Gate]: "a table of names and whole numbers, or texts such as '2%' and '+5%'",
    dict[str, ModelOverride]: "a table of names and tables of "
    + ", ".join(ModelOverride.__struct_fields__),
    timedelta: "a duration such as '500ms', '30s', '5m', '1.5h' or '1d'",
}


def walk(group: type[msgspec.Struct], prefix: str = "") -> Iterator[Setting]:
    """Yield the settings of a group in order of declaration."""
    for field in msgspec.structs.fields(group):
        path = prefix + field.name
        if get_origin(field.type) is Annotated:
            kind, *meta, description = get_args(field.type)
            yield Setting(path, kind, meta[0] if meta else Meta(), description)
        else:
            yield from walk(field.type, path + ".")
