"""The command `plan`: how many processes, and how much memory and disk a load needs."""

import math
import tomllib
from datetime import date, timedelta
from functools import cache
from importlib.resources import files
from typing import Annotated

import msgspec
import typer

from headwater.cli.commands import CommandCall, Commands
from headwater.cli.output import print_table
from headwater.core.durations import to_age
from headwater.settings.groups import IngestSettings
from headwater.settings.schema import Settings

app = Commands()
# A process that is busy for more of its time has long queues at the peaks of a day.
BUSY = 0.5
# So that partitions can be shared evenly, and more workers be added.
_PARTITIONS_PER_WORKER = 4
_MOST_PARTITIONS = 1_024
_MICROSECONDS = 1_000_000
# The JSON text of a number, as windows contribute.
_NUMBER_BYTES = 10


class RedisSizes(msgspec.Struct, frozen=True):
    fixed: int
    entity: float
    value: float
    value_byte: float
    remembered_event: float
    window: float


class PostgresSizes(msgspec.Struct, frozen=True):
    value: float
    value_byte: float
    event: float
    payload_byte: float
    series: float
    values_per_second: float


class LakeSizes(msgspec.Struct, frozen=True):
    value: float
    value_byte: float
    event: float
    payload_byte: float


class WorkerTimes(msgspec.Struct, frozen=True):
    event: float
    value: float
    window: float


class ApiRates(msgspec.Struct, frozen=True):
    events_per_second: float


class Measured(msgspec.Struct, frozen=True):
    """Bytes of stored data, and times of work, as measured on a day."""

    measured: date
    redis: RedisSizes
    postgres: PostgresSizes
    lake: LakeSizes
    worker: WorkerTimes
    api: ApiRates


@cache
def measured() -> Measured:
    """Return the numbers of ``sizes.toml``."""
    text = files(__package__).joinpath("sizes.toml").read_text()
    return msgspec.convert(tomllib.loads(text), Measured)


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What a store has to carry; every event changes some values of one entity."""

    events_per_second: float
    entities: int
    features: int
    retention: timedelta
    values_per_event: int
    value_bytes: int
    payload_bytes: int
    windows: int

    @property
    def events(self) -> float:
        """Stored events."""
        return self.events_per_second * self.retention.total_seconds()

    @property
    def remembered_events(self) -> float:
        """Events whose ids are remembered."""
        ingest = IngestSettings()
        window = min(ingest.dedup_window, self.retention).total_seconds()
        return min(self.events_per_second * window, ingest.dedup_limit)


class Need(msgspec.Struct, frozen=True):
    """An amount, and the parts of which it is the sum or the reason."""

    amount: int
    parts: dict[str, int]


class SizePlan(msgspec.Struct, frozen=True):
    """What a load needs."""

    partitions: int
    worker_processes: int
    api_processes: int
    postgres_cores: int
    redis_bytes: Need
    postgres_bytes: Need
    lake_bytes: Need
    measured: date


def plan_for(load: Load) -> SizePlan:
    """Return what a load needs, with processes busy for half of their time."""
    sizes = measured()
    workers = _processes(worker_cores(load, sizes.worker))
    rows_per_event = load.values_per_event + load.windows
    written = load.events_per_second * rows_per_event
    return SizePlan(
        partitions=_partitions(workers),
        worker_processes=workers,
        api_processes=_processes(load.events_per_second / sizes.api.events_per_second),
        postgres_cores=_processes(written / sizes.postgres.values_per_second),
        redis_bytes=redis_need(load, sizes.redis),
        postgres_bytes=postgres_need(load, sizes.postgres),
        lake_bytes=lake_need(load, sizes.lake),
        measured=sizes.measured,
    )


def worker_cores(load: Load, times: WorkerTimes) -> float:
    """Return how many cores workers use."""
    micros = times.event + times.value * load.values_per_event + times.window * load.windows
    return load.events_per_second * micros / _MICROSECONDS


def redis_need(load: Load, sizes: RedisSizes) -> Need:
    """Return the memory of Redis for the current values and for what recognises duplicates."""
    value = sizes.value + sizes.value_byte * load.value_bytes
    return _need(
        values=load.entities * (sizes.entity + load.features * value),
        windows=load.entities * load.windows * sizes.window,
        remembered_events=load.remembered_events * sizes.remembered_event,
        fixed=sizes.fixed,
    )


def postgres_need(load: Load, sizes: PostgresSizes) -> Need:
    """Return the disk of Postgres for history and events, with their indexes."""
    series = load.entities * (load.features + load.windows) * sizes.series
    return _need(history=_values(load, sizes) + series, events=_events(load, sizes))


def lake_need(load: Load, sizes: LakeSizes) -> Need:
    """Return the size of a lake's tables, which have history and events in place of Postgres."""
    return _need(history=_values(load, sizes), events=_events(load, sizes))


def _values(load: Load, sizes: PostgresSizes | LakeSizes) -> float:
    """Return the bytes of all past values; a window keeps one contribution of each event."""
    feature, window = (
        sizes.value + sizes.value_byte * length for length in (load.value_bytes, _NUMBER_BYTES)
    )
    return load.events * (load.values_per_event * feature + load.windows * window)


def _events(load: Load, sizes: PostgresSizes | LakeSizes) -> float:
    return load.events * (sizes.event + sizes.payload_byte * load.payload_bytes)


def _need(**parts: float) -> Need:
    rounded = {name: round(part) for name, part in parts.items()}
    return Need(sum(rounded.values()), rounded)


def _processes(cores: float) -> int:
    return max(1, math.ceil(cores / BUSY))


def _partitions(workers: int) -> int:
    """Return a power of two that is enough for the workers, or the default."""
    needed = 1 << (workers * _PARTITIONS_PER_WORKER - 1).bit_length()
    return min(max(Settings().partitions, needed), _MOST_PARTITIONS)


@app.command()
def plan(
    call: CommandCall,
    *,
    events_per_second: Annotated[float, typer.Option(min=0.0)],
    entities: Annotated[int, typer.Option(min=1)],
    features: Annotated[int, typer.Option(min=1)],
    retention: str = "1y",
    values_per_event: Annotated[int | None, typer.Option(min=0)] = None,
    value_bytes: Annotated[int, typer.Option(min=1)] = 10,
    payload_bytes: Annotated[int, typer.Option(min=2)] = 200,
    windows: Annotated[int, typer.Option(min=0)] = 0,
) -> None:
    """Estimate processes, memory and disk for a load, without a store.

    Args:
        events_per_second N: Events in a second: for disk on average, for processes at the peak.
        entities N: Entities with values.
        features N: Features of an entity, without those with a window.
        retention AGE: How long history and events are kept, such as 30d, 8w or 2y.
        values_per_event N: Values that an event changes. Default: all features.
        value_bytes N: Bytes of a value as JSON.
        payload_bytes N: Bytes of an event's payload as JSON.
        windows N: Features with windows, each of three windows with four aggregates.
    """
    load = Load(
        events_per_second=events_per_second,
        entities=entities,
        features=features,
        retention=to_age(retention),
        values_per_event=features if values_per_event is None else values_per_event,
        value_bytes=value_bytes,
        payload_bytes=payload_bytes,
        windows=windows,
    )
    needs = plan_for(load)
    call.show(
        needs,
        lambda: print_table(("part", "needs", "because"), _rows(load, needs)),
        f"Measured on {needs.measured} with one kind of machine; processes are busy for half of "
        "their time. Run a part of your load on your machines before you rely on it.",
    )


def _rows(load: Load, needs: SizePlan) -> list[tuple[object, ...]]:
    written = load.events_per_second * (load.values_per_event + load.windows)
    lake = f"{_parts(needs.lake_bytes)}, in place of those in Postgres"
    return [
        ("partitions", needs.partitions, f"{_PARTITIONS_PER_WORKER} for each worker, or more"),
        ("worker processes", needs.worker_processes, f"{load.events_per_second:,.0f} events/s"),
        ("API processes", needs.api_processes, "if every event is a request"),
        ("Redis memory", bytes_text(needs.redis_bytes.amount), _parts(needs.redis_bytes)),
        ("Postgres cores", needs.postgres_cores, f"{written:,.0f} values/s"),
        ("Postgres disk", bytes_text(needs.postgres_bytes.amount), _parts(needs.postgres_bytes)),
        ("lake", bytes_text(needs.lake_bytes.amount), lake),
    ]


def _parts(need: Need) -> str:
    parts = [(name, part) for name, part in need.parts.items() if part and name != "fixed"]
    return ", ".join(f"{name.replace('_', ' ')} {bytes_text(part)}" for name, part in parts)


def bytes_text(count: int) -> str:
    """Return a number of bytes for people: ``640 kB``, ``2.1 GB``."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 1_000:
            return f"{amount:.3g} {unit}"
        amount /= 1_000
    return f"{amount:,.0f} PB"
