"""Lets failures inside the suites show their values."""

import pytest

pytest.register_assert_rewrite("headwater.testing.conformance")
