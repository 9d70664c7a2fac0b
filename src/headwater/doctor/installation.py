"""Checks of the installed package: tokenizer, embeddings, prices, web UI, descriptors."""

from __future__ import annotations

import platform
import resource
import sys
from importlib.metadata import version
from importlib.util import find_spec

from headwater.core.encodings import library
from headwater.core.tokens import tokenizer_for
from headwater.core.ui_files import BUILD_UI, is_ui_installed
from headwater.declarations.registry import Registry
from headwater.errors import ConfigError
from headwater.model.health import Finding, Findings
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL
from headwater.retrieval.embeddings.minilm import model_folder
from headwater.retrieval.embeddings.wire import FORMATS
from headwater.settings.schema import Settings

_FEW_DESCRIPTORS = 4_096


def findings(settings: Settings, registry: Registry) -> list[Finding]:
    """Examine the installed package, as far as the settings and declarations use it."""
    report = Findings("installation", sys.prefix)
    report.ok("version", f"headwater {version('headwater')} on Python {platform.python_version()}")
    _add_tokenizer(report)
    _add_embeddings(settings, report)
    _add_prices(settings, registry, report)
    _add_descriptors(report)
    _add_ui(report)
    return report.all


def _add_tokenizer(report: Findings) -> None:
    try:
        tokens = tokenizer_for("gpt-4o").recount("Hello, world!")
        report.ok("tokenizer", f"{library()} counts {tokens} tokens in 'Hello, world!'")
    except ConfigError as error:
        report.error("tokenizer", str(error), "install splintr-rs")


def _add_embeddings(settings: Settings, report: Findings) -> None:
    provider, place = settings.embeddings.provider, "settings of embeddings"
    if provider == "auto":
        provider = "local" if model_folder() else "lexical"
    if provider == "local" and not model_folder():
        report.error("embeddings", "the local model is not installed", INSTALL_LOCAL_MODEL, place)
    elif provider == "lexical":
        report.warning(
            "embeddings",
            "lexical: searches compare words, not meaning",
            f"{INSTALL_LOCAL_MODEL}, or choose another embeddings.provider",
            place,
        )
    elif provider in FORMATS and not _has_key(settings, provider):
        report.error(
            "embeddings",
            f"the provider {provider} has no API key",
            f"set HEADWATER_EMBEDDINGS_API_KEY or {provider.upper()}_API_KEY",
            place,
        )
    else:
        report.ok("embeddings", f"provider {provider}", place)


def _has_key(settings: Settings, provider: str) -> bool:
    embeddings = settings.embeddings
    own = {
        "openai": embeddings.openai_api_key,
        "azure": embeddings.azure_api_key,
        "cohere": embeddings.cohere_api_key,
        "voyage": embeddings.voyage_api_key,
    }
    # A server of one's own may need no key.
    return bool(embeddings.api_key or own.get(provider) or embeddings.base_url)


def _add_prices(settings: Settings, registry: Registry, report: Findings) -> None:
    models = {context.model for context in registry.contexts.values() if context.model}
    missing = sorted(models - settings.prices.keys())
    if missing and not find_spec("genai_prices"):
        report.warning(
            "prices",
            f"the cost of {', '.join(missing)} is unknown, because the prices are not installed",
            "pip install 'headwater[prices]', or set the table prices",
        )
    elif models:
        report.ok("prices", f"known for the models of {len(registry.contexts)} contexts")


def _add_descriptors(report: Findings) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < _FEW_DESCRIPTORS:
        report.warning(
            "open files",
            f"a process may open {hard}, which limits the connections to the server",
            "raise the limit with `ulimit -Hn` or LimitNOFILE=",
            "RLIMIT_NOFILE",
        )
    else:
        shown = "any number" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        report.ok("open files", f"a process may open {shown}", "RLIMIT_NOFILE")


def _add_ui(report: Findings) -> None:
    place = "headwater/ui"
    if is_ui_installed():
        report.ok("web UI", "its files are installed", place)
    else:
        problem = "its files are not in this installation; the API does not need them"
        report.unknown("web UI", problem, BUILD_UI, place)
