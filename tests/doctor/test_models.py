"""The doctor's look at models: estimates, the age of the table, and billed tokens."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from headwater import ContextItem, FeatureStore, context
from headwater.core.models import default_models
from headwater.doctor.examination import examine
from headwater.model.health import Finding
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.test_counters import bill
from tests.messages.test_chat_templates import folder


async def _found(store: FeatureStore, check: str) -> list[Finding]:
    return [finding for finding in (await examine(store)).findings if finding.check == check]


def _declare(store: FeatureStore, model: str) -> None:
    @context(store, name=f"about_{model.replace('-', '_').replace('.', '_')}", model=model)
    async def about() -> str:
        return "?"


async def test_models_that_are_only_estimated_are_named(tmp_path: Path) -> None:
    models = {"my-llama": {"folder": folder(tmp_path / "llama")}}
    settings = Settings().replace(home=tmp_path, tokens={"models": models})
    store = FeatureStore(settings=settings)
    _declare(store, "gpt-6-sol")
    _declare(store, "my-llama")
    [finding] = await _found(store, "tokens of models")
    assert (finding.severity, finding.found) == ("ok", "counted exactly for 2 models of contexts")
    _declare(store, "claude-opus-5")
    _declare(store, "my-own-model")

    @context(store, model="claude-sonnet-5", count="provider")
    async def asked() -> str:
        return "?"

    [finding] = await _found(store, "tokens of models")
    assert finding.severity == "unknown"
    assert finding.found.startswith("claude-opus-5, my-own-model: counted by an estimate")
    assert "tokens.models" in finding.remedy


async def test_the_folder_of_a_model_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    models = {"my-llama": {"folder": str(tmp_path / "nowhere")}}
    settings = Settings().replace(home=tmp_path, tokens={"models": models})
    store = FeatureStore(settings=settings)
    _declare(store, "my-llama")
    finding = (await _found(store, "tokens of models"))[-1]
    assert finding.severity == "error"
    assert finding.found.startswith("my-llama: ")
    assert finding.remedy.startswith("give the folder of a model")


async def test_a_table_older_than_six_months_is_named(tmp_path: Path) -> None:
    as_of = datetime.combine(default_models().as_of, datetime.min.time(), UTC)
    settings = Settings().replace(home=tmp_path)
    for days, severity in ((180, "ok"), (184, "warning")):
        clock = ManualClock(as_of + timedelta(days=days))
        [finding] = await _found(FeatureStore(settings=settings, clock=clock), "table of models")
        assert finding.severity == severity
        assert str(default_models().as_of) in finding.found


async def test_models_that_are_billed_for_more_than_predicted_are_named(
    store: FeatureStore,
) -> None:
    @context(store, model="my-own-model")
    async def chat() -> list[ContextItem]:
        return [ContextItem("Hello", role="user")]

    assert await _found(store, "billed tokens") == []
    await bill(store, (await chat()).context_id, [90, 100], predicted=100)
    [finding] = await _found(store, "billed tokens")
    assert (finding.severity, finding.found) == (
        "ok",
        "my-own-model: never more than predicted in 2",
    )
    await bill(store, (await chat()).context_id, [120], predicted=100)
    [finding] = await _found(store, "billed tokens")
    assert finding.severity == "warning"
    assert "more than predicted for 1 of 3 answers, by up to 20 %" in finding.found
