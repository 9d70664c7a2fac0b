"""A broker that asks for SASL, speaks TLS with a CA of its own, and knows the rights of users."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from conformance.suite import Opened, click
from engines.brokers import kafka_brokers
from headwater.backends.connect import connect, inspect, migrate
from headwater.backends.kafka.address import parse_url
from headwater.backends.kafka.client import TopicConsumer
from headwater.backends.kafka.environment import group_of
from headwater.core.clock import SystemClock
from headwater.errors import BackendError
from headwater.settings.schema import Settings
from tests.backends.kafka.test_feeder import appended, read_all
from tests.conformance.openings import openings
from tests.kafka import PARTITIONS
from tests.tls import Authority

_ADMIN, _USER, _PASSWORD = "admin", "headwater", "of the tests"
_LISTENER = "listener.name.sasl_ssl"
_LOGIN = "org.apache.kafka.common.security"
_RIGHTS = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ, AclOperation.DESCRIBE),
}
"""The rights that docs/how-to/kafka.md names."""


class Broker(NamedTuple):
    """The port of a broker, and the CA of its certificate."""

    port: int
    ca: Path

    def options(self, user: str, mechanism: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "ssl.ca.location": str(self.ca),
        }

    def settings(
        self, production: Settings, user: str = _USER, mechanism: str = "SCRAM-SHA-512"
    ) -> Settings:
        options = ",".join(f"{k}={v}" for k, v in self.options(user, mechanism).items())
        url = f"kafka://127.0.0.1:{self.port}/events-{production.redis.prefix}"
        bus = {"url": url, "options": options, "password": _PASSWORD, "timeout": 20}
        return production.replace(partitions=PARTITIONS, bus=bus)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder)
    own = authority.issue("broker", "127.0.0.1")
    plain = f'username="{_ADMIN}" password="{_PASSWORD}" user_{_ADMIN}="{_PASSWORD}"'
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": _one_line(own.key),
        "ssl.keystore.certificate.chain": _one_line(own.cert),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _one_line(authority.file),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{_LISTENER}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        f"{_LISTENER}.plain.sasl.jaas.config": (
            f'{_LOGIN}.plain.PlainLoginModule required {plain} user_{_USER}="{_PASSWORD}";'
        ),
        f"{_LISTENER}.scram-sha-512.sasl.jaas.config": (
            f"{_LOGIN}.scram.ScramLoginModule required;"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # The listener of controllers knows no users.
        "super.users": f"User:{_ADMIN};User:ANONYMOUS",
    }
    scram = f"SCRAM-SHA-512=[name={_USER},password={_PASSWORD}]"
    client = {**Broker(0, authority.file).options(_ADMIN, "PLAIN"), "sasl.password": _PASSWORD}
    with kafka_brokers(
        1,
        listener="SASL_SSL",
        properties=properties,
        formatting=("--add-scram", scram),
        client=client,
    ) as (machine,):
        yield Broker(machine.port, authority.file)


def _one_line(file: Path) -> str:
    return file.read_text().replace("\n", "\\n")


async def create(broker: Broker, production: Settings) -> None:
    """Create the topic as an administrator, and give the user its rights."""
    settings = broker.settings(production, _ADMIN, "PLAIN")
    await migrate(settings)
    address = parse_url(settings.bus.url, settings.bus)
    names = {
        ResourceType.TOPIC: (address.topic, ResourcePatternType.LITERAL),
        ResourceType.GROUP: (group_of(address), ResourcePatternType.PREFIXED),
    }
    rights = [
        AclBinding(
            kind,
            *names[kind],
            f"User:{_USER}",
            "*",
            each,
            AclPermissionType.ALLOW,
        )
        for kind, operations in _RIGHTS.items()
        for each in operations
    ]
    admin = AdminClient({**address.options, "bootstrap.servers": address.brokers})
    for created in admin.create_acls(rights).values():
        created.result()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "PLAIN"])
async def test_a_store_uses_a_topic_with_sasl_and_tls(
    broker: Broker, production: Settings, mechanism: str
) -> None:
    await create(broker, production)
    settings = broker.settings(production, mechanism=mechanism)
    async with openings(settings) as opening:
        store = await Opened.by(opening)
        async with appended(store):
            for number in range(20):
                await store.publish([click(number=number)])
            events = await read_all(store, 20)
        assert [event.payload["number"] for event in events] == list(range(20))
        assert await store.bus.backlog() == 0
    address = parse_url(settings.bus.url, settings.bus)
    consumer = TopicConsumer(address, group_of(address, "store"), 20)
    await consumer.commit({0: (5, "1-0")})
    assert await consumer.committed([0]) == {0: (5, "1-0")}
    await consumer.close()
    findings = await inspect(settings, SystemClock())
    assert "topic" in {each.check for each in findings if each.severity == "ok"}


async def test_a_wrong_password_is_an_error_that_names_the_setting(
    broker: Broker, production: Settings
) -> None:
    await create(broker, production)
    wrong = broker.settings(production).replace(bus={"password": "wrong", "timeout": 5})
    with pytest.raises(BackendError, match=r"uthentication.*; check bus.options, bus.password"):
        await connect(wrong, SystemClock())
    with pytest.raises(BackendError, match=r"bus\.password"):
        await migrate(wrong)


async def test_an_unknown_ca_is_an_error_that_names_the_setting(
    broker: Broker, production: Settings, tmp_path: Path
) -> None:
    other = broker._replace(ca=Authority(tmp_path).file)
    settings = other.settings(production).replace(bus={"timeout": 5})
    with pytest.raises(BackendError, match=r"certificate verify failed.*; check bus.options"):
        await connect(settings, SystemClock())


async def test_missing_rights_are_an_error_that_names_them(
    broker: Broker, production: Settings
) -> None:
    await migrate(broker.settings(production, _ADMIN, "PLAIN"))
    with pytest.raises(BackendError, match=r"Topic authorization failed; check .* the ACLs"):
        await connect(broker.settings(production), SystemClock())
