"""Examining a store: its configuration, the installed package, its backends and its workload."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from headwater.access.key_format import check_strength
from headwater.access.keys_file import ApiKey, read_keys
from headwater.access.local_requests import is_loopback
from headwater.backends.connect import inspect
from headwater.contexts.recorded.verification import check_signing
from headwater.core.encodings import library
from headwater.core.sql_sources import has_files
from headwater.core.tls import expiry
from headwater.core.tokens import tokenizer_for
from headwater.core.ui_files import BUILD_UI, is_ui_installed
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.doctor import models, workload
from headwater.errors import ConfigError, FeaturesFileError, InvalidInputError
from headwater.errors.hints import nearest
from headwater.history.retention import Retention
from headwater.model.catalog import CatalogState
from headwater.model.health import Examination, Finding, Findings, Severity
from headwater.records.signing import parse_keyring
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL
from headwater.retrieval.embeddings.minilm import model_folder
from headwater.retrieval.embeddings.wire import FORMATS
from headwater.settings.kinds import rates_of
from headwater.settings.loading import FILE, describe, load_with_origins, unknown_variables
from headwater.settings.schema import SETTINGS, Settings, on_servers
from headwater.store.feature_store import FeatureStore
from headwater.store.loader import locate

_NEEDED = frozenset({"connection", "driver", "home", "database", "migrations"})
"""Checks of backends without which the store cannot be opened, or would be created."""

_ORDER: tuple[Severity, ...] = ("ok", "unknown", "warning", "error")
_KEYS = "API keys"
_SOON = timedelta(days=14)
_CERTIFICATES = [path for path in SETTINGS if path.endswith((".cert_file", ".ca_file"))]
_WRITABLE_BY_OTHERS = 0o022
_FEW_DESCRIPTORS = 4_096


async def examine(
    store: FeatureStore, *, open_breakers: Sequence[str] | None = None
) -> Examination:
    """Examine configuration, installation, backends and workload of a store.

    Circuit breakers are in the memory of workers; None means that these cannot be asked.
    """
    settings, registry = store.settings, runtime_of(store).registry
    backends = await inspect(settings, store.clock)
    findings = [
        *_configuration(settings, registry),
        *await asyncio.to_thread(_installation, settings, registry, store.clock.now()),
        *backends,
    ]
    if not any(finding.check in _NEEDED and finding.severity != "ok" for finding in backends):
        findings += await workload.findings(store, open_breakers)
        findings += await models.measured(store)
        findings += await _sources(store)
        # Opening a lake creates its tables.
        if {finding.severity for finding in backends if finding.area == "lake"} == {"ok"}:
            findings += await _rows_for_the_lake(store)
    return Examination(worst(findings), findings)


async def _sources(store: FeatureStore) -> list[Finding]:
    """Return whether queries of features find each source: its file, or in production its table."""
    report = Findings("sources", "sources of SQL features")
    for source in await store.sources.list():
        add = report.error if source.features else report.warning
        readers = f", which {', '.join(source.features)} read" if source.features else ""
        if source.table is None and not source.is_read_directly:
            remedy = f"run `headwater sources load {source.name}`"
            add(source.name, f"Postgres has no such table{readers}", remedy, source.location)
        elif source.is_read_directly and not has_files(source.location):
            remedy = "create it, or correct the path where the source is declared"
            add(source.name, f"there is no such file{readers}", remedy, source.location)
        else:
            table = source.table.name if source.table else "read directly"
            report.ok(source.name, table, source.location)
    return report.all


async def _rows_for_the_lake(store: FeatureStore) -> list[Finding]:
    """Return whether workers move the rows of the tail into the lake as they come."""
    report, check = Findings("lake", "the tail"), "rows to move"
    for table in (await store.lake.status()).tables:
        if table.waiting:
            report.warning(
                check,
                f"{table.table} has {store.settings.offline.segment_rows:,} or more that are not "
                "in the lake, where workers move them within seconds",
                "look again in a minute; if they stay, start `headwater worker FILE`, or see "
                "the logs of the workers",
            )
        else:
            report.ok(check, f"{table.table} has less than a file of them")
    return report.all


def worst(findings: Sequence[Finding]) -> Severity:
    """Return the worst severity."""
    return max((finding.severity for finding in findings), key=_ORDER.index, default="ok")


def _configuration(settings: Settings, registry: Registry) -> list[Finding]:
    file = f"{FILE} in {os.getcwd()}"
    shown = file if Path(FILE).exists() else f"no {file}"
    report = Findings("configuration", f"HEADWATER_ variables, {shown}")
    _add_values(settings, report)
    if not registry.entities:
        _add_features_file(settings, report)
    unknown = unknown_variables()
    variables = [setting.variable for setting in SETTINGS.values() if setting.variable]
    for name in unknown:
        remedy = nearest(name, variables)
        report.warning("variables", f"{name} is not a setting", remedy, "environment")
    if not unknown:
        report.ok("variables", "every HEADWATER_ variable is a setting", "environment")
    _add_access(settings, report)
    _add_certificates(settings, report)
    _add_signing(settings, report)
    _add_retention(settings, registry, report)
    return report.all


def _add_retention(settings: Settings, registry: Registry, report: Findings) -> None:
    """Add whether history is kept for as long as windows reach."""
    if not settings.retention.history:
        return
    try:
        retention = Retention.configured(settings.retention)
        retention.check_windows(registry.features, CatalogState())
    except InvalidInputError as error:
        problem, _, remedy = str(error).partition("; ")
        report.error("retention", problem, remedy, "retention.history")


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
        places = {"file": FILE, "environment": setting.variable or ""}
        shown = f"{setting.shown(value)}"
        if setting.path == "prices":
            rates = ", ".join(
                f"{model} {rate / 10**9:g} USD" for model, rate in rates_of(value).items()
            )
            shown = f"{rates} per million input tokens"
        report.ok(setting.path, shown, places.get(origin, "the features file"))
    if not report.all:
        report.ok("settings", "all values are defaults")


def _add_features_file(settings: Settings, report: Findings) -> None:
    """Add whether commands without a file find one."""
    try:
        report.ok("features file", f"found as {locate(settings.features).file}", "features")
    except FeaturesFileError:
        report.unknown(
            "features file",
            f"there is no {settings.features} in {os.getcwd()}",
            "`headwater init FOLDER` writes one; or set HEADWATER_FEATURES, or pass --file",
            "features",
        )


def _add_access(settings: Settings, report: Findings) -> None:
    """Add the findings about the keys and tokens of callers."""
    path = Path(settings.keys_file)
    try:
        keys = read_keys(path)
    except ConfigError as error:
        remedy = "correct the file; running servers keep the keys that they read before"
        report.error(_KEYS, str(error), remedy, str(path))
        return
    _add_key_sources(settings, keys, report)
    _add_expiry(keys, str(path), report)
    if path.exists() and path.stat().st_mode & _WRITABLE_BY_OTHERS:
        problem = "other users of this machine can write the keys file, and so add keys"
        report.error("keys file", problem, f"chmod 600 {path}", str(path))
    for key in settings.api_keys if not is_loopback(settings.http.host) else ():
        try:
            check_strength(key)
        except ConfigError as error:
            report.error("key strength", str(error), "replace the key", "HEADWATER_API_KEY")


def _add_key_sources(settings: Settings, keys: Mapping[str, ApiKey], report: Findings) -> None:
    if settings.api_keys:
        report.ok(_KEYS, f"{len(settings.api_keys)} in api_key", "HEADWATER_API_KEY")
    if keys:
        report.ok(_KEYS, f"{len(keys)} in the keys file", settings.keys_file)
    if settings.oidc.issuer:
        report.ok(_KEYS, f"tokens of {settings.oidc.issuer}", "oidc.issuer")
    if settings.api_keys or keys or settings.oidc.issuer:
        return
    if Path(settings.keys_file).exists():
        problem = "the keys file has no key, so a server refuses every request"
        remedy = (
            "create a key with `headwater keys create NAME --scope admin`, or remove the file "
            "and restart the server"
        )
        report.warning(_KEYS, problem, remedy, settings.keys_file)
    elif settings.env == "production":
        report.error(
            _KEYS,
            "production has no API key, so the server does not start",
            "create a key with `headwater keys create NAME --scope admin`, or set "
            "HEADWATER_API_KEY",
            settings.keys_file,
        )
    else:
        report.ok(_KEYS, "none: the server answers this machine only", settings.keys_file)


def _add_certificates(settings: Settings, report: Findings) -> None:
    """Add the certificates of the settings that expire soon, or cannot be read."""
    now = datetime.now(UTC)
    for path in _CERTIFICATES:
        file = SETTINGS[path].of(settings)
        if not file or file == "system":
            continue
        try:
            ends = expiry(Path(file))
        except (OSError, ValueError) as error:
            report.error("certificate", f"{file}: {error}", f"correct {path}", path)
            continue
        verb = "expired" if ends <= now else "expires"
        said = f"the certificate in {file} {verb} on {ends.date().isoformat()}"
        if ends <= now:
            report.error("certificate", said, "renew it; connections are refused", path)
        elif ends <= now + _SOON:
            report.warning("certificate", said, "renew it; no restart is needed", path)
        else:
            report.ok("certificate", said, path)


def _add_expiry(keys: Mapping[str, ApiKey], place: str, report: Findings) -> None:
    now = datetime.now(UTC)
    for name, key in keys.items():
        if key.expires is not None and key.expires <= now + _SOON:
            verb = "expired" if key.expires <= now else "expires"
            problem = f"the key {name!r} {verb} on {key.expires.date().isoformat()}"
            remedy = f"create another, then revoke it with `headwater keys revoke {name}`"
            report.warning("key expiry", problem, remedy, place)


def _add_signing(settings: Settings, report: Findings) -> None:
    check, place = "signing keys", "HEADWATER_SIGNING_KEY"
    remedy = "`headwater keys signing generate KEY_ID` makes a key"
    try:
        check_signing(settings)
        keyring = parse_keyring(settings.signing_key)
    except ConfigError as error:
        report.error(check, str(error), remedy, place)
        return
    if keyring.signer and settings.signature_mode != "off":
        report.ok(check, f"records are signed with {keyring.signer.key_id!r}", place)
    elif _is_for_production(settings):
        problem = "records are not signed, so a changed record with a new hash would not be noticed"
        report.warning(check, problem, f"{remedy} for HEADWATER_SIGNING_KEY", place)
    else:
        report.ok(check, "none: records are not signed", place)


def _is_for_production(settings: Settings) -> bool:
    try:
        return on_servers(settings)
    except ConfigError:
        return True


def _installation(settings: Settings, registry: Registry, now: datetime) -> list[Finding]:
    """Examine the installed package, as far as the settings and declarations use it."""
    report = Findings("installation", sys.prefix)
    report.ok("version", f"headwater {version('headwater')} on Python {platform.python_version()}")
    try:
        tokens = tokenizer_for("gpt-4o").recount("Hello, world!")
        report.ok("tokenizer", f"{library()} counts {tokens} tokens in 'Hello, world!'")
    except ConfigError as error:
        report.error("tokenizer", str(error), "install splintr-rs")
    _add_embeddings(settings, report)
    models.add_models(settings, registry, now.date(), report)
    _add_prices(settings, registry, report)
    _add_descriptors(report)
    if is_ui_installed():
        report.ok("web UI", "its files are installed", "headwater/ui")
    else:
        problem = "its files are not in this installation; the API does not need them"
        report.unknown("web UI", problem, BUILD_UI, "headwater/ui")
    return report.all


def _add_embeddings(settings: Settings, report: Findings) -> None:
    embeddings, check, place = settings.embeddings, "embeddings", "settings of embeddings"
    provider = embeddings.provider
    if provider == "auto":
        provider = "local" if model_folder() else "lexical"
    own_keys = {
        "openai": embeddings.openai_api_key,
        "azure": embeddings.azure_api_key,
        "cohere": embeddings.cohere_api_key,
        "voyage": embeddings.voyage_api_key,
    }
    # A server of one's own may need no key.
    has_key = bool(embeddings.api_key or own_keys.get(provider) or embeddings.base_url)
    if provider == "local" and not model_folder():
        report.error(check, "the local model is not installed", INSTALL_LOCAL_MODEL, place)
    elif provider == "lexical":
        problem = "lexical: searches compare words, not meaning"
        remedy = f"{INSTALL_LOCAL_MODEL}, or choose another embeddings.provider"
        report.warning(check, problem, remedy, place)
    elif provider in FORMATS and not has_key:
        remedy = f"set HEADWATER_EMBEDDINGS_API_KEY or {provider.upper()}_API_KEY"
        report.error(check, f"the provider {provider} has no API key", remedy, place)
    else:
        report.ok(check, f"provider {provider}", place)


def _add_prices(settings: Settings, registry: Registry, report: Findings) -> None:
    used = {context.model for context in registry.contexts.values() if context.model}
    missing = sorted(used - settings.prices.keys())
    if missing and not find_spec("genai_prices"):
        report.warning(
            "prices",
            f"the cost of {', '.join(missing)} is unknown, because the prices are not installed",
            "pip install 'headwater[prices]', or set the table prices",
        )
    elif used:
        report.ok("prices", f"known for the models of {len(registry.contexts)} contexts")


def _add_descriptors(report: Findings) -> None:
    check, place = "open files", "RLIMIT_NOFILE"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FEW_DESCRIPTORS:
        problem = f"a process may open {hard}, which limits the connections to the server"
        report.warning(check, problem, "raise the limit with `ulimit -Hn` or LimitNOFILE=", place)
    else:
        shown = "any number" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        report.ok(check, f"a process may open {shown}", place)
