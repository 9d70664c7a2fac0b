"""Fixtures of the tests on engines: those of all tests, and downloads of Maven and Go."""

from __future__ import annotations

pytest_plugins = ["tests.conftest"]
