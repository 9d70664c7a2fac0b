"""What every test shares."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import settings

from headwater.settings import Settings
from tests.cluster import cluster
from tests.servers import postgres, valkey

# Found examples are the same on every run, so a failure in CI is a failure here.
# `pytest --hypothesis-profile=explore` looks for new ones.
settings.register_profile("steady", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1_000)
settings.load_profile("steady")


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A real Valkey or Redis."""
    with valkey() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real Postgres."""
    with postgres() as url:
        yield url


@pytest.fixture
def production(redis_url: str, postgres_url: str) -> Settings:
    """The settings of a store of its own on the two servers."""
    own = uuid4().hex[:12]
    return Settings().with_(
        redis={"url": redis_url, "prefix": f"test-{own}"},
        postgres={"url": postgres_url, "schema": f"test_{own}"},
    )


@pytest.fixture(scope="session")
def cluster_url() -> Iterator[str]:
    """One of three masters of a real cluster."""
    with cluster() as url:
        yield url
