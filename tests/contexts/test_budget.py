"""Fitting: every promise of `fit`, held against a reading of it that recounts everything."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from headwater.contexts.budget import BudgetPolicy, Candidate, Fitted, fit
from headwater.core.templates import MARK
from headwater.core.tokens import Tokenizer, tokenizer_for
from headwater.errors import InvalidInputError, TokenBudgetError
from tests.core.token_texts import ESTIMATE, EXACT, SEPARATORS, fresh_count, texts

GPT = tokenizer_for("gpt-4o")

candidates = st.lists(
    st.builds(
        Candidate,
        content=texts,
        priority=st.integers(-2, 2),
        required=st.sampled_from([False, False, False, True]),
        truncate=st.booleans(),
        group=st.sampled_from([None, None, None, 0, 1]),
    ),
    max_size=8,
)
whole_candidates = candidates.map(lambda items: [_whole(item) for item in items])
policies = st.builds(
    BudgetPolicy,
    max_tokens=st.integers(1, 60),
    separator=st.sampled_from(SEPARATORS),
    on_overflow=st.just("flag"),
    backfill=st.booleans(),
)
tokenizers = st.sampled_from([*EXACT, ESTIMATE])


def _whole(item: Candidate) -> Candidate:
    return Candidate(item.content, item.priority, item.required, group=item.group)


def _units(items: list[Candidate]) -> list[list[int]]:
    """The places of items that stand alone, and those of each group."""
    units: dict[tuple[str, int], list[int]] = {}
    for place, item in enumerate(items):
        key = ("alone", place) if item.group is None else ("group", item.group)
        units.setdefault(key, []).append(place)
    return list(units.values())


def _required_units(items: list[Candidate]) -> list[list[int]]:
    return [unit for unit in _units(items) if any(items[place].required for place in unit)]


def _required(items: list[Candidate]) -> set[int]:
    return {place for unit in _required_units(items) for place in unit}


def _ranked_required(items: list[Candidate]) -> list[list[int]]:
    return sorted(_required_units(items), key=lambda unit: -max(items[n].priority for n in unit))


def _optional_units(items: list[Candidate]) -> list[list[int]]:
    """The units with a text that are not required, in the order in which they are kept."""
    required = _required_units(items)
    units = [unit for unit in _units(items) if unit not in required]
    present = [unit for unit in units if any(items[place].content for place in unit)]
    return sorted(present, key=lambda unit: -max(items[place].priority for place in unit))


def _limit(policy: BudgetPolicy, tokenizer: Tokenizer) -> int:
    assert policy.max_tokens is not None
    return policy.max_tokens * 100 // (100 + tokenizer.margin_percent)


def _with_budget(policy: BudgetPolicy, max_tokens: int) -> BudgetPolicy:
    return BudgetPolicy(max_tokens, policy.separator, policy.on_overflow, policy.backfill)


def _decisions(fitted: Fitted) -> list[str]:
    return [choice.decision for choice in fitted.choices]


def _tokens_of(
    places: set[int], items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> int:
    contents = (items[place].content for place in sorted(places))
    text = policy.separator.join(content for content in contents if content)
    return fresh_count(tokenizer, text)


@given(candidates, policies, tokenizers)
def test_the_budget_is_never_exceeded_but_by_flagged_required_items(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    fitted = fit(items, policy, tokenizer)
    assert fitted.overflow == (fitted.tokens > _limit(policy, tokenizer))
    if fitted.overflow:
        kept = [n for n, choice in enumerate(fitted.choices) if choice.emitted]
        assert kept == [n for n in sorted(_required(items)) if items[n].content]


@given(candidates, policies, tokenizers)
def test_the_reported_count_is_a_fresh_count_of_the_text(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    fitted = fit(items, policy, tokenizer)
    assert fitted.tokens == fresh_count(tokenizer, fitted.content)
    for item, choice in zip(items, fitted.choices, strict=True):
        assert choice.tokens == fresh_count(tokenizer, item.content)
        assert choice.emitted_tokens == fresh_count(tokenizer, choice.emitted or "")


@given(candidates, policies, tokenizers)
def test_items_are_joined_in_the_declared_order(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    fitted = fit(items, policy, tokenizer)
    emitted = [choice.emitted for choice in fitted.choices if choice.emitted]
    assert fitted.content == policy.separator.join(emitted)
    for item, choice in zip(items, fitted.choices, strict=True):
        assert (choice.emitted is None) == (choice.decision == "dropped")
        assert (choice.emitted == item.content) == (choice.decision == "kept")


@given(candidates, policies, tokenizers)
def test_required_items_are_kept(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    choices = fit(items, policy, tokenizer).choices
    for place in _required(items):
        assert choices[place].decision == "kept" or (
            choices[place].decision == "truncated" and items[place].truncate
        )


@given(candidates, policies, tokenizers)
def test_items_of_one_group_are_kept_or_dropped_together(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    choices = fit(items, policy, tokenizer).choices
    for unit in _units(items):
        decisions = {choices[place].decision for place in unit}
        assert len(decisions) == 1
        assert len(unit) == 1 or decisions <= {"kept", "dropped"}


@given(candidates, policies, tokenizers)
def test_nothing_is_dropped_while_something_of_lower_rank_is_kept(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    assume(not policy.backfill)
    optional = [place for unit in _optional_units(items) for place in unit]
    choices = fit(items, policy, tokenizer).choices
    order = [("kept", "truncated", "dropped").index(choices[place].decision) for place in optional]
    assert order == sorted(order)
    assert order.count(1) <= 1


@given(candidates, policies, tokenizers)
def test_only_the_first_that_does_not_fit_is_shortened_and_only_if_it_may_be(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    fitted = fit(items, policy, tokenizer)
    units = [*_ranked_required(items), *_optional_units(items)]
    short = [place for unit in units for place in unit if fitted.choices[place].short_by]
    for place, (item, choice) in enumerate(zip(items, fitted.choices, strict=True)):
        if choice.decision == "truncated":
            assert choice.emitted is not None
            assert item.truncate
            assert place == short[0]
            assert choice.emitted.endswith(MARK)
            assert item.content.startswith(choice.emitted.removesuffix(MARK))


@given(candidates, policies, tokenizers)
def test_the_same_input_gives_the_same_output(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    assert fit(items, policy, tokenizer) == fit(list(items), policy, tokenizer)


@given(candidates, policies, tokenizers)
def test_so_much_more_budget_keeps_an_item_and_one_less_does_not(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    assume(not policy.backfill and policy.max_tokens)
    for place, choice in enumerate(fit(items, policy, tokenizer).choices):
        assert (choice.short_by == 0) == (choice.decision == "kept")
        if choice.short_by and place not in _required(items):
            enough = (policy.max_tokens or 0) + choice.short_by
            more = fit(items, _with_budget(policy, enough), tokenizer)
            less = fit(items, _with_budget(policy, enough - 1), tokenizer)
            assert more.choices[place].decision == "kept"
            assert less.choices[place].decision != "kept"


@given(whole_candidates, policies, tokenizers)
def test_without_backfill_the_result_equals_counting_every_text_separately(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    assume(not policy.backfill)
    kept = _required(items)
    needed = _tokens_of(kept, items, policy, tokenizer)
    # All together may have fewer tokens than some of them.
    together = _tokens_of(set(range(len(items))), items, policy, tokenizer)
    for_all = max(together, sum(tokenizer.count(item.content) for item in items))
    choices = fit(items, policy, tokenizer).choices
    for unit in _optional_units(items):
        kept.update(unit)
        needed = max(needed, _tokens_of(kept, items, policy, tokenizer))
        budget = tokenizer.budget_for(min(needed, for_all))
        short_by = max(0, budget - (policy.max_tokens or 0))
        assert {choices[place].short_by for place in unit} == {short_by}


@given(whole_candidates, policies, tokenizers)
def test_with_backfill_every_item_that_still_fits_is_kept(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    assume(policy.backfill)
    kept = _required(items)
    assume(_tokens_of(kept, items, policy, tokenizer) <= _limit(policy, tokenizer))
    least = _tokens_of(kept, items, policy, tokenizer)
    choices = fit(items, policy, tokenizer).choices
    for unit in _optional_units(items):
        needed = max(least, _tokens_of({*kept, *unit}, items, policy, tokenizer))
        short_by = max(0, tokenizer.budget_for(needed) - (policy.max_tokens or 0))
        if not short_by:
            kept.update(unit)
        for place in unit:
            assert choices[place].short_by == short_by
            assert choices[place].decision == ("dropped" if short_by else "kept")


@given(whole_candidates, policies, tokenizers)
def test_required_items_that_do_not_fit_raise_an_error_with_the_required_budget(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    strict = BudgetPolicy(policy.max_tokens, policy.separator, "error", policy.backfill)
    required = _required(items)
    if _tokens_of(required, items, policy, tokenizer) <= _limit(policy, tokenizer):
        assert fit(items, strict, tokenizer) == fit(items, policy, tokenizer)
        return
    with pytest.raises(TokenBudgetError) as caught:
        fit(items, strict, tokenizer)
    assert caught.value.available == policy.max_tokens
    units = _required_units(items)
    costly = [n for unit in units if any(items[n].content for n in unit) for n in unit]
    assert caught.value.items == {n: fresh_count(tokenizer, items[n].content) for n in costly}
    fit(items, _with_budget(strict, caught.value.needed), tokenizer)
    with pytest.raises(TokenBudgetError):
        fit(items, _with_budget(strict, caught.value.needed - 1), tokenizer)


@given(candidates, st.sampled_from(SEPARATORS), tokenizers)
def test_without_a_budget_everything_is_kept(
    items: list[Candidate], separator: str, tokenizer: Tokenizer
) -> None:
    fitted = fit(items, BudgetPolicy(None, separator), tokenizer)
    assert fitted.content == separator.join(item.content for item in items if item.content)
    assert fitted.tokens == fresh_count(tokenizer, fitted.content)
    assert {choice.short_by for choice in fitted.choices} <= {0}
    assert set(_decisions(fitted)) <= {"kept"}


@given(candidates, policies, tokenizers)
def test_empty_items_are_kept_and_cost_nothing(
    items: list[Candidate], policy: BudgetPolicy, tokenizer: Tokenizer
) -> None:
    empty = [Candidate("", 9, required=True), Candidate("", -9), Candidate("", truncate=True)]
    fitted, without = fit([*empty, *items], policy, tokenizer), fit(items, policy, tokenizer)
    assert (fitted.content, fitted.tokens) == (without.content, without.tokens)
    assert fitted.choices[len(empty) :] == without.choices
    for choice in fitted.choices[: len(empty)]:
        assert (choice.decision, choice.emitted, choice.emitted_tokens) == ("kept", "", 0)


def test_separators_count() -> None:
    """A peer emits twelve tokens for a limit of ten here, and reports ten."""
    items = [Candidate("one two three four five"), Candidate("six seven eight nine ten")]
    fitted = fit(items, BudgetPolicy(10), GPT)
    assert fitted.tokens == GPT.count(fitted.content) == 5
    assert [choice.short_by for choice in fitted.choices] == [0, 1]
    assert fit(items, BudgetPolicy(11), GPT).tokens == 11


def test_the_lowest_priority_is_dropped_first_and_of_equals_the_last() -> None:
    items = [
        Candidate("low low low", priority=1),
        Candidate("high high high", priority=9),
        Candidate("middle one two", priority=5),
        Candidate("middle three four", priority=5),
    ]
    kept = {
        budget: [
            n
            for n, choice in enumerate(fit(items, BudgetPolicy(budget), GPT).choices)
            if choice.emitted
        ]
        for budget in (2, 3, 7, 11, 15)
    }
    assert kept == {2: [], 3: [1], 7: [1, 2], 11: [1, 2, 3], 15: [0, 1, 2, 3]}


def test_reasons_say_why() -> None:
    items = [
        Candidate("You are a support agent.", required=True),
        Candidate("The customer is called Ada.", priority=9),
        Candidate("She has ordered nothing for a year and then very much.", priority=5),
        Candidate("Hi.", priority=1),
    ]
    reasons = [choice.reason for choice in fit(items, BudgetPolicy(16), GPT).choices]
    assert reasons == ["required", "fits", "over_budget", "outranked"]
    filled = fit(items, BudgetPolicy(16, backfill=True), GPT)
    assert [choice.reason for choice in filled.choices] == [
        *("required", "fits", "over_budget", "fits"),
    ]


def test_the_last_item_that_does_not_fit_is_shortened_to_the_remaining_tokens() -> None:
    items = [
        Candidate("You are a support agent.", required=True),
        Candidate("The parcel left the warehouse on Monday and was lost", truncate=True),
        Candidate("Be kind.", priority=-1),
    ]
    fitted = fit(items, BudgetPolicy(14), GPT)
    assert fitted.content == "You are a support agent.\n\nThe parcel left the warehouse on Monday …"
    assert fitted.tokens == 14
    assert _decisions(fitted) == ["kept", "truncated", "dropped"]
    assert fitted.choices[1].reason == "shortened"


def test_a_required_item_that_may_be_shortened_is_before_it_is_an_error() -> None:
    items = [
        Candidate("Be kind.", priority=9),
        Candidate("The parcel left the warehouse on Monday", required=True, truncate=True),
        Candidate("You are a support agent.", required=True),
    ]
    fitted = fit(items, BudgetPolicy(12), GPT)
    assert fitted.content == "The parcel left the warehouse …\n\nYou are a support agent."
    assert _decisions(fitted) == ["dropped", "truncated", "kept"]
    with pytest.raises(TokenBudgetError):
        fit(items, BudgetPolicy(6), GPT)
    flagged = fit(items, BudgetPolicy(6, on_overflow="flag"), GPT)
    assert flagged.overflow
    assert flagged.content == f"{items[1].content}\n\n{items[2].content}"


def test_the_error_names_the_items_and_the_remedy() -> None:
    items = [Candidate("one"), Candidate("one two three four", required=True)]
    with pytest.raises(TokenBudgetError) as caught:
        fit(items, BudgetPolicy(3), GPT)
    assert str(caught.value) == (
        "the required items need max_tokens=4, but it is 3 (item 1 has 4); raise it, require less, "
        "or mark an item truncate=True"
    )


def test_a_group_is_counted_and_kept_as_a_whole() -> None:
    items = [
        Candidate("Question: where is my parcel?", 5, truncate=True, group=0),
        Candidate("You are a support agent.", required=True),
        Candidate("", 9, group=0),
        Candidate("Answer: it left the warehouse on Monday.", 4, group=0),
        Candidate("Be kind.", 1),
    ]
    dropped = fit(items, BudgetPolicy(20), GPT)
    assert _decisions(dropped) == ["dropped", "kept", "dropped", "dropped", "dropped"]
    enough = 20 + dropped.choices[0].short_by
    assert {choice.short_by for choice in dropped.choices} == {0, enough - 20, 25 - 20}
    kept = fit(items, BudgetPolicy(enough), GPT)
    assert _decisions(kept) == ["kept", "kept", "kept", "kept", "dropped"]
    assert kept.tokens == GPT.count(kept.content) == enough
    filled = fit(items, BudgetPolicy(20, backfill=True), GPT)
    assert _decisions(filled) == ["dropped", "kept", "dropped", "dropped", "kept"]


def test_an_estimate_leaves_room() -> None:
    items = [Candidate("one two three four five six seven eight", priority=1), Candidate("nine")]
    fitted = fit(items, BudgetPolicy(10), tokenizer_for("claude-sonnet-4-5"))
    assert (fitted.tokens, fitted.choices[0].short_by) == (0, 1)
    assert fit(items, BudgetPolicy(11), tokenizer_for("claude-sonnet-4-5")).tokens == 8


def test_a_thousand_items_without_words_are_fitted() -> None:
    fitted = fit([Candidate("", priority=n % 7) for n in range(1000)], BudgetPolicy(50), GPT)
    assert fitted.tokens == GPT.count(fitted.content) <= 50


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_a_budget_is_above_zero(max_tokens: int) -> None:
    with pytest.raises(InvalidInputError, match="above zero, or None"):
        BudgetPolicy(max_tokens)


def test_on_overflow_must_be_one_of_two_values() -> None:
    with pytest.raises(InvalidInputError, match="'error' or 'flag'"):
        BudgetPolicy(on_overflow="ignore")  # type: ignore[arg-type]


def test_items_with_fewer_tokens_together_are_short_by_their_joint_count() -> None:
    tokenizer = tokenizer_for("gpt-4")
    items = [
        Candidate("/_", 3),
        Candidate("“ hello'S\n\n%{\ufeff", 2),
        Candidate("क्_a/\u20284567“a½\ufeffa.23 ª", required=True, truncate=True),
        Candidate("_'S}Z한\u0301 ", 1),
        Candidate("", 0),
        Candidate("{__a the", 1),
        Candidate("\u3000”\u0301'll \u0131\u200b'll'KK中{!.”👍  “\xa0", 1),
    ]
    policy = BudgetPolicy(40, "/")
    for place, choice in enumerate(fit(items, policy, tokenizer).choices):
        if choice.short_by:
            for more, kept in ((choice.short_by, True), (choice.short_by - 1, False)):
                again = fit(items, _with_budget(policy, 40 + more), tokenizer).choices[place]
                assert (again.decision == "kept") is kept


def test_the_error_names_the_budget_within_which_a_shortened_item_fits() -> None:
    tokenizer = tokenizer_for("gpt-4o")
    words = ("alpha beta gamma delta epsilon zeta", "one two three four five six seven")
    items = [Candidate(text, required=True, truncate=True) for text in words]
    with pytest.raises(TokenBudgetError) as caught:
        fit(items, BudgetPolicy(8), tokenizer)
    assert caught.value.needed == 10
    fitted = fit(items, BudgetPolicy(10), tokenizer)
    assert [choice.decision for choice in fitted.choices] == ["kept", "truncated"]
    with pytest.raises(TokenBudgetError):
        fit(items, BudgetPolicy(9), tokenizer)
