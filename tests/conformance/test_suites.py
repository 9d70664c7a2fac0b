"""Every conformance suite runs on both environments."""

import pytest

import conformance
from conformance.suite import Suite
from tests.conformance import test_embedded, test_production


@pytest.mark.parametrize(
    "environment", [test_embedded.Embedded, test_production.Production], ids=["embedded", "servers"]
)
def test_every_suite_runs_on_the_environment(environment: type[Suite]) -> None:
    suites = {name for name in conformance.__all__ if name.endswith("Conformance")}
    run = {base.__name__ for test in environment.__subclasses__() for base in test.__mro__}
    assert suites <= run
