"""The address of a topic, read from a URL, and the settings of librdkafka."""

from __future__ import annotations

import re
from typing import NamedTuple

from headwater.errors import ConfigError
from headwater.settings.kinds import options_of
from headwater.settings.servers import BusSettings

_URL = re.compile(r"kafka://([^/?#@]+)/([A-Za-z0-9._-]{1,249})")
_OURS = {"bootstrap.servers", "group.id", "enable.auto.commit", "acks", "enable.idempotence"}
"""Settings of librdkafka on which it depends that no event is lost."""


class TopicAddress(NamedTuple):
    """A topic, and how its brokers are reached."""

    brokers: str
    topic: str
    options: dict[str, str]

    def __str__(self) -> str:
        return f"topic {self.topic!r} at {self.brokers}"


def parse_url(url: str, settings: BusSettings, where: str = "bus.url") -> TopicAddress:
    """Return the topic of ``kafka://host:9092,host:9092/topic``."""
    if (parts := _URL.fullmatch(url)) is None:
        raise ConfigError(
            f"{where} names brokers and a topic, such as kafka://a:9092,b:9092/events; users and "
            "passwords are set by bus.options and bus.password"
        )
    options = options_of(settings.options)
    if reserved := sorted(options.keys() & _OURS):
        raise ConfigError(
            f"bus.options sets {reserved[0]}, which Headwater sets itself; leave it out"
        )
    if settings.password:
        options["sasl.password"] = settings.password
    return TopicAddress(parts[1], parts[2], options)
