"""Records in Avro and Protobuf become events by the functions of docs/how-to/kafka.md."""

from __future__ import annotations

import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from conformance.suite import Opened
from engines.downloads import ROOT, SCHEMA_REGISTRY, maven_archive
from headwater.backends.kafka.records import load_decoder
from headwater.model.values import MALFORMED
from headwater.settings.schema import Settings
from tests.backends.kafka.test_feeder import appended, read_all, send
from tests.conformance.openings import openings
from tests.kafka import Brokers, on_kafka
from tests.servers import POLL_SECONDS, Server, machine_in_a_folder, quiet_port

# The clients of the page live as long as their process.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar")
_READY_WITHIN_SECONDS = 180.0
_PAGE = ROOT / "docs" / "how-to" / "kafka.md"
_IN_PAGE = "http://registry:8081"
_VALUE = SerializationContext("headwater-events", MessageField.VALUE)
_ORDER = """{"type": "record", "name": "Order", "fields": [
    {"name": "customer", "type": "string"}, {"name": "amount", "type": "double"}]}"""


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """Yield the URL of a registry that speaks Confluent's protocol."""
    archive = maven_archive(SCHEMA_REGISTRY)
    port = quiet_port()
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def server(_: Path) -> Server:
        (jar,) = archive.glob("*-runner.jar")
        return Server(
            name="Apicurio Registry",
            port=port,
            command=(*_JAVA, str(jar)),
            is_ready=lambda: True,
            stop_signal=signal.SIGTERM,
            environment={"QUARKUS_HTTP_PORT": str(port), "QUARKUS_HTTP_HOST": "127.0.0.1"},
        )

    with machine_in_a_folder("registry", server):
        deadline = time.monotonic() + _READY_WITHIN_SECONDS
        while not answers(url):
            assert time.monotonic() < deadline, "the registry did not start"
            time.sleep(POLL_SECONDS)
        yield url


def answers(url: str) -> bool:
    """Return whether a registry answers."""
    try:
        with closing(urlopen(f"{url}/subjects", timeout=5)) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


@pytest.fixture
def functions(registry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the modules of the page to a folder that Python finds."""
    blocks = re.findall(r"```py\n# (\w+\.py)(.*?)```", _PAGE.read_text(), re.DOTALL)
    for name, text in blocks:
        assert _IN_PAGE in text
        (tmp_path / name).write_text("#" + text.replace(_IN_PAGE, registry))
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)
    monkeypatch.syspath_prepend(tmp_path)


async def received(settings: Settings, decode: str, records: list[bytes]) -> list[Any]:
    """Return the events of records of one customer."""
    send(settings, [("ada", record, {}) for record in records])
    async with openings(settings.replace(bus={"decode": decode})) as connect:
        store = await Opened.by(connect)
        async with appended(store):
            return await read_all(store, len(records))


async def test_avro_with_a_schema_of_the_registry_becomes_events(
    registry: str, functions: None, production: Settings, kafka: Brokers
) -> None:
    serialize = AvroSerializer(SchemaRegistryClient({"url": registry}), _ORDER)
    order = {"customer": "ada", "amount": 5.5}
    unknown = b"\x00\x00\x01\x86\x9f" + b"\x06ada"
    settings = on_kafka(production, kafka.new_topic())
    event, problem = await received(
        settings, "shop_events:decode", [serialize(order, _VALUE) or b"", unknown]
    )
    assert (event.event_type, event.entity_id, event.payload) == ("purchase", "ada", order)
    assert problem.event_type == MALFORMED


def test_a_registry_that_is_away_is_no_fault_of_the_record(functions: None, tmp_path: Path) -> None:
    module = tmp_path / "shop_events.py"
    away = f"http://127.0.0.1:{quiet_port()}"
    module.write_text(re.sub(r"http://127[^\"]*", away, module.read_text()))
    with pytest.raises(ConnectionError, match="the schema registry is away"):
        load_decoder("shop_events:decode")(b"\x00\x00\x00\x00\x01\x06ada", {})


async def test_protobuf_with_a_schema_of_the_registry_becomes_events(
    registry: str,
    functions: None,
    production: Settings,
    kafka: Brokers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compiled_order()
    monkeypatch.setitem(sys.modules, "shop_pb2", compiled)
    serialize = ProtobufSerializer(
        compiled.Order, SchemaRegistryClient({"url": registry}), {"use.deprecated.format": False}
    )
    order = compiled.Order(customer="ada", amount=5.5)
    settings = on_kafka(production, kafka.new_topic())
    context = SerializationContext("orders-in-protobuf", MessageField.VALUE)
    (event,) = await received(settings, "shop_protobuf:decode", [serialize(order, context) or b""])
    assert event.payload == {"customer": "ada", "amount": 5.5}


def compiled_order() -> Any:
    """Return the module that protoc makes of ``message Order``."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    kinds = descriptor_pb2.FieldDescriptorProto
    optional = kinds.LABEL_OPTIONAL
    order.field.add(name="customer", number=1, type=kinds.TYPE_STRING, label=optional)
    order.field.add(name="amount", number=2, type=kinds.TYPE_DOUBLE, label=optional)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    module: Any = ModuleType("shop_pb2")
    module.Order = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    return module
