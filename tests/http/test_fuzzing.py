"""A server answers as its OpenAPI document says: the short form of `make fuzz`."""

from pathlib import Path

import pytest

from dev.fuzz.run import fuzz
from dev.fuzz.shop import served


@pytest.mark.chaos
@pytest.mark.timeout(600)
# Schemathesis uses parts of other libraries that these have deprecated.
@pytest.mark.filterwarnings("default::DeprecationWarning")
def test_responses_to_generated_requests_are_as_documented(tmp_path: Path) -> None:
    with served(tmp_path) as url:
        report = fuzz(url, seed=7, examples=1, phases=("examples", "fuzzing", "stateful"))
    assert not report.violations, "\n\n".join(report.violations)
    assert report.cases > 200
    assert not [status for status in report.statuses if status >= 500]
    # Linked requests find what the ones before them made.
    assert report.phases["stateful"] > 5
    assert {200, 202, 404, 422} <= report.statuses.keys()
