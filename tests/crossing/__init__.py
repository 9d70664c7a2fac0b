"""Random programs that cross the capabilities of a store."""

import pytest

# The assertions of a program should say what differs, as those of a test do.
pytest.register_assert_rewrite(
    "tests.crossing.model",
    "tests.crossing.steps",
    "tests.crossing.window_world",
    "tests.crossing.world",
)
