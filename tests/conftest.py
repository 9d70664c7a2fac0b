"""Fixtures that all tests share."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

import pytest
from hypothesis import settings as hypothesis

from dev.pgbouncer import MISSING, find_pgbouncer
from headwater import FeatureStore, entity
from headwater.core.logging import log
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.child_processes import default_signals, no_survivors
from tests.cluster import cluster
from tests.effort import STEADY_EXAMPLES
from tests.fork_server import ForkServer, fork_server
from tests.kafka import Brokers, brokers
from tests.memory import holds_test_files
from tests.poolers import behind_pgbouncer, through_pooler
from tests.schemas import Schemas
from tests.servers import postgres, valkey

pytest_plugins = ["tests.crashes", "tests.long_tests"]

# All processes share compiled bytecode, as installed programs do, also where Python is told not to
# write any: to compile what it imports takes a process longer than everything else at its start.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.pycache_prefix = os.environ.setdefault(
    "PYTHONPYCACHEPREFIX", str(Path(__file__).parents[1] / ".bytecode")
)

# Waiting for a disk takes longer than most tests do, and none of them cuts the power.
if "TMPDIR" not in os.environ and holds_test_files(Path("/dev/shm")):
    os.environ["TMPDIR"] = tempfile.tempdir = "/dev/shm"

# The suites are not test files; pytest explains only asserts that it knows of.
pytest.register_assert_rewrite("conformance")

# Found examples are the same on every run, so a failure in CI is a failure here.
# `pytest --hypothesis-profile=explore` looks for new ones, and `make test` tries fewer.
hypothesis.register_profile("steady", derandomize=True, deadline=None, max_examples=STEADY_EXAMPLES)
hypothesis.register_profile("quick", derandomize=True, deadline=None, max_examples=10)
hypothesis.register_profile("explore", deadline=None, max_examples=1_000)
hypothesis.load_profile("steady")


PATIENT_RECORDS = {"timeout": 60}
"""As long as a busy machine may need to store a record."""


def pytest_xdist_auto_num_workers() -> int:
    """Run more processes than cores where cores are few, because many tests wait for servers."""
    cores = os.cpu_count() or 1
    return max(cores, min(2 * cores, 8))


def pytest_collection() -> None:
    """Do not look for garbage among the modules and tests, which all stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave the modules and tests out of every later garbage collection."""
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-environments",
        action="store_true",
        help="run every test of a store in both environments, not only the tests marked for both",
    )
    parser.addoption(
        "--pgbouncer",
        action="store_true",
        help="put a PgBouncer between the stores of tests and Postgres",
    )
    parser.addoption(
        "--pictures",
        metavar="FOLDER",
        type=Path,
        help="write a picture of every state of the web UI that its tests reach",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an option that needs what is not there."""
    if config.getoption("--pgbouncer") and find_pgbouncer() is None:
        raise pytest.UsageError(MISSING)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests that need a cluster or a PgBouncer."""
    for fixture, mark in (("cluster_url", "cluster"), ("pgbouncer", "pooler")):
        if isinstance(item, pytest.Function) and fixture in item.fixturenames:
            item.add_marker(mark)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the options leave out."""
    is_pooled, is_all = config.getoption("--pgbouncer"), config.getoption("--all-environments")

    def is_left_out(item: pytest.Item) -> bool:
        is_direct = item.get_closest_marker("direct") is not None
        is_missing = isinstance(item, pytest.Function) and "pgbouncer" in item.fixturenames
        return (
            (is_pooled and is_direct)
            or (is_missing and find_pgbouncer() is None)
            or (not is_all and _repeatson_servers(item))
        )

    config.hook.pytest_deselected(items=[item for item in items if is_left_out(item)])
    items[:] = [item for item in items if not is_left_out(item)]


def _repeatson_servers(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or item.get_closest_marker("both_environments"):
        return False
    # Only the fixture of this file has the parameter.
    return "callspec" in vars(item) and item.callspec.params.get("settings") == "production"


@pytest.fixture(scope="session", autouse=True)
def _child_processes() -> Iterator[None]:
    """Start children as a terminal does, also under `nohup`, and fail if one survives."""
    with default_signals(), no_survivors():
        yield


@pytest.fixture(autouse=True)
def log_to_stderr() -> Iterator[None]:
    """Write log records to standard error, as the command line does."""
    log.configure("info", "auto")
    yield
    log.use_logging()


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """Yield the URL of a real Valkey or Redis."""
    with valkey() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a real Postgres."""
    with postgres() as url:
        if request.config.getoption("--pgbouncer"):
            with behind_pgbouncer(url):
                yield url
        else:
            yield url


@pytest.fixture(scope="session")
def schemas(postgres_url: str) -> Iterator[Schemas]:
    """Yield the schemas that tests use one after the other."""
    with Schemas(postgres_url) as schemas:
        yield schemas


@pytest.fixture
def production(redis_url: str, postgres_url: str, schemas: Schemas) -> Iterator[Settings]:
    """Yield the settings of an empty store on the two servers, whose tables exist already."""
    with schemas.lent() as schema:
        yield on_servers(redis_url, postgres_url, schema)


@pytest.fixture
def new_production(redis_url: str, postgres_url: str) -> Settings:
    """Return the settings of a store on the two servers that has no tables yet."""
    return on_servers(redis_url, postgres_url, f"test_{uuid4().hex[:12]}")


def on_servers(redis_url: str, postgres_url: str, schema: str) -> Settings:
    """Return the settings of a store on the two servers."""
    # On a busy machine, a server that works may not answer for seconds.
    patience = {"timeout": 30, "connect_timeout": 30}
    return Settings().replace(
        redis={"url": redis_url, "prefix": f"test-{uuid4().hex[:12]}", **patience},
        postgres={
            "url": postgres_url,
            "schema": schema,
            "connect_timeout": 30,
            **through_pooler(postgres_url),
        },
        record=PATIENT_RECORDS,
    )


@pytest.fixture(scope="session")
def cluster_url() -> Iterator[str]:
    """Yield the URL of one of the three masters of a real cluster."""
    with cluster() as url:
        yield url


@pytest.fixture(scope="session")
def kafka() -> Iterator[Brokers]:
    """Yield a cluster of three brokers."""
    with brokers() as cluster_of_brokers:
        yield cluster_of_brokers


@pytest.fixture(scope="session")
def copied() -> Iterator[ForkServer]:
    """Yield the process that commands are copies of."""
    with fork_server() as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that only the test advances."""
    return ManualClock()


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder with a short path, so that workers are woken by datagrams as usual."""
    with TemporaryDirectory(prefix="hw-") as folder:
        yield Path(folder)


@pytest.fixture(params=["embedded", "production"])
def settings(request: pytest.FixtureRequest, home: Path) -> Settings:
    """Return the settings of a new store, in each environment."""
    own = Settings() if request.param == "embedded" else request.getfixturevalue("production")
    chosen: Settings = own.replace(home=home, partitions=4, record=PATIENT_RECORDS)
    return chosen


@pytest.fixture
async def store(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    """Yield a new store."""
    opened = FeatureStore(settings=settings, clock=clock)
    yield opened
    await opened.close()


@pytest.fixture
def user(store: FeatureStore) -> type:
    """Return the entity that most tests use."""

    @entity(store)
    class User:
        user_id: str

    return User
