"""The Iceberg tables of a lake: their columns, their snapshots, and one change at a time.

Files are written first and become part of a table by a commit, which names the snapshot that it was
made from. A commit from an older snapshot is refused and never repeated by the library: with its
automatic retries, two writers that move the same rows would both succeed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NamedTuple

from pyiceberg.catalog import Catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update.snapshot import ExpireSnapshots, ManageSnapshots
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)

from headwater.backends.duckdb.segments import ALL_BUCKETS
from headwater.core.clock import to_micros
from headwater.errors import BackendError, InvalidInputError
from headwater.ports import LogKind, Mark, Segment

UPTO = "headwater.upto"
"""The property of tables and snapshots with the mark up to which the tail's rows are in it."""
PRUNED = "headwater.pruned"
"""The property of both with the moment up to which history may lack rows that were pruned."""

_TYPES: Mapping[str, PrimitiveType] = {
    "long": LongType(),
    "int": IntegerType(),
    "string": StringType(),
    "time": TimestamptzType(),
    "double": DoubleType(),
    "bool": BooleanType(),
}
# The numbers of the columns are those of the fields in the files: a column keeps its number.
_COLUMNS: Mapping[LogKind, str] = {
    "history": (
        "seq long, feature string, entity string, entity_id string, bucket int, kind string, "
        "as_of time, written_at time, cause string, value_int long, value_float double, "
        "value_bool bool, value_text string, value_time time, value_json string"
    ),
    "events": (
        "seq long, event_id string, event_type string, entity_id string, bucket int, "
        "partition int, timestamp time, received_at time, payload string, traceparent string"
    ),
}
_ORDER: Mapping[LogKind, Sequence[str]] = {
    "history": ("feature", "bucket", "entity_id", "as_of", "seq"),
    "events": ("seq",),
}
# Bounds help engines to skip files. Those of other columns would keep values of persons in files
# of metadata, which are not rewritten when an entity is forgotten.
_BOUNDED = ("seq", "bucket", "as_of", "written_at", "timestamp", "received_at")
_PROPERTIES = {
    "format-version": "2",
    # See above; and a lost answer must not be repeated either.
    "commit.retry.num-retries": "0",
    # A restored catalog names an earlier file, which has to be there.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "write.parquet.compression-codec": "zstd",
    # For engines that write, such as a compaction by Spark.
    "write.metadata.metrics.default": "none",
}
_ATTEMPTS = 5
_NAME = re.compile(r"-(\d{4})-(\d{4})-[^/]*\.parquet$")
OWN_NAME = re.compile(r"/data/(?:history|events)-\d{4}-\d{4}-[0-9a-f-]+\.parquet$")
"""The names of files that this store has written."""


class LakeConflictError(BackendError):
    """Another writer has changed a table since it was read."""


def schema_of(kind: LogKind) -> Schema:
    """Return the columns of a table."""
    columns = [column.split(" ") for column in _COLUMNS[kind].split(", ")]
    return Schema(
        *(
            NestedField(number, name, _TYPES[type_name], required=False)
            for number, (name, type_name) in enumerate(columns, 1)
        )
    )


def field_ids(kind: LogKind) -> str:
    """Return the numbers of the columns, as an option of DuckDB's COPY."""
    numbers = (f'"{field.name}": {field.field_id}' for field in schema_of(kind).fields)
    return f"{{{', '.join(numbers)}}}"


class LakeState(NamedTuple):
    """A table at one moment: its files, and the mark up to which the tail's rows are in them."""

    table: Table
    mark: Mark
    segments: Sequence[Segment]
    files: Mapping[str, DataFile]
    """Data files by the names of their segments."""
    pruned: datetime | None
    """The moment before which rows may have been pruned."""

    @property
    def snapshot_id(self) -> int | None:
        return self.table.metadata.current_snapshot_id


class LakeTable:
    """One log in an Iceberg table, whose files are below the address of the lake."""

    def __init__(self, catalog: Catalog, namespace: str, kind: LogKind, url: str) -> None:
        self.kind = kind
        self._catalog = catalog
        self._namespace = namespace
        self._url = url
        self._identifier = (namespace, kind)
        self._read: tuple[int, list[DataFile]] | None = None

    @property
    def location(self) -> str:
        return f"{self._url}/{self.kind}"

    def exists(self) -> bool:
        return bool(self._catalog.table_exists(self._identifier))

    def create(self) -> bool:
        """Create the table, unless it exists; return whether it was created."""
        with suppress(NamespaceAlreadyExistsError):
            self._catalog.create_namespace(self._namespace)
        schema = schema_of(self.kind)
        numbers = [schema.find_field(name).field_id for name in _ORDER[self.kind]]
        order = SortOrder(
            *(SortField(source_id=number, transform=IdentityTransform()) for number in numbers)
        )
        try:
            self._catalog.create_table(
                self._identifier,
                schema,
                location=self.location,
                sort_order=order,
                properties={
                    **_PROPERTIES,
                    "schema.name-mapping.default": schema.name_mapping.model_dump_json(),
                },
            )
        except TableAlreadyExistsError:
            return False
        return True

    def load(self) -> Table:
        try:
            return self._catalog.load_table(self._identifier)
        except NoSuchTableError as error:
            raise BackendError(
                f"the catalog of the lake has no table {'.'.join(self._identifier)}; run "
                "`headwater lake init`"
            ) from error

    def state(self, snapshot_id: int | None = None) -> LakeState:
        """Return the table as it is now, or as it was in a snapshot."""
        for _ in range(_ATTEMPTS - 1):
            # The metadata of a snapshot may be deleted after it was found.
            with suppress(FileNotFoundError):
                return self._state(snapshot_id)
        return self._state(snapshot_id)

    def _state(self, snapshot_id: int | None) -> LakeState:
        table = self.load()
        if snapshot_id is None:
            snapshot = table.current_snapshot()
        else:
            snapshot = table.snapshot_by_id(snapshot_id)
            if snapshot is None:
                raise InvalidInputError(
                    f"the lake has no snapshot {snapshot_id} of {self.kind}: it has expired, or it "
                    "had rows that were erased since; read the present history, or raise "
                    "lake.snapshots for later ones"
                )
        files = (
            {}
            if snapshot is None
            else {
                file.file_path.removeprefix(f"{self._url}/"): file
                for file in self._files(table, snapshot)
            }
        )
        pruned = _property(table, snapshot, PRUNED)
        segments = [
            Segment(name, self.kind, file.record_count, _buckets(name))
            for name, file in sorted(files.items())
        ]
        return LakeState(
            *(table, _property(table, snapshot, UPTO), segments, files),
            datetime.fromisoformat(pruned) if pruned else None,
        )

    def _files(self, table: Table, snapshot: Snapshot) -> list[DataFile]:
        # Another thread may read another snapshot meanwhile.
        read = self._read
        if read is None or read[0] != snapshot.snapshot_id:
            self._read = read = snapshot.snapshot_id, data_files(table, snapshot)
        return read[1]

    def commit(
        self,
        base: LakeState,
        *,
        added: Sequence[DataFile] = (),
        removed: Sequence[str] = (),
        mark: Mark | None = None,
        pruned: datetime | None = None,
    ) -> LakeState:
        """Add and remove files as one change; return the new state.

        Without a mark, and the moment up to which history was pruned, those of the base stay.

        Raise LakeConflictError if the table is not in the base's state any more.
        """
        properties = {UPTO: base.mark if mark is None else mark}
        if latest := max(filter(None, (base.pruned, pruned)), default=None):
            properties[PRUNED] = latest.isoformat()
        # Not the base's own object: the library changes it.
        table = self._catalog.load_table(self._identifier)
        if table.metadata.current_snapshot_id != base.snapshot_id:
            raise self._conflict(added)
        transaction = table.transaction()
        update = transaction.update_snapshot(snapshot_properties=properties)
        producer = update.overwrite() if removed else update.fast_append()
        with producer:
            for file in added:
                producer.append_data_file(file)
            for name in removed:
                producer.delete_data_file(base.files[name])
        if not properties.items() <= table.properties.items():
            transaction.set_properties(properties)
        try:
            transaction.commit_transaction()
        except Exception as error:
            if self.load().snapshot_by_id(producer.snapshot_id) is not None:
                return self.state()  # the answer was lost
            if isinstance(error, CommitFailedException):
                raise self._conflict(added) from error
            raise
        return self.state()

    def _conflict(self, added: Sequence[DataFile]) -> LakeConflictError:
        """Delete the files of a refused change, which may have rows that were erased since."""
        for file in added:
            with suppress(FileNotFoundError):
                self.load().io.delete(file.file_path)
        return LakeConflictError(
            f"another writer has changed the table {self.kind} of the lake meanwhile; this change "
            "was not made, and is made by the next maintenance or call"
        )

    def data_file(self, name: str, written: tuple[Any, ...]) -> DataFile:
        """Return the entry of a file from the statistics that DuckDB's COPY returned."""
        _, count, size, _, statistics, _ = written
        lower, upper = {}, {}
        for field in schema_of(self.kind).fields:
            known = statistics.get(f'"{field.name}"', {})
            if field.name in _BOUNDED and "min" in known:
                lower[field.field_id] = _bound(field, known["min"])
                upper[field.field_id] = _bound(field, known["max"])
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._url}/{name}",
            file_format=FileFormat.PARQUET,
            partition=Record(),
            record_count=count,
            file_size_in_bytes=size,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds=lower,
            upper_bounds=upper,
            key_metadata=None,
            split_offsets=None,
            equality_ids=None,
            sort_order_id=1,
            spec_id=0,
        )


def _property(table: Table, snapshot: Snapshot | None, name: str) -> str:
    """Return a property of a snapshot; one of another writer has that of the table."""
    summary = None if snapshot is None else snapshot.summary
    if summary is None or summary[UPTO] is None:
        return table.properties.get(name, "")
    return summary[name] or ""


def _buckets(name: str) -> tuple[int, int]:
    """Return the buckets in the name of a file; a file of another writer may have all."""
    match = _NAME.search(name)
    return ALL_BUCKETS if match is None else (int(match[1]), int(match[2]))


def _bound(field: NestedField, text: str) -> bytes:
    kind = field.field_type
    assert isinstance(kind, PrimitiveType)
    is_time = isinstance(kind, TimestamptzType)
    return to_bytes(kind, to_micros(datetime.fromisoformat(text)) if is_time else int(text))


def data_files(table: Table, snapshot: Snapshot) -> list[DataFile]:
    """Return the data files of a snapshot."""
    files = []
    for manifest in snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            if entry.data_file.content != DataFileContent.DATA:
                raise BackendError(
                    f"another engine has deleted rows of the table {'.'.join(table.name())} by a "
                    "delete file, which this reader does not know; rewrite its data files there, "
                    "such as by Spark's rewrite_data_files with delete-file-threshold 1"
                )
            files.append(entry.data_file)
    return files


def refs_of(table: Table) -> set[str]:
    """Return the names of tags and branches, which other engines have made."""
    return {name for name in table.metadata.refs if name != MAIN_BRANCH}


def expire(table: Table, ids: Iterable[int], refs: Collection[str] = ()) -> set[str]:
    """Remove tags and branches, and snapshots that no other one has; return the files of these."""
    metadata = table.metadata
    kept = {ref.snapshot_id for name, ref in metadata.refs.items() if name not in refs}
    expired = [number for number in ids if number not in kept]
    if not expired:
        return set()
    old = [s for s in metadata.snapshots if s.snapshot_id in expired]
    remaining = [s for s in metadata.snapshots if s.snapshot_id not in expired]
    files = _all_files(table, old) - _all_files(table, remaining)
    try:
        with table.transaction() as transaction:
            changed = ManageSnapshots(transaction)
            for name in refs:
                changed.remove_tag(name)
            changed.commit()
            ExpireSnapshots(transaction).by_ids(expired).commit()
    except CommitFailedException as error:
        raise LakeConflictError(
            "another writer has changed a table of the lake while its snapshots were expired; the "
            "next maintenance or call expires them"
        ) from error
    return files


def _all_files(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    files: set[str] = set()
    manifests: set[str] = set()
    for snapshot in snapshots:
        files.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in manifests:
                manifests.add(manifest.manifest_path)
                # Also a snapshot that has removed a file has an entry of it.
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                files |= {entry.data_file.file_path for entry in entries}
    return files | manifests


def referenced(table: Table) -> set[str]:
    """Return all files of all snapshots."""
    return _all_files(table, table.metadata.snapshots)
