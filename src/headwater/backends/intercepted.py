"""Ports whose calls go through the interceptors of a store; their other methods are unchanged."""

from __future__ import annotations

from msgspec.structs import replace

from headwater.declarations.interceptors import Interceptor
from headwater.ports import Backends, Bus, OfflineStore, OnlineStore


def intercepted(backends: Backends, interceptors: Interceptor) -> Backends:
    """Return the same backends, behind the interceptors."""
    return replace(
        backends,
        bus=InterceptedBus(backends.bus, interceptors),
        online=InterceptedOnlineStore(backends.online, interceptors),
        offline=InterceptedOfflineStore(backends.offline, interceptors),
    )


class InterceptedBus:
    """A bus behind interceptors."""

    def __init__(self, inner: Bus, around: Interceptor) -> None:
        self.partitions = inner.partitions
        self.publish, self.commit = around.publish(inner.publish), around.commit(inner.commit)
        self.publish_ticks = around.call("bus.publish_ticks", inner.publish_ticks)
        self.read = around.call("bus.read", inner.read)
        self.attempt, self.wait = inner.attempt, inner.wait
        self.handled, self.lag, self.backlog = inner.handled, inner.lag, inner.backlog
        self.memory = inner.memory


class InterceptedOnlineStore:
    """An online store behind interceptors."""

    def __init__(self, inner: OnlineStore, around: Interceptor) -> None:
        self.get = around.call("online.get", inner.get)
        self.get_packed = around.call("online.get_packed", inner.get_packed)
        self.get_with_waiting = around.call("online.get_with_waiting", inner.get_with_waiting)
        self.get_state = around.call("online.get_state", inner.get_state)
        self.put, self.restore, self.entity_ids = inner.put, inner.restore, inner.entity_ids
        self.count, self.drop, self.forget = inner.count, inner.drop, inner.forget
        self.replace = inner.replace


class InterceptedOfflineStore:
    """An offline store behind interceptors."""

    def __init__(self, inner: OfflineStore, around: Interceptor) -> None:
        self.as_of = around.call("offline.as_of", inner.as_of)
        self.latest = around.call("offline.latest", inner.latest)
        self.rows = around.call("offline.rows", inner.rows)
        self.append, self.read_frame = inner.append, inner.read_frame
        self.write_series = inner.write_series
        self.export_history, self.export_events = inner.export_history, inner.export_events
        self.events_after, self.prune, self.drop = inner.events_after, inner.prune, inner.drop
        self.forget, self.query, self.prepare = inner.forget, inner.query, inner.prepare
        self.events_of, self.maintain = inner.events_of, inner.maintain
