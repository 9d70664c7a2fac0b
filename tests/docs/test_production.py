"""The files of the production example equal those on the page and are valid."""

from __future__ import annotations

import re
import shlex
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater.declarations.runtime import runtime_of
from headwater.settings.loading import load
from headwater.settings.schema import SETTINGS, Settings
from headwater.store.loader import load_store
from tests.docs.pages import DOCS, ROOT, blocks
from tests.docs.test_commands import parse

EXAMPLE = ROOT / "examples" / "production"
UNITS = sorted(EXAMPLE.glob("*.service"))


def compose() -> dict[str, Any]:
    return msgspec.yaml.decode((EXAMPLE / "compose.yaml").read_bytes(), type=dict[str, Any])


def unit(file: Path) -> RawConfigParser:
    # A unit may say a key more than once, and a later one adds to it.
    parser = RawConfigParser(strict=False, delimiters="=")
    parser.read(file)
    return parser


def test_the_page_shows_the_files_as_they_are() -> None:
    shown = {b.title: b.text for b in blocks(DOCS / "how-to" / "production.md") if b.title}
    assert shown == {
        file.name: file.read_text() for file in EXAMPLE.iterdir() if file.name in shown
    }
    assert {file.name for file in EXAMPLE.iterdir() if file.is_file()} == {*shown, "features.py"}


def test_every_variable_in_them_exists() -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    for file in filter(Path.is_file, EXAMPLE.iterdir()):
        named = set(re.findall(r"HEADWATER_[A-Z_]*[A-Z]", file.read_text(encoding="utf-8")))
        assert named <= known, file


def test_the_settings_of_the_containers_are_valid(tmp_path: Path) -> None:
    services = compose()["services"]
    for name in ("migrate", "serve", "worker"):
        settings = load(services[name]["environment"], tmp_path)
        assert settings.env == "production"
        assert settings.redis.url == "redis://redis:6379/0"
        assert settings.postgres.url.endswith("@postgres:5432/headwater")
        assert settings.api_keys
    assert load(services["worker"]["environment"], tmp_path).worker.metrics_port == 9100


def test_the_containers_define_the_services_they_depend_on() -> None:
    document = compose()
    services = document["services"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for mounted in (volume.partition(":")[0] for volume in service.get("volumes", ())):
            assert mounted in document["volumes"] or (EXAMPLE / mounted).is_file()
    assert services["worker"]["deploy"]["replicas"] == 2


def test_redis_persists_every_acknowledged_write() -> None:
    words = compose()["services"]["redis"]["command"]
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert options == {
        "--appendonly": "yes",
        "--appendfsync": "always",
        "--maxmemory-policy": "noeviction",
    }


@pytest.mark.parametrize("name", ["migrate", "serve", "worker"])
def test_the_commands_of_the_containers_parse(name: str) -> None:
    service = compose()["services"][name]
    parse(service["command"])
    # The program is the entry point of the only Dockerfile.
    dockerfile = (EXAMPLE / service["build"] / "Dockerfile").read_text(encoding="utf-8")
    assert 'ENTRYPOINT ["headwater"]' in dockerfile
    assert service["read_only"]
    assert service["tmpfs"] == "/tmp"
    assert "WORKDIR /app\nUSER 10001\n" in dockerfile


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.name)
def test_a_unit_starts_a_command_that_parses_and_lets_it_finish(file: Path) -> None:
    service = unit(file)["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert Path(program).name == "headwater"
    parse(arguments)
    assert int(service["TimeoutStopSec"]) > Settings().worker.drain_timeout
    assert service["EnvironmentFile"] == "/etc/headwater.env"


def test_the_settings_of_the_units_are_valid(tmp_path: Path) -> None:
    lines = (EXAMPLE / "headwater.env").read_text().splitlines()
    pairs = [line.split("=", 1) for line in lines if not line.startswith("#")]
    worker = unit(EXAMPLE / "headwater-worker@.service")["Service"]["Environment"]
    name, _, value = worker.partition("=")
    settings = load(dict([*pairs, [name, value.replace("%i", "1")]]), tmp_path)
    assert settings.env == "production"
    assert settings.worker.metrics_port == 9101


def test_the_features_file_of_the_example_loads() -> None:
    assert runtime_of(load_store(EXAMPLE / "features.py")).registry.features
