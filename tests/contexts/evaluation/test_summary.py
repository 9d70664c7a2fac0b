"""The summary of an evaluation."""

from __future__ import annotations

import tracemalloc

from headwater.contexts.evaluation.summary import OTHER_REASONS, UNEXPLAINED, summarize
from headwater.model.evaluations import Cause
from tests.contexts.evaluation.evaluated import PROMPT, changed, evaluated


def test_contexts_are_counted_by_status_kind_and_cause() -> None:
    feature = Cause(kind="feature", name="total", alone=False)
    summary = summarize(
        [
            evaluated(0),
            changed(1, "lost", "tokens", lost=1, lost_required=1),
            changed(2, "values", causes=(feature,)),
            changed(3, "edited", "refusal", causes=(), freshness_after="refused"),
            changed(4, "refusal", freshness_before="refused"),
            evaluated(5, "failed", error="KeyError: 'plan'"),
            evaluated(6, "skipped", error="the record is gone"),
        ]
    )
    assert (summary.contexts, summary.compared) == (7, 6)
    assert (summary.identical, summary.changed, summary.failed, summary.skipped) == (1, 4, 1, 1)
    assert summary.text_changed == 2
    assert (summary.new_refusals, summary.lost_required) == (1, 1)
    assert summary.kinds == {"lost": 1, "edited": 1, "values": 1, "tokens": 1, "refusal": 2}
    assert summary.causes == {"context support": 2, "feature total": 1, UNEXPLAINED: 1}
    assert summary.reasons == {"failed: KeyError: 'plan'": 1, "skipped: the record is gone": 1}


def test_fidelity_is_counted_for_every_number_and_never_averaged_away() -> None:
    reasons = ("the history of total was pruned",)
    summary = summarize(
        [
            evaluated(0),
            evaluated(1, fidelity="approximate", reasons=reasons),
            changed(2),
            changed(3, "cut", fidelity="approximate", reasons=reasons),
            evaluated(4, "skipped", error="withheld"),
        ]
    )
    assert summary.fidelity == {"exact": 2, "approximate": 2}
    assert summary.reasons == {"the history of total was pruned": 2, "skipped: withheld": 1}
    assert summary.approximate == {
        "changed": 1,
        "context support": 1,
        "cut": 1,
        "identical": 1,
        "text_changed": 1,
    }


def test_quantiles_are_exact_and_of_the_contexts_that_both_codes_assemble() -> None:
    contexts = [evaluated(n, tokens_before=n, tokens_after=2 * n) for n in range(1, 101)]
    contexts.append(evaluated(999, "failed", tokens_before=10_000))
    summary = summarize(contexts)
    before, after = summary.tokens_before, summary.tokens_after
    assert (before.p50, before.p95, before.total) == (50, 95, 5050)
    assert (after.p50, after.p95, after.total) == (100, 190, 10_100)
    nothing = summarize([])
    assert (nothing.contexts, nothing.tokens_after.p95) == (0, 0)


def test_costs_are_added_where_both_are_known() -> None:
    summary = summarize(
        [
            evaluated(1, cost_before=10, cost_after=12),
            evaluated(2, cost_before=None, cost_after=12),
            evaluated(3, cost_before=10, cost_after=None),
        ]
    )
    assert (summary.priced, summary.cost_before, summary.cost_after) == (1, 10, 12)


def test_reasons_that_differ_in_numbers_or_ids_are_one() -> None:
    errors = [f"KeyError: 'user-{n}' of 01a1ec94-1f5b-7c3d-{n:04}-0123456789ab" for n in range(150)]
    names = ["the history of spend_30d was pruned", "the history of spend_7d was pruned"]
    summary = summarize(
        [
            *(evaluated(n, "failed", error=error) for n, error in enumerate(errors)),
            *(
                evaluated(n, fidelity="approximate", reasons=(name,))
                for n, name in enumerate(names)
            ),
        ]
    )
    assert summary.reasons == {
        f"failed: {errors[0]} (numbers and ids vary)": 150,
        names[0]: 1,
        names[1]: 1,
    }


def _name(number: int) -> str:
    return "".join(chr(97 + int(digit)) for digit in str(number))


def test_memory_does_not_grow_with_the_cohort() -> None:
    def peak(size: int) -> int:
        tracemalloc.start()
        summary = summarize(
            changed(n, fidelity="approximate", tokens_after=n % 500, error=f"no user {_name(n)}")
            for n in range(size)
        )
        assert summary.changed == size
        assert summary.reasons[OTHER_REASONS] == size - 100
        *_, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(200)  # what is loaded once is not of the cohort
    assert peak(20_000) < 2 * peak(2_000)


def test_the_cause_of_a_failure_is_counted() -> None:
    contexts = [evaluated(1, "failed", causes=(PROMPT,)), evaluated(2, "failed")]
    assert summarize(contexts).causes == {"context support": 1}
