"""Fixtures of the tests on engines: those of all tests; what engines read from the environment."""

from __future__ import annotations

import os
from uuid import uuid4

pytest_plugins = ["tests.conftest"]

# Ray reads them when it is imported; otherwise it takes a token of the user's home.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex * 2}
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
