"""Where settings are written: the only reader of the environment and of ``headwater.toml``.

A variable wins over the file, the file over the default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headwater.core.logging import log
from headwater.errors import ConfigError
from headwater.errors.hints import nearest
from headwater.settings.schema import PREFIX, SETTINGS, Settings, by_path, replaced

FILE = "headwater.toml"

Origin = Literal["default", "file", "environment"]

_TESTS = PREFIX + "TEST_"


class Loaded(NamedTuple):
    """Settings, and where each that is not a default was written."""

    settings: Settings
    origins: Mapping[str, Origin]


class Described(NamedTuple):
    """One setting as ``headwater config show`` lists it."""

    path: str
    variable: str | None
    value: Any
    origin: Origin
    description: str


def load(environ: Mapping[str, str] | None = None, directory: Path | None = None) -> Settings:
    """The settings of this process: from its environment and working directory unless given."""
    return load_with_origins(environ, directory).settings


def load_with_origins(
    environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> Loaded:
    """The settings of this process, and where each was written."""
    file = _from_file((directory or Path()) / FILE)
    variables = _from_environment(os.environ if environ is None else environ)
    origins: dict[str, Origin] = dict.fromkeys(file, "file")
    origins |= dict.fromkeys(variables, "environment")
    return Loaded(replaced(Settings(), file | variables), origins)


def environment_without_settings() -> dict[str, str]:
    """The environment of a process that is to run with the defaults, such as the demo's."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def describe(loaded: Loaded) -> Iterator[Described]:
    """Lists every setting with its value, its origin and what it is for; secrets are masked."""
    for setting in SETTINGS.values():
        yield Described(
            setting.path,
            setting.variable,
            setting.shown(setting.of(loaded.settings)),
            loaded.origins.get(setting.path, "default"),
            setting.description,
        )


def _from_file(file: Path) -> dict[str, Any]:
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        # ValueError: TOML's own, which says line and column, or text that is not UTF-8.
        raise ConfigError(f"{file} cannot be read: {error}") from error
    return {
        path: SETTINGS[path].check(value, f"{file}: {path}")
        for path, value in by_path(tree, str(file))
    }


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    known = {setting.variable: setting for setting in SETTINGS.values() if setting.variable}
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if name in known:
            setting = known[name]
            # A key or an address of "" says nothing, so that an empty variable cannot take away
            # the key that the file sets.
            if text or setting.of(Settings()) != "":
                values[setting.path] = setting.check_text(text, name)
        elif name.startswith(PREFIX) and not name.startswith(_TESTS):
            log.warning("unknown environment variable", name=name, hint=nearest(name, known))
    return values
