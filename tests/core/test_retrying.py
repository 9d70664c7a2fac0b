"""The pauses between attempts."""

from headwater.core.retrying import backoff


def test_pauses_double_with_jitter_up_to_the_longest() -> None:
    for attempt in (*range(40), 100_000):
        expected = min(30.0, 0.1 * 2 ** min(attempt, 40))
        assert expected / 2 <= backoff(attempt, 0.1, 30.0) <= expected
