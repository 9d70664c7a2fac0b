"""The sentences of the overview."""

from datetime import UTC, datetime

import pytest

from headwater.doctor.overview import subtitle_of
from headwater.doctor.workload import Workload
from headwater.model.admin import ConsumerLag
from headwater.model.dead_letters import LetterGroup, LetterGroups

NOW = datetime(2026, 1, 15, tzinfo=UTC)


def group(feature: str, count: int) -> LetterGroup:
    return LetterGroup(feature, "KeyError", "KeyError", count, count, NOW, NOW, ["p"], ["1"])


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([("spend", 1)], "1 dead letter waits for a decision, of `spend`."),
        ([("spend", 2), ("spend", 1)], "s wait for a decision, all of `spend`."),
        ([("spend", 2), ("rank", 1)], "s wait for a decision, most of `spend`."),
        ([("rank", 2), ("spend", 2), ("spend", 2)], "s wait for a decision, most of `spend`."),
        ([("rank", 2), ("spend", 2), ("name", 1)], "s wait for a decision, of 3 features."),
    ],
)
def test_the_subtitle_names_the_feature_of_most_dead_letters(
    groups: list[tuple[str, int]], expected: str
) -> None:
    assert expected in subtitle([group(*each) for each in groups])


def test_letters_may_be_settled_between_counting_and_grouping() -> None:
    assert "1 dead letter waits for a decision." in subtitle([], letters=1)


def subtitle(groups: list[LetterGroup], letters: int = 0) -> str:
    number = sum(each.count for each in groups)
    found = LetterGroups(groups, letters=letters or number, grouped=number, others=0)
    lags = [ConsumerLag(0, "w", 0, None, 5), ConsumerLag(1, "w", 0, None)]
    return subtitle_of([], Workload(NOW, [], lags, [], found, {}), [])
