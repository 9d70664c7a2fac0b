"""Settings: loading, validation and display."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater.core.logging import log
from headwater.core.models import ModelOverride
from headwater.core.prices import Rate
from headwater.errors import ConfigError, UnknownSettingError
from headwater.settings.kinds import rates_of, usage_rates_of
from headwater.settings.loading import SettingInfo, describe, load, load_with_origins
from headwater.settings.schema import SETTINGS, Settings


def written(folder: Path, text: str) -> Path:
    """Write a headwater.toml with this text."""
    (folder / "headwater.toml").write_text(text, encoding="utf-8")
    return folder


def listed(folder: Path, environ: dict[str, str]) -> dict[str, SettingInfo]:
    """Return the list of `config show`, by path."""
    return {row.path: row for row in describe(load_with_origins(environ, folder))}


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    log.configure("info", "json", stream)
    yield stream
    log.configure("info", "auto")


def test_without_file_and_variables_every_setting_has_its_default(tmp_path: Path) -> None:
    assert load({}, tmp_path) == Settings()


def test_the_documented_defaults_of_the_worker_hold(tmp_path: Path) -> None:
    worker = load({}, tmp_path).worker
    assert worker.batch_size == 100
    assert worker.poll_interval == 1.0
    assert worker.consumer_group == "headwater_workers"


def test_every_default_passes_its_own_check() -> None:
    for setting in SETTINGS.values():
        default = setting.of(Settings())
        assert setting.check(default, setting.path) == default


def test_the_file_wins_over_the_default(tmp_path: Path) -> None:
    written(tmp_path, 'home = "data"\n[worker]\nbatch_size = 7\n[sources]\norders = "o.parquet"\n')
    settings = load({}, tmp_path)
    assert settings.home == "data"
    assert settings.worker.batch_size == 7
    assert settings.worker.threads == 16
    assert settings.sources == {"orders": "o.parquet"}


def test_a_variable_wins_over_the_file(tmp_path: Path) -> None:
    written(tmp_path, "[worker]\nbatch_size = 7\nthreads = 3\n")
    worker = load({"HEADWATER_WORKER_BATCH_SIZE": "8"}, tmp_path).worker
    assert (worker.batch_size, worker.threads) == (8, 3)


def test_the_process_is_read_when_nothing_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(written(tmp_path, "partitions = 4\n"))
    monkeypatch.setenv("HEADWATER_HTTP_PORT", "9000")
    settings = load()
    assert (settings.partitions, settings.http.port) == (4, 9000)


@pytest.mark.parametrize(
    ("variable", "text", "path", "value"),
    [
        ("HEADWATER_ENV", "production", "env", "production"),
        ("HEADWATER_PARTITIONS", "1", "partitions", 1),
        ("HEADWATER_WORKER_POLL_INTERVAL", "0.25", "worker.poll_interval", 0.25),
        ("HEADWATER_WORKER_POLL_INTERVAL", "2", "worker.poll_interval", 2.0),
        ("HEADWATER_CONTEXT_TIMEOUT", "500ms", "context.timeout", 0.5),
        ("HEADWATER_HTTP_PORT", "0", "http.port", 0),
        ("HEADWATER_HTTP_RATE_LIMIT", "0", "http.rate_limit", 0.0),
        ("HEADWATER_INGEST_DEDUP_WINDOW", "1.5h", "ingest.dedup_window", timedelta(minutes=90)),
        ("HEADWATER_OFFLINE_SEGMENT_GRACE", "30s", "offline.segment_grace", timedelta(seconds=30)),
        ("HEADWATER_LOG_FORMAT", "json", "log.format", "json"),
        ("HEADWATER_REDIS_URL", "redis://localhost", "redis.url", "redis://localhost"),
    ],
)
def test_a_variable_is_read_in_its_setting_s_type(
    tmp_path: Path, variable: str, text: str, path: str, value: object
) -> None:
    read = SETTINGS[path].of(load({variable: text}, tmp_path))
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("1", "true", "True", "YES", "on")),
        *((text, False) for text in ("0", "false", "No", "OFF")),
    ],
)
def test_a_boolean_variable_takes_the_usual_words(tmp_path: Path, text: str, value: bool) -> None:
    assert load({"HEADWATER_HTTP_ACCESS_LOG": text}, tmp_path).http.access_log is value


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("HEADWATER_ENV", "prod", "one of development, production"),
        ("HEADWATER_ENV", "", "one of development, production"),
        ("HEADWATER_HOME", "", "a text that is not empty"),
        ("HEADWATER_PARTITIONS", "0", "a whole number from 1 to 1024"),
        ("HEADWATER_WORKER_BATCH_SIZE", "many", "a whole number from 1"),
        ("HEADWATER_WORKER_BATCH_SIZE", "", "a whole number from 1"),
        ("HEADWATER_WORKER_BATCH_SIZE", "1.5", "a whole number from 1"),
        ("HEADWATER_WORKER_LEASE_TTL", "0", "a number above 0"),
        ("HEADWATER_WORKER_LEASE_TTL", "nan", "a number above 0"),
        ("HEADWATER_WORKER_LEASE_TTL", "inf", "a number above 0"),
        ("HEADWATER_HTTP_PORT", "70000", "a whole number from 0 to 65535"),
        ("HEADWATER_CONTEXT_TIMEOUT", "soon", "a number above 0, in seconds, or a duration such"),
        ("HEADWATER_HTTP_RATE_LIMIT", "-1", "a number from 0"),
        ("HEADWATER_HTTP_RATE_LIMIT", "30s", "a number from 0"),
        ("HEADWATER_HTTP_ACCESS_LOG", "maybe", "true or false"),
        ("HEADWATER_HTTP_ACCESS_LOG", "", "true or false"),
        ("HEADWATER_INGEST_DEDUP_WINDOW", "a day", "a duration such as"),
        ("HEADWATER_INGEST_DEDUP_WINDOW", "0s", "a duration such as"),
        ("HEADWATER_LOG_LEVEL", "loud", "one of debug, info, warning, error"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value_and_the_allowed_values(
    tmp_path: Path, variable: str, text: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load({variable: text}, tmp_path)
    message = str(caught.value)
    assert message.startswith(f"{variable}: ")
    assert text in message
    assert allowed in message


@pytest.mark.parametrize(
    ("text", "key", "allowed"),
    [
        ("home = 5", "home", "a text that is not empty"),
        ("[worker]\nbatch_size = '5'", "worker.batch_size", "a whole number from 1"),
        ("[worker]\nbatch_size = true", "worker.batch_size", "a whole number from 1"),
        ("[worker]\nlease_ttl = inf", "worker.lease_ttl", "a number above 0"),
        ("[http]\naccess_log = 'yes'", "http.access_log", "true or false"),
        ("[ingest]\ndedup_window = 60", "ingest.dedup_window", "a duration such as"),
        ("[sources]\norders = 5", "sources", "a table of names and texts"),
    ],
)
def test_a_wrong_value_in_the_file_is_named_with_file_and_key(
    tmp_path: Path, text: str, key: str, allowed: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, written(tmp_path, text))
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'headwater.toml'}: {key}: ")
    assert allowed in message


@pytest.mark.parametrize(
    ("text", "key", "near"),
    [
        ("hom = 'x'", "hom", "home"),
        ("batch_size = 5", "batch_size", "worker.batch_size"),
        ("[worker]\nbatchsize = 5", "worker.batchsize", "worker.batch_size"),
        ("[wroker]\nbatch_size = 5", "wroker", "worker"),
    ],
)
def test_an_unknown_key_in_the_file_is_refused_with_the_nearest(
    tmp_path: Path, text: str, key: str, near: str
) -> None:
    with pytest.raises(UnknownSettingError) as caught:
        load({}, written(tmp_path, text))
    assert caught.value.key == key
    assert f"did you mean {near!r}?" in str(caught.value)


def test_a_value_where_a_table_belongs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="worker is a table of settings, not one of type int"):
        load({}, written(tmp_path, "worker = 5"))


def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"headwater\.toml cannot be read: .*line 2"):
        load({}, written(tmp_path, "home = 'x'\npartitions =\n"))


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_bytes(b"home = '\xff'")
    with pytest.raises(ConfigError, match=r"headwater\.toml cannot be read: it is not UTF-8"):
        load({}, tmp_path)


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    assert load({}, written(tmp_path, "\ufeffpartitions = 3\n")).partitions == 3


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").mkdir()
    with pytest.raises(ConfigError, match=r"headwater\.toml cannot be read"):
        load({}, tmp_path)


def test_an_unknown_variable_is_a_warning_with_the_nearest(
    tmp_path: Path, logged: io.StringIO
) -> None:
    for _ in range(2):
        assert load({"HEADWATER_WORKER_BATCHSIZE": "5"}, tmp_path) == Settings()
    (line,) = logged.getvalue().splitlines()
    assert '"level":"warning","event":"unknown environment variable"' in line
    assert '"variable":"HEADWATER_WORKER_BATCHSIZE"' in line
    assert "HEADWATER_WORKER_BATCH_SIZE" in line


def test_sources_have_no_variable(tmp_path: Path, logged: io.StringIO) -> None:
    assert load({"HEADWATER_SOURCES": "orders=x"}, tmp_path).sources == {}
    assert "HEADWATER_SOURCES" in logged.getvalue()


def test_variables_of_tests_and_of_others_are_left_alone(
    tmp_path: Path, logged: io.StringIO
) -> None:
    load({"HEADWATER_TEST_REDIS_URL": "x", "HOME": "/", "headwater_home": "y"}, tmp_path)
    assert logged.getvalue() == ""


@pytest.mark.parametrize(
    ("text", "keys"),
    [("", ()), ("one", ("one",)), (" one, two ,,", ("one", "two")), (" , ", ())],
)
def test_several_api_keys_are_separated_by_commas(
    tmp_path: Path, text: str, keys: tuple[str, ...]
) -> None:
    assert load({"HEADWATER_API_KEY": text}, tmp_path).api_keys == keys


def test_an_empty_variable_does_not_take_away_the_file_s_key(tmp_path: Path) -> None:
    loaded = load_with_origins({"HEADWATER_API_KEY": ""}, written(tmp_path, "api_key = 'one'"))
    assert loaded.settings.api_keys == ("one",)
    assert loaded.origins == {"api_key": "file"}


def test_every_setting_is_listed_with_its_variable_and_description(tmp_path: Path) -> None:
    rows = listed(tmp_path, {})
    assert list(rows) == list(SETTINGS)
    assert all(row.description for row in rows.values())
    assert rows["worker.batch_size"] == SettingInfo(
        "worker.batch_size",
        "HEADWATER_WORKER_BATCH_SIZE",
        100,
        "default",
        "maximum number of events per batch",
    )
    assert rows["ingest.dedup_window"].value == "1d"
    only_in_files = [path for path, row in rows.items() if row.variable is None]
    objectives = ["objectives.features", "objectives.contexts"]
    assert only_in_files == ["bus.fields", "eval.gates", *objectives, "sources", "prices"]


def test_no_two_settings_share_a_variable() -> None:
    variables = [s.variable for s in SETTINGS.values() if s.variable is not None]
    assert len(set(variables)) == len(variables)


def test_the_list_says_where_each_value_was_written(tmp_path: Path) -> None:
    written(tmp_path, "home = 'x'\n[worker]\nthreads = 2\n")
    rows = listed(tmp_path, {"HEADWATER_HOME": "y", "HEADWATER_LOG_LEVEL": "debug"})
    assert rows["home"].origin == "environment"
    assert rows["worker.threads"].origin == "file"
    assert rows["log.level"].origin == "environment"
    assert rows["log.format"].origin == "default"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://localhost:6379/0", "redis://localhost:6379/0"),
        ("redis://:hunter2@localhost:6379", "redis://:***@localhost:6379"),
        ("redis://me:hunter2@db/app", "redis://me:***@db/app"),
        ("redis://me:hun@ter2/@db/app", "redis://me:***@db/app"),
        (
            "redis://db/app?user=me&password=hunter2&x=1",
            "redis://db/app?user=me&password=***&x=***",
        ),
        ("redis://hunter2@db/app", "redis://***@db/app"),
        ("https://hunter2@login.example/keys", "https://***@login.example/keys"),
        ("hunter2@db", "***@db"),
        ("postgresql://me@db/app", "postgresql://me@db/app"),
        (
            "postgresql://db/app?sslpassword=hunter2&db=1",
            "postgresql://db/app?sslpassword=***&db=1",
        ),
        ("postgresql://db/app?PASSWORD=hunter2", "postgresql://db/app?PASSWORD=***"),
        ("host=db password = hunter2 user=me", "host=db password = *** user=me"),
        (r"host=db password='hun \' ter2' user=me", "host=db password=*** user=me"),
        (r"host=db password=hun\ ter2 user=me", "host=db password=*** user=me"),
        ("host=db password='hun\nter2'", "host=db password=***"),
        ("host=db password=hun\nter2", "***"),
        ("me:hunter2@db:6379", "me:***@db:6379"),
        (":hunter2@db", ":***@db"),
        ("redis:hunter2@db", "redis:***@db"),
        ("redis:hunter2", "***"),
        ("db:6379", "db:6379"),
        ("redis://:hun\nter2@db", "redis://:***@db"),
        ("redis://:hunter2", "redis://***"),
        ("redis://a:1,redis://:hunter2@b:2", "redis://a:***@b:2"),
        ("redis://a:1,[::1]:2/0?db=3", "redis://a:1,[::1]:2/0?db=3"),
        ("redis://db?passwd=hunter2", "redis://db?passwd=***"),
        ("redis://db?pass%77ord=hunter2", "redis://db?pass%77ord=***"),
        ("redis://db?auth=hunter2&token=hunter2", "redis://db?auth=***&token=***"),
        ("redis://db?db=0;password=hunter2", "redis://db?db=***"),
        ("redis://db?hunter2", "redis://db?***"),
        ("redis://db#password=hunter2", "redis://***"),
        ("unix://me:hunter2@/run/redis.sock?db=1", "unix://me:***@/run/redis.sock?db=1"),
    ],
)
def test_passwords_in_addresses_are_masked(tmp_path: Path, url: str, shown: str) -> None:
    assert listed(tmp_path, {"HEADWATER_REDIS_URL": url})["redis.url"].value == shown


def test_keys_are_masked_wherever_settings_are_printed(tmp_path: Path) -> None:
    environ = {
        "HEADWATER_API_KEY": "hunter2",
        "HEADWATER_SIGNING_KEY": "hunter2",
        "HEADWATER_RECORD_INDEX_KEY": "hunter2",
        "HEADWATER_REDIS_URL": "redis://:hunter2@db",
        "HEADWATER_POSTGRES_URL": "postgresql://me:hunter2@db/app",
        "HEADWATER_OIDC_JWKS": "https://me:hunter2@login.example/keys?token=hunter2",
    }
    assert listed(tmp_path, environ)["api_key"].value == "***"
    assert listed(tmp_path, {})["api_key"].value == ""
    settings = load(environ, tmp_path)
    groups = (settings.redis, settings.postgres, settings.record, settings.oidc)
    for printed in (settings, *groups):
        assert "***" in repr(printed)
        assert "hunter2" not in repr(printed)
        assert "hunter2" not in str(printed.__rich_repr__())
    with pytest.raises(ConfigError) as caught:
        load({}, written(tmp_path, "api_key = 31337"))
    assert "31337" not in str(caught.value)
    with pytest.raises(ConfigError, match="redis is a table of settings") as caught:
        load({}, written(tmp_path, "redis = 'redis://:hunter2@db'"))
    assert "hunter2" not in str(caught.value)
    written(tmp_path, "[sources]\na = 'a.csv'\nb = 'https://me:hunter2@db/b.csv'\n")
    shown = {"a": "a.csv", "b": "https://me:***@db/b.csv"}
    assert listed(tmp_path, {})["sources"].value == shown
    with pytest.raises(ConfigError, match="source 'a' has a URL that begins with") as caught:
        load({}, written(tmp_path, "[sources]\na = 'mysql://me:hunter2@db'"))
    assert "hunter2" not in str(caught.value)


def test_a_keyword_replaces_a_setting_and_leaves_the_rest(tmp_path: Path) -> None:
    before = load({"HEADWATER_WORKER_THREADS": "2"}, tmp_path)
    after = before.replace(home=tmp_path, worker={"batch_size": 5}, ingest={"dedup_window": "1h"})
    assert after.home == str(tmp_path)
    assert (after.worker.batch_size, after.worker.threads) == (5, 2)
    assert after.ingest.dedup_window == timedelta(hours=1)
    assert before.worker.batch_size == 100
    assert before.replace() == before


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"hom": "x"}, "did you mean 'home'"),
        ({"worker": {"batch_size": 0}}, "worker.batch_size: 0 is not allowed"),
        ({"ingest": {"dedup_window": timedelta(0)}}, "ingest.dedup_window: '0ms' is not allowed"),
        ({"retention": {"records": "2 years"}}, "retention.records: '2 years' is not a duration"),
        ({"retention": {"hour": 24}}, "retention.hour: 24 is not allowed"),
    ],
)
def test_a_wrong_keyword_is_refused_like_a_wrong_key(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Settings().replace(**changes)
    assert problem in str(caught.value)


def test_importing_settings_loads_no_driver_and_no_web_framework() -> None:
    code = (
        "import sys, headwater.settings; "
        "print({'duckdb', 'starlette', 'redis', 'asyncpg', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[prices]\nfoo = "a"', "prices: 'a' for 'foo' is not a whole number of nano-USD per"),
        ("[prices]\nfoo = -1", "prices: -1 for 'foo' is not a whole number of nano-USD per"),
        (
            '[sources]\norders = "x.txt"',
            "sources: source 'orders' has the suffix '.txt', which is not",
        ),
        ('[sources]\norders = "x"', "sources: source 'orders' has the suffix '', which is not"),
        ('[sources]\n"a b" = "x.csv"', "sources: source name 'a b' is not a plain identifier"),
        ('[sources]\nevents = "x.csv"', "sources: source 'events' is built in and cannot"),
    ],
)
def test_prices_and_sources_are_checked_when_they_are_read(
    tmp_path: Path, text: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load({}, written(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path / 'headwater.toml'}: {told}")


def test_prices_are_numbers_and_sources_may_be_compressed(tmp_path: Path) -> None:
    text = '[prices]\na = "7"\nb = 8\n[sources]\norders = "o.CSV.gz"\nall = "*.parquet"\n'
    loaded = load({}, written(tmp_path, text))
    assert loaded.prices == {"a": 7, "b": 8}
    assert loaded.sources == {"orders": "o.CSV.gz", "all": "*.parquet"}


def test_models_are_a_table_in_the_file_or_json_in_the_variable(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(
        '[tokens.models."meta/llama-4"]\nfolder = "/models/llama-4"\nwindow = 8192\n'
    )
    by_file = load({"HEADWATER_TOKENS_MODELS": ""}, tmp_path).tokens.models
    assert by_file == {"meta/llama-4": ModelOverride(folder="/models/llama-4", window=8_192)}
    text = '{"gpt-7": {"family": "gpt-6"}}'
    by_variable = load({"HEADWATER_TOKENS_MODELS": text}, tmp_path).tokens.models
    assert by_variable == {"gpt-7": ModelOverride(family="gpt-6")}
    for wrong in ("gpt-7", "[]", '{"gpt-7": 5}', '{"gpt-7": {"family": "gpt-9"}}'):
        with pytest.raises(ConfigError, match="HEADWATER_TOKENS_MODELS"):
            load({"HEADWATER_TOKENS_MODELS": wrong}, tmp_path)


def test_prices_are_of_input_or_a_table(tmp_path: Path) -> None:
    (tmp_path / "headwater.toml").write_text(
        "[prices]\nsmall = 5\n[prices.large]\ninput = 7\noutput = 9\n"
    )
    prices = load({}, tmp_path).prices
    assert rates_of(prices) == {"small": 5, "large": 7}
    assert usage_rates_of(prices) == {"small": Rate(5), "large": Rate(7, output=9)}
    for wrong in ("output = 9", "input = 7\nouput = 9", "input = -1"):
        (tmp_path / "headwater.toml").write_text(f"[prices.large]\n{wrong}\n")
        with pytest.raises(ConfigError, match="large"):
            load({}, tmp_path)
