"""Gates of evaluations, and the baseline of accepted changes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from headwater.contexts.evaluation.gates import (
    NO_BASELINE,
    Baseline,
    baseline_text,
    check_gates,
    conclude,
    read_baseline,
)
from headwater.contexts.evaluation.summary import summarize
from headwater.errors import ConfigError, InvalidInputError
from headwater.model.evaluations import EvaluatedContext, GateResult
from headwater.settings.gates import Gate, parse_gates
from headwater.settings.loading import load
from tests.contexts.evaluation.evaluated import changed, evaluated, run_folder


def check(
    contexts: list[EvaluatedContext], baseline: Baseline = NO_BASELINE, **gates: Gate
) -> dict[str, GateResult]:
    results = check_gates(contexts, summarize(contexts), gates, baseline)
    return {result.gate: result for result in results}


def cohort(*others: EvaluatedContext, size: int = 100) -> list[EvaluatedContext]:
    return [*others, *(evaluated(n) for n in range(len(others), size))]


def test_a_gate_names_the_first_contexts_that_break_it() -> None:
    contexts = cohort(*(changed(n) for n in range(7)))
    assert check(contexts, max_changed="7%")["max_changed"].passed
    broken = check(contexts, max_changed="6.9%")["max_changed"]
    assert not broken.passed
    assert (broken.limit, broken.value) == ("6.9%", "7 of 100 (7.0%)")
    assert broken.contexts == ("ctx-00000", "ctx-00001", "ctx-00002", "ctx-00003", "ctx-00004")
    assert check(contexts, max_changed=7)["max_changed"].passed
    assert not check(contexts, max_changed=6)["max_changed"].passed


def test_required_items_refusals_and_fidelity_have_gates() -> None:
    contexts = cohort(
        changed(0, "lost", lost=2, lost_required=2),
        changed(1, "refusal", freshness_after="refused"),
        changed(2, "refusal", freshness_before="refused"),
        evaluated(3, fidelity="approximate", reasons=("pruned",)),
        evaluated(4, "skipped", error="gone"),
    )
    gates = check(contexts, lost_required=0, new_refusals=0, approximate=0, max_skipped=0)
    broken = {name: gate.contexts for name, gate in gates.items() if not gate.passed}
    assert broken == {
        "lost_required": ("ctx-00000",),
        "new_refusals": ("ctx-00001",),
        "approximate": ("ctx-00003",),
        "max_skipped": ("ctx-00004",),
    }


def test_growth_of_tokens_and_cost_has_gates() -> None:
    contexts = [
        *(changed(n, "tokens", tokens_after=104 + n, cost_after=1_050) for n in range(6)),
        *(evaluated(n) for n in range(6, 100)),
    ]
    gates = check(contexts, p95_tokens="+5%", p50_tokens="+0", cost="+0.3%")
    assert gates["p95_tokens"].passed
    assert gates["p95_tokens"].value == "100 → 104 (+4.0%)"
    assert gates["p50_tokens"].passed
    assert gates["cost"].passed
    gates = check(contexts, p95_tokens="+3", cost="+0.2%")
    assert not gates["p95_tokens"].passed
    assert gates["p95_tokens"].contexts[:2] == ("ctx-00005", "ctx-00004")
    assert not gates["cost"].passed
    assert gates["cost"].contexts
    assert not check(contexts, p95_tokens=103)["p95_tokens"].passed
    assert check(contexts, p95_tokens=104)["p95_tokens"].passed


def test_a_quantile_names_the_contexts_above_its_limit_the_largest_first() -> None:
    contexts = [
        changed(0, "tokens", tokens_before=10, tokens_after=90),
        *(evaluated(n, tokens_before=300, tokens_after=300) for n in (1, 2)),
        changed(3, "tokens", tokens_after=310),
        *(changed(n, "tokens", tokens_after=120) for n in range(4, 20)),
    ]
    broken = check(contexts, p95_tokens=200)["p95_tokens"]
    assert broken.contexts == ("ctx-00003", "ctx-00002", "ctx-00001")


def test_costs_without_prices_do_not_pass() -> None:
    gate = check([evaluated(1, cost_before=None, cost_after=None)], cost="+3%")["cost"]
    assert not gate.passed
    assert "no context has a price" in gate.value
    some = [evaluated(1), evaluated(2, cost_after=None)]
    assert "of the 1 contexts with a price" in check(some, cost="+3%")["cost"].value


def test_contexts_that_raise_break_a_gate_unless_another_limit_is_set() -> None:
    contexts = cohort(evaluated(0, "failed", error="KeyError: 'plan'"))
    gate = check(contexts)["max_failed"]
    assert (gate.passed, gate.contexts) == (False, ("ctx-00000",))
    assert check(contexts, max_failed="1%")["max_failed"].passed
    assert not check(contexts, max_changed=0)["max_changed"].passed
    assert check(cohort(changed(0))) == {}
    assert list(check(cohort(), max_changed=0)) == ["max_failed", "max_changed"]


@pytest.mark.parametrize("contexts", [[], [evaluated(1, "skipped", error="withheld")]])
def test_an_evaluation_that_compared_nothing_does_not_pass(
    contexts: list[EvaluatedContext],
) -> None:
    gate = check(contexts, max_changed="100%")["contexts"]
    assert not gate.passed
    assert gate.contexts == tuple(context.context_id for context in contexts)


def test_the_approximate_ones_are_shown_next_to_the_number() -> None:
    contexts = cohort(changed(0), changed(1, fidelity="approximate"))
    assert check(contexts, max_changed=0)["max_changed"].value == "2 of 100 (2.0%), 1 approximate"


@pytest.mark.parametrize(
    ("gates", "problem"),
    [
        ({"max_chaned": 0}, "did you mean 'max_changed'?"),
        ({"max_changed": "two"}, "'two'; it must be a number of contexts such as 0"),
        ({"max_changed": "+2%"}, "or a share of all such as '2%'"),
        ({"max_changed": -1}, "must be a number of contexts"),
        ({"p95_tokens": "5%"}, "a growth such as '+5%'"),
        ({"cost": "3 USD"}, "a growth such as '+5%'"),
    ],
)
def test_gates_that_do_not_exist_or_parse_are_refused_when_settings_are_loaded(
    gates: Mapping[str, Gate], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "".join(f"{name} = {value!r}\n" for name, value in gates.items())
    (tmp_path / "headwater.toml").write_text(f"[eval.gates]\n{lines}")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        load()
    assert problem in str(refused.value)
    assert "eval.gates" in str(refused.value)
    with pytest.raises(InvalidInputError):
        parse_gates(gates)


def test_a_baseline_accepts_exactly_the_changes_that_it_has(tmp_path: Path) -> None:
    file = tmp_path / "accepted.json"
    contexts = cohort(
        changed(0, "lost", lost_required=1),
        changed(1, "refusal", freshness_after="refused"),
        changed(2),
        evaluated(3, "failed", error="KeyError"),
    )
    file.write_text(baseline_text(contexts))
    baseline = read_baseline(file)
    assert len(baseline.accepted) == 3
    limits = {"max_changed": 0, "lost_required": 0, "new_refusals": 0, "max_failed": 1}
    gates = check(contexts, baseline, **limits)
    assert {name for name, gate in gates.items() if not gate.passed} == {"max_changed"}
    assert gates["max_changed"].contexts == ("ctx-00003",)
    assert gates["max_changed"].value == "1 of 100 (1.0%), 3 more accepted"
    other = cohort(
        changed(0, "lost", lost_required=1, content_after="sha256:other"),
        changed(1),
        changed(2, "refusal", freshness_after="refused"),
    )
    gates = check(other, baseline, **limits)
    assert gates["max_changed"].contexts == ("ctx-00000", "ctx-00001", "ctx-00002")
    assert not gates["lost_required"].passed
    assert not gates["new_refusals"].passed


def test_a_baseline_is_small_sorted_and_names_what_no_longer_occurs(tmp_path: Path) -> None:
    file = tmp_path / "accepted.json"
    file.write_text(baseline_text([changed(2), changed(1), evaluated(3)]))
    text = file.read_text()
    assert text.splitlines() == [
        "{",
        ' "format": "headwater-baseline-1",',
        ' "accepted": {',
        f'  "ctx-00001": "sha256:{1:064}",',
        f'  "ctx-00002": "sha256:{2:064}"',
        " }",
        "}",
    ]
    folder = run_folder(tmp_path, [changed(1), evaluated(2)])
    report = conclude(folder, {"max_changed": 0}, file)
    assert report.baseline is not None
    assert (report.baseline.accepted, report.baseline.stale) == (1, 1)
    assert report.baseline.contexts == ("ctx-00002",)
    assert all(gate.passed for gate in report.gates)
    assert not all(gate.passed for gate in conclude(folder, {"max_changed": 0}).gates)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"accepted": {"a": 1}}', b'{"format": "other"}', b"\xff", b'{"x": 1}']
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "accepted.json"
    with pytest.raises(InvalidInputError, match="--write-baseline writes one"):
        read_baseline(file)
    file.write_bytes(content)
    with pytest.raises(InvalidInputError, match="--write-baseline"):
        read_baseline(file)
