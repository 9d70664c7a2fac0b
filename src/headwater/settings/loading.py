"""Loading of settings: the only module that reads the environment and ``headwater.toml``.

A variable overrides the file, and the file overrides the default. A secret may also be in a file
that a variable with ``_FILE`` at its end names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from headwater.core.logging import log
from headwater.core.masking import FileText, read_secret
from headwater.errors import ConfigError
from headwater.errors.hints import nearest
from headwater.settings.kinds import PREFIX, Setting
from headwater.settings.schema import SETTINGS, Settings, by_path, replace_values

FILE = "headwater.toml"

Origin = Literal["default", "file", "environment"]

_TESTS = PREFIX + "TEST_"

_BY_VARIABLE = {setting.variable: setting for setting in SETTINGS.values() if setting.variable}
_BY_FILE = {
    setting.secret_variable: setting for setting in SETTINGS.values() if setting.secret_variable
}


class LoadedSettings(NamedTuple):
    """Settings, and the origin of each that is not a default."""

    settings: Settings
    origins: Mapping[str, Origin]


class SettingInfo(NamedTuple):
    """One setting as ``headwater config show`` lists it."""

    path: str
    variable: str | None
    value: Any
    origin: Origin
    description: str


def load(environ: Mapping[str, str] | None = None, directory: Path | None = None) -> Settings:
    """Load settings, by default from the process's environment and working directory."""
    return load_with_origins(environ, directory).settings


def load_with_origins(
    environ: Mapping[str, str] | None = None, directory: Path | None = None
) -> LoadedSettings:
    """Load settings together with the origin of each."""
    file = _from_file((directory or Path()) / FILE)
    variables = _from_environment(os.environ if environ is None else environ)
    origins: dict[str, Origin] = dict.fromkeys(file, "file")
    origins |= dict.fromkeys(variables, "environment")
    return LoadedSettings(replace_values(Settings(), file | variables), origins)


def environment_without_settings() -> dict[str, str]:
    """Return the environment for a process that shall run with default settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def set_default_variable(name: str, value: str) -> None:
    """Set a variable that a library reads by itself, unless the user has set it."""
    os.environ.setdefault(name, value)


def describe(loaded: LoadedSettings) -> Iterator[SettingInfo]:
    """Yield every setting with value, origin and description; secrets are masked."""
    for setting in SETTINGS.values():
        yield SettingInfo(
            setting.path,
            setting.variable,
            setting.shown(setting.of(loaded.settings)),
            loaded.origins.get(setting.path, "default"),
            setting.description,
        )


def _from_file(file: Path) -> dict[str, Any]:
    tree = read_toml(file, str(file))
    return {
        path: SETTINGS[path].check(value, f"{file}: {path}")
        for path, value in by_path(tree, str(file))
    }


def read_toml(file: Path, name: str) -> dict[str, Any]:
    """Return the tables of a file, or none if it does not exist; raise ConfigError."""
    try:
        # Editors of Windows begin a file with a byte-order mark, which TOML does not allow.
        return tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} cannot be read: it is not UTF-8; save it as UTF-8") from error
    except (OSError, ValueError) as error:
        # ValueError: invalid TOML, with line and column.
        raise ConfigError(f"{name} cannot be read: {error}") from error


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the variables with our prefix that are not settings."""
    names = os.environ if environ is None else environ
    ours = (name for name in names if name.startswith(PREFIX) and not name.startswith(_TESTS))
    return sorted(name for name in ours if name not in _BY_VARIABLE and name not in _BY_FILE)


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, text in environ.items():
        if name in _BY_VARIABLE:
            setting = _BY_VARIABLE[name]
            # An empty key, URL or table is ignored: an empty variable must not remove the key that
            # the file sets.
            if text or setting.of(Settings()) not in ("", {}):
                values[setting.path] = setting.check_text(text, name)
        elif text and name in _BY_FILE:
            setting = _BY_FILE[name]
            if environ.get(str(setting.variable)):
                raise ConfigError(f"{setting.variable} and {name} are both set; unset one of them")
            values[setting.path] = _from_secret_file(setting, Path(text), name)
    for name in unknown_variables(environ):
        _warn_once(name, nearest(name, _BY_VARIABLE))
    return values


def _from_secret_file(setting: Setting, path: Path, name: str) -> FileText:
    try:
        text = read_secret(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: {path} cannot be read: {error}") from error
    return FileText.of(setting.check_text(text, name), path.absolute())


@cache
def _warn_once(name: str, hint: str) -> None:
    """Log an unknown variable, once per process: settings are loaded several times."""
    log.warning("unknown environment variable", variable=name, hint=hint)
