"""Three brokers of Apache Kafka in KRaft mode, each also a controller, from Maven's packages."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from engines.downloads import jars
from tests.servers import (
    POLL_SECONDS,
    READY_WITHIN_SECONDS,
    Machine,
    Server,
    machine_in_a_folder,
    quiet_port,
)

BROKERS = 3
_CLUSTER_ID = "aGVhZHdhdGVyLXRlc3RzMDA"
# Small heaps: the brokers share a machine with everything that is tested on them.
_JAVA = ("java", "-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOG = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


@contextmanager
def kafka_brokers(
    count: int = BROKERS,
    *,
    listener: str = "PLAINTEXT",
    properties: Mapping[str, str] = MappingProxyType({}),
    formatting: Sequence[str] = (),
    client: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[list[Machine]]:
    """Yield running brokers, which can be killed and started again.

    Args:
        count: how many there are.
        listener: protocol of the port for clients.
        properties: further ones of each broker.
        formatting: options of the tool that prepares their storage.
        client: settings of librdkafka with which they are asked whether they are ready.
    """
    ports = [(quiet_port(), quiet_port()) for _ in range(count)]
    voters = ",".join(f"{n}@127.0.0.1:{control}" for n, (_, control) in enumerate(ports, 1))
    classes = ":".join(map(str, jars("kafka")))
    with ExitStack() as stack:
        machines: list[Machine] = []
        # All are started before the first is ready: a majority of them elects the controller.
        for number, (port, control) in enumerate(ports, 1):
            values = {
                "process.roles": "broker,controller",
                "node.id": str(number),
                "controller.quorum.voters": voters,
                "listeners": f"{listener}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}",
                "advertised.listeners": f"{listener}://127.0.0.1:{port}",
                "controller.listener.names": "CONTROLLER",
                "inter.broker.listener.name": listener,
                "offsets.topic.replication.factor": str(count),
                "offsets.topic.num.partitions": "3",
                "transaction.state.log.replication.factor": str(count),
                "auto.create.topics.enable": "false",
                "min.insync.replicas": str(max(1, count - 1)),
                "broker.session.timeout.ms": "3000",
                "broker.heartbeat.interval.ms": "500",
                "group.initial.rebalance.delay.ms": "0",
                **properties,
            }
            made = partial(_server, classes, port, values, formatting)
            machines.append(stack.enter_context(machine_in_a_folder("kafka", made)))
        wait_until_ready(machines, client)
        yield machines


def url_of(brokers: Sequence[Machine], topic: str) -> str:
    """Return the URL of a topic."""
    return f"kafka://{','.join(f'127.0.0.1:{each.port}' for each in brokers)}/{topic}"


def _server(
    classes: str,
    port: int,
    properties: Mapping[str, str],
    formatting: Sequence[str],
    folder: Path,
) -> Server:
    """Write the properties of a broker, format its storage and return its command."""
    file, data = folder / "server.properties", folder / "data"
    values = {**properties, "log.dirs": str(data)}
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    java = shutil.which("java")
    if java is None:
        raise FileNotFoundError("`make check-engines` needs java, which is not installed")
    command = (java, *_JAVA[1:], _LOG, "-cp", classes)
    tool = (*command, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(file))
    subprocess.run([*tool, *formatting], check=True, stdout=subprocess.DEVNULL)
    owner = folder.stat()
    for path in (file, data, *data.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid)
    return Server(
        name="Kafka",
        port=port,
        command=(*command, "kafka.Kafka", str(file)),
        is_ready=lambda: True,
        stop_signal=signal.SIGKILL,
    )


def wait_until_ready(
    machines: Sequence[Machine], client: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Wait until all brokers have joined."""
    admin = AdminClient(
        {
            **client,
            "bootstrap.servers": ",".join(f"127.0.0.1:{each.port}" for each in machines),
            "log_level": 2,
        }
    )
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while time.monotonic() < deadline:
        with suppress(KafkaException):
            if len(admin.list_topics(timeout=1).brokers) == len(machines):
                return
        time.sleep(POLL_SECONDS)
    raise TimeoutError(f"the brokers did not start; see {machines[0].log}")
