"""Starting `headwater worker` while a server is unavailable."""

import signal

from headwater.settings.schema import Settings
from tests.cli.conftest import Start
from tests.servers import restartable_valkey

FAILED = '"event":"opening the store failed; retrying"'


def test_a_worker_that_starts_while_redis_is_down_waits_for_it(
    production: Settings, start: Start
) -> None:
    with restartable_valkey() as (url, redis):
        environment = {
            "HEADWATER_ENV": "production",
            "HEADWATER_REDIS_URL": url,
            "HEADWATER_POSTGRES_URL": production.postgres.url,
            "HEADWATER_POSTGRES_SCHEMA": production.postgres.schema,
        }
        assert start("migrate", **environment).end(None).code == 0
        redis.stop()
        worker = start("worker", **environment)
        waiting = worker.errors_until(FAILED)
        assert "could not be reached" in waiting
        redis.start()
        started = worker.errors_until('"event":"worker started"')
        assert FAILED not in started
        assert "back after an outage" in started
        assert worker.next_line()["worker"]
        assert worker.end().code == 0


def test_a_worker_that_waits_for_redis_ends_at_a_signal(start: Start) -> None:
    nowhere = {
        "HEADWATER_ENV": "production",
        "HEADWATER_REDIS_URL": "redis://127.0.0.1:1",
        "HEADWATER_POSTGRES_URL": "postgresql://127.0.0.1:1/none",
    }
    worker = start("worker", **nowhere)
    worker.errors_until(FAILED)
    assert worker.end(signal.SIGTERM).code == -signal.SIGTERM
