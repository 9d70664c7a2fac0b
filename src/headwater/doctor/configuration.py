"""Checks of settings, variables and secrets."""

from __future__ import annotations

import os
from pathlib import Path

from headwater.contexts.recorded.verification import check_signing
from headwater.declarations.registry import Registry
from headwater.doctor.access_checks import add_access
from headwater.errors import ConfigError, FeaturesFileError
from headwater.errors.hints import nearest
from headwater.model.health import Finding, Findings
from headwater.records.signing import parse_keyring
from headwater.settings.environments import on_servers
from headwater.settings.loading import FILE, describe, load_with_origins, unknown_variables
from headwater.settings.schema import SETTINGS, Settings
from headwater.store.loader import locate


def findings(settings: Settings, registry: Registry) -> list[Finding]:
    """Examine the settings of a store."""
    file = f"{FILE} in {os.getcwd()}"
    shown = file if Path(FILE).exists() else f"no {file}"
    report = Findings("configuration", f"HEADWATER_ variables, {shown}")
    _add_values(settings, report)
    _add_features_file(settings, registry, report)
    _add_variables(report)
    add_access(settings, report)
    _add_signing(settings, report)
    return report.all


def _add_values(settings: Settings, report: Findings) -> None:
    """Add every value that is not the default, with its origin."""
    loaded = load_with_origins()
    origins = {info.path: info.origin for info in describe(loaded)}
    defaults = Settings()
    for setting in SETTINGS.values():
        value = setting.of(settings)
        if value == setting.of(defaults):
            continue
        is_loaded = value == setting.of(loaded.settings)
        origin = origins[setting.path] if is_loaded else "code"
        place = {"file": FILE, "environment": setting.variable or ""}.get(
            origin, "the features file"
        )
        report.ok(setting.path, f"{setting.shown(value)}", place)
    if not report.all:
        report.ok("settings", "all values are defaults")


def _add_features_file(settings: Settings, registry: Registry, report: Findings) -> None:
    """Add whether commands without a file find one, unless declarations are loaded already."""
    if registry.entities:
        return
    try:
        report.ok("features file", f"found as {locate(settings.features).file}", "features")
    except FeaturesFileError:
        report.unknown(
            "features file",
            f"there is no {settings.features} in {os.getcwd()}",
            "`headwater init FOLDER` writes one; or set HEADWATER_FEATURES, or pass --file",
            "features",
        )


def _add_variables(report: Findings) -> None:
    unknown = unknown_variables()
    variables = [setting.variable for setting in SETTINGS.values() if setting.variable]
    for name in unknown:
        report.warning(
            "variables", f"{name} is not a setting", nearest(name, variables), "environment"
        )
    if not unknown:
        report.ok("variables", "every HEADWATER_ variable is a setting", "environment")


def _add_signing(settings: Settings, report: Findings) -> None:
    place = "HEADWATER_SIGNING_KEY"
    try:
        check_signing(settings)
        keyring = parse_keyring(settings.signing_key)
    except ConfigError as error:
        report.error(
            "signing keys",
            str(error),
            "`headwater keys signing generate KEY_ID` makes a key",
            place,
        )
        return
    if keyring.signer and settings.signature_mode != "off":
        report.ok("signing keys", f"records are signed with {keyring.signer.key_id!r}", place)
    elif on_servers_or_unset(settings):
        report.warning(
            "signing keys",
            "records are not signed, so a changed record with a new hash would not be noticed",
            "`headwater keys signing generate KEY_ID` makes a key for HEADWATER_SIGNING_KEY",
            place,
        )
    else:
        report.ok("signing keys", "none: records are not signed", place)


def on_servers_or_unset(settings: Settings) -> bool:
    """Return whether a store is meant for production."""
    try:
        return on_servers(settings)
    except ConfigError:
        return True
