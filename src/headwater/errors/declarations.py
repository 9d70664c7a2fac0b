"""Errors of features files and settings."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Sequence
from datetime import datetime

from headwater.errors.base import HeadwaterError
from headwater.errors.hints import Location, nearest


class DeclarationError(HeadwaterError):
    """An invalid declaration in a features file."""

    def __init__(self, problem: str, location: Location | None = None) -> None:
        self.problem = problem
        self.location = location
        super().__init__(f"{location}: {problem}" if location else problem)


class DuplicateNameError(DeclarationError):
    """Two declarations with the same name."""

    def __init__(self, kind: str, name: str, location: Location, first: Location) -> None:
        self.name = name
        super().__init__(f"{kind} {name!r} is already declared at {first}; rename one", location)


class UnknownReferenceError(DeclarationError):
    """An unknown name in a reference or an option."""

    def __init__(
        self, owner: str, kind: str, name: str, candidates: Iterable[str], location: Location | None
    ) -> None:
        self.name = name
        problem = f"{owner} refers to unknown {kind} {name!r}; {nearest(name, candidates)}"
        super().__init__(problem, location)


class CycleError(DeclarationError):
    """Features that depend on each other."""

    def __init__(self, cycle: Sequence[str], location: Location | None) -> None:
        self.cycle = tuple(cycle)
        super().__init__(f"features depend on each other: {' → '.join(cycle)}", location)


class TemplateError(DeclarationError):
    """An invalid template."""


class FormatError(TemplateError):
    """A format in a template that does not fit the value; the message does not show the value."""

    def __init__(self, name: str, spec: str, type_name: str, problem: str) -> None:
        self.name = name
        self.spec = spec
        super().__init__(
            f"the format of {{{name}:{spec}}} in a template does not fit the value, which is "
            f"{type_name}: {problem}; use a format for this type, or none"
        )


class TypeChangedError(DeclarationError):
    """A feature whose stored values do not fit its return annotation.

    A worker with such a feature does not start.
    """

    def __init__(
        self,
        feature: str,
        types: tuple[str, str],
        example: str,
        location: Location,
        *,
        is_triggered: bool,
        is_convertible: bool = True,
    ) -> None:
        self.feature = feature
        before, now = types
        again = f"run `headwater backfill {feature}`, which computes it again from past events"
        if not is_triggered:
            again = f"remove its values with `headwater features drop {feature}`"
        back = "the declaration back, give it another name"
        if is_convertible:
            back = (
                "the annotation back, declare convert= with a function that takes such a value "
                "and returns the new one"
            )
        super().__init__(
            f"feature {feature!r} has values of type {before}, such as {reprlib.repr(example)}, "
            f"which are not {now}; change {back}, or {again}",
            location,
        )


class EntityChangedError(DeclarationError):
    """A feature that is declared for another entity than its stored values belong to.

    A worker with such a feature does not start, and its values are neither read nor written.
    """

    def __init__(self, feature: str, before: str, now: str, location: Location) -> None:
        self.feature = feature
        super().__init__(
            f"feature {feature!r} is declared for the entity {now}, and its values belong to "
            f"{before}; if the class was renamed, keep the stored name with `@entity(store, "
            f"name={before!r})`; otherwise give the feature another name, remove the values with "
            f"`headwater features drop {feature}`, or compute them for {now} from past events "
            f"with `headwater backfill {feature} --switch`",
            location,
        )


class CodeChangedError(DeclarationError):
    """Versions of features that a backfill made with other code than this process has.

    A worker with such features waits; draining events with them is refused.
    """

    def __init__(self, versions: Iterable[str]) -> None:
        self.versions = tuple(versions)
        super().__init__(
            f"{', '.join(self.versions)} was made by a backfill with other code than this process "
            "has, so that events cannot be handled here; load the features file that the backfill "
            "was run with and open the store again, or give a version up that is not served: "
            "`headwater backfill cancel`"
        )


class FeaturesFileError(DeclarationError):
    """A features file that is missing, fails, or does not define exactly one store."""


class ConfigError(HeadwaterError):
    """An invalid or missing setting."""


class UnknownSettingError(ConfigError):
    """An unknown key in the configuration file."""

    def __init__(self, key: str, file: str, settings: Iterable[str]) -> None:
        self.key = key
        super().__init__(f"{file}: unknown setting {key!r}; {nearest(key, settings)}")


class MissingExtraError(ConfigError):
    """An optional driver that is not installed."""

    def __init__(self, user: str, extra: str) -> None:
        self.extra = extra
        commands = f"`pip install 'headwater[{extra}]'`, or from a clone `pip install '.[{extra}]'`"
        super().__init__(f"{user} needs the extra {extra!r}: {commands}")


class MissingApiKeyError(ConfigError):
    """A provider of embeddings that cannot be used without a key."""

    def __init__(self, embedder: str, variables: str) -> None:
        self.embedder = embedder
        super().__init__(
            f"embedding with {embedder} needs an API key; set {variables}, or choose a provider "
            "that needs none, such as local"
        )


class SigningKeyError(ConfigError):
    """An invalid signing key; the message never shows the key."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(
            f"signing key {key} {problem}; write 'key_id:secret', "
            "'ed25519:key_id:<base64 of the 32 byte seed>' or "
            "'ed25519-pub:key_id:<base64 of the 32 byte public key>', separated by commas"
        )


class IndexKeyChangedError(ConfigError):
    """Recorded contexts that are found only with another `record.index_key` than the present one.

    No search by what contexts read is answered then, and no entity is erased.
    """

    def __init__(self, last: datetime) -> None:
        self.last = last
        super().__init__(
            f"contexts up to {last.isoformat()} were recorded with another record.index_key, so a "
            "search with the present one would leave them out without a word; set "
            "HEADWATER_RECORD_INDEX_KEY to the former key; if it is lost, remove the contexts of "
            "that time with `headwater prune --records`"
        )
