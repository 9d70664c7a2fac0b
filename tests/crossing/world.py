"""A store that programs use, its model, and what was observed of it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from headwater import Context, FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.errors import EventConflictError, InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.crossing.features import OF_EVENTS, OF_TIME, Declared, declare, described, in_euros
from tests.crossing.model import KEPT_FRESH, Erasure, Model
from tests.engine.support import query

USERS = ("u1", "u2")

Extent = Literal["events", "time", "exported", "everything"]
"""What a check compares: stored values of events or of time, those of an export, or all values,
causes and audits."""

Part = Literal["history", "events", "records"]
"""What is pruned."""

_ROWS_OF = """
SELECT (SELECT count(*) FROM feature_history WHERE entity_id = '{0}')
    + (SELECT count(*) FROM events WHERE entity_id = '{0}')
"""


class Served(NamedTuple):
    """The values that were read of a user at a moment."""

    user_id: str
    at: datetime
    declared: Declared
    values: dict[str, Any]


class Found(NamedTuple):
    """The notes that a search found at a moment."""

    at: datetime
    notes: list[str]


class Assembled(NamedTuple):
    """A recorded context."""

    name: str
    user_id: str
    at: datetime
    declared: Declared
    context_id: str
    content: str
    record_hash: str


class World:
    """A store, its model and everything that was observed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # Behind the clock of Redis, which dates the documents of handlers if it is the earlier one.
        self.clock = ManualClock(datetime.now(UTC) - timedelta(days=1))
        self.model = Model(Declared())
        self.served: list[Served] = []
        self.found: list[Found] = []
        self.assembled: list[Assembled] = []
        self.erased: list[Assembled] = []
        """The contexts of users that were erased since."""
        self.exported = Path(settings.home).with_name("exported")
        self.store = self._open()

    @property
    def declared(self) -> Declared:
        return self.model.declared

    @property
    def total(self) -> str:
        """The name that ``total`` has now."""
        return self.declared.total

    def _open(self) -> FeatureStore:
        store = FeatureStore(settings=self.settings, clock=self.clock)
        self.contexts = declare(store, self.declared, self.model.directory)
        return store

    async def deploy(self, declared: Declared, *, rename: str = "") -> None:
        """Start another process with this features file in place of the present one.

        A version that a backfill has made is not run by other code: it is given up before, or is
        not kept fresh any more.
        """
        if self.model.unserved is not None and declared != self.declared:
            await self.store.backfills.cancel(self.total)
            self.model.cancel()
        if self.model.has_other(declared):
            self.wait(KEPT_FRESH.seconds + 1)
        if rename:
            await self.store.catalog.rename(rename, declared.total)
        await self.store.close()
        self.model.declared = declared
        self.store = self._open()
        await self.drain()

    async def drain(self) -> None:
        await self.store.drain()
        self.model.drain(self.clock.now(), self.store_time())

    def store_time(self) -> datetime:
        """Return the time at which the store dates what it receives; servers use their own."""
        return datetime.now(UTC) if self.settings.redis.url else self.clock.now()

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    async def publish(
        self,
        event_type: str,
        user_id: str,
        payload: dict[str, Any],
        *,
        at: datetime,
        event_id: str | None = None,
    ) -> bool:
        """Publish an event; return False if it is of an erased user, and refused."""
        publishing = self.store.publish(
            event_type, user_id, payload, timestamp=at, event_id=event_id
        )
        if not self.model.admits(user_id, at):
            with pytest.raises(EventConflictError, match="erased"):
                await publishing
            return False
        await publishing
        return True

    async def forget(self, user_id: str, *, may_return: bool) -> None:
        """Erase a user; nothing that was observed of it may be found again."""
        await self.store.admin.forget("User", user_id, reason="a test", allow_return=may_return)
        shutil.rmtree(self.exported, ignore_errors=True)  # as the user of the store has to
        self.model.forget(user_id, Erasure(self.clock.now(), may_return))
        self.wait(1)
        await self.drain()
        self.served = [each for each in self.served if each.user_id != user_id]
        self.erased += [each for each in self.assembled if each.user_id == user_id]
        self.assembled = [each for each in self.assembled if each.user_id != user_id]
        assert await query(self.store, _ROWS_OF.format(user_id)) == [(0,)]
        assert await self.store.dead_letters.list(entity_id=user_id) == []
        for text in await self._texts():
            assert user_id not in text

    async def _texts(self) -> list[str]:
        """Return every value that a record or an outcome discloses."""
        page = await self.store.list_contexts(limit=1_000)
        records = [await self.store.get_record(each.context_id) for each in page.contexts]
        texts = [repr(each.value) for record in records for each in record.disclosures]
        for each in page.contexts:
            texts += [
                repr(outcome.response or outcome.score)
                for outcome in await self.store.records.outcomes(each.context_id)
            ]
        return texts

    async def prune(self, part: Part, seconds: int) -> None:
        """Remove what is older than some seconds, and half a second: nothing is of that moment."""
        age = timedelta(seconds=seconds + 0.5)
        ages: dict[str, Any] = {part: age}
        await self.store.admin.prune(**ages)
        before = self.clock.now() - age
        if part == "events":
            self.model.prune_events(before)
        if part == "records":
            for known in (self.assembled, self.erased):
                known[:] = [each for each in known if each.at >= before]

    # What is observed after each step

    async def observe(self) -> None:
        """Read everything as applications do; the model must expect it."""
        self.wait(1)  # a write of this very moment would count as known
        names, now = self.declared.all_names(), self.clock.now()
        for user_id in USERS:
            (row,) = await self.store.get_feature_values(list(names.values()), [user_id])
            values = {key: row[name].value for key, name in names.items()}
            expected = self.model.expected(user_id, now)
            for key in values.keys() & expected.keys():
                assert values[key] == expected[key], f"{key} of {user_id}"
            if not self.model.is_erased(user_id):
                self.served.append(Served(user_id, now, self.declared, values))
        notes = await self._search()
        assert notes == sorted(text.value for text in self.model.documents.values())
        self.found.append(Found(now, notes))
        self.wait(1)

    async def _search(self, as_of: datetime | None = None) -> list[str]:
        found = await self.store.search("notes", "note", top_k=9, mode="text", as_of=as_of)
        return sorted(chunk.text for chunk in found)

    async def assemble(self, user_id: str) -> None:
        """Record contexts, whose texts must have the values that a reader gets."""
        self.wait(1)
        await self._assemble_card(user_id)
        if self.model.is_erased(user_id):
            return  # nothing of it is stored
        now, names = self.clock.now(), self.declared.names()
        context = await self.contexts.summary(user_id)
        (row,) = await self.store.get_feature_values(list(names.values()), [user_id])
        values = {key: row[name].value for key, name in names.items()}
        items = described(values, await self._search())
        assert context.content == "\n\n".join(items)
        await context.add_outcome(answer=f"answer to {user_id}", model="gpt-4o")
        self._keep(user_id, now, context)
        self.wait(1)

    async def _assemble_card(self, user_id: str) -> None:
        """Record a context with an SLA and a cached search."""
        now = self.clock.now()
        card = await self.contexts.card(user_id)
        assert card.content == self.model.look_up(user_id, now)
        violations = {(each.name, each.reason) for each in card.freshness_violations}
        assert violations == self.model.violations(user_id, now)
        assert card.freshness_status == ("degraded" if violations else "guaranteed")
        await card.add_outcome(score="helpful", text=f"said by {user_id}")
        self._keep(user_id, now, card)

    def _keep(self, user_id: str, now: datetime, made: Context) -> None:
        self.assembled.append(
            Assembled(
                made.name,
                user_id,
                now,
                self.declared,
                made.context_id,
                made.content,
                made.record_hash or "",
            )
        )

    # What must stay true of everything that was observed

    async def check(self, extent: Extent) -> None:
        """Compare all that was served with what history, records and audits say."""
        horizon = await self._horizon()
        names = self.declared.all_names()
        known = {"events": OF_EVENTS, "time": OF_TIME, "exported": (*OF_EVENTS, *OF_TIME)}
        keys = sorted(names.keys() & {*known.get(extent, names)})
        exported = self.exported if extent == "exported" else None
        if exported is not None:
            await self.store.history.export(exported)
        await self._check_known(keys, horizon, exported)
        for user_id in USERS:
            await self._check_found(user_id)
        for record in self.assembled:
            await self._check_verified(record)
        summaries = [each for each in self.assembled if each.name == "summary"]
        for record in _some(summaries) if extent == "everything" else summaries[:1]:
            await self._check_replay(record, horizon)
        for found in self.found[-2:]:
            assert await self._search(found.at) == found.notes, f"notes as of {found.at}"
        if extent == "everything":
            for record in summaries[-1:]:
                await self._check_causes(record, horizon)
            await self._check_audit()

    async def _check_found(self, user_id: str) -> None:
        """Compare the contexts that are found by a user with those that have read it."""
        page = await self.store.records.find(entity="User", entity_id=user_id)
        known = [each for each in (*self.assembled, *self.erased) if each.user_id == user_id]
        assert {each.context_id for each in page.contexts} == {each.context_id for each in known}
        for each in self.erased:
            assert (await self.store.replay(each.context_id, "show")).content is None
            assert (await self.store.records.verify(each.context_id)).ok

    async def _check_verified(self, record: Assembled) -> None:
        (outcome,) = await self.store.records.outcomes(record.context_id)
        is_erased = self.model.is_erased(record.user_id)
        assert is_erased or record.user_id in repr(outcome.response or outcome.score)
        report = await self.store.records.verify(record.context_id, expect=record.record_hash)
        assert report.ok, report

    async def _check_audit(self) -> None:
        report = await self.store.admin.audit()
        assert report.differences == []
        assert report.served.differences == []

    async def _horizon(self) -> datetime | None:
        engine = await runtime_of(self.store).open()
        return (await engine.backends.catalog.load()).pruned.history

    async def _check_known(
        self, keys: Sequence[str], horizon: datetime | None, exported: Path | None
    ) -> None:
        pruned = [each for each in self.served if horizon is not None and each.at < horizon]
        if pruned:
            with pytest.raises(InvalidInputError, match="pruned"):
                await self._known(pruned[-1:], [self.total])
        kept = self.served[len(pruned) :]
        names = self.declared.all_names()
        found = await self._known(kept, [names[key] for key in keys], exported)
        for row, served in zip(found, kept, strict=True):
            for key in served.values.keys() & {*keys}:
                value = row[names[key]]
                expected = _as_of_now(key, served.values[key], served.declared, self.declared)
                assert value == expected, (
                    f"{key} of {served.user_id} was served as {expected!r} at {served.at}, and is"
                    f" known as {value!r}"
                )

    async def _known(
        self, served: Sequence[Served], names: Sequence[str], exported: Path | None = None
    ) -> list[dict[str, Any]]:
        frame = [{"user_id": each.user_id, "timestamp": each.at} for each in served]
        rows: list[dict[str, Any]] = await self.store.get_historical_features(
            frame, names, known=True, exported=exported
        )
        return rows

    async def _check_replay(self, record: Assembled, horizon: datetime | None) -> None:
        if horizon is not None and record.at < horizon:
            with pytest.raises(InvalidInputError, match="pruned"):
                await self.store.replay(record.context_id, "as_of")
            return
        replay = await self.store.replay(record.context_id, "as_of")
        if record.declared.unit == self.declared.unit:
            assert replay.content == record.content, replay.fidelity
        else:
            assert replay.matches == (replay.content == record.content)

    async def _check_causes(self, record: Assembled, horizon: datetime | None) -> None:
        causes = await self.store.records.causes(record.context_id)
        explained = await self.store.records.explain(record.context_id)
        stored = {
            place for place, read in enumerate(explained.features) if read.written_at is not None
        }
        if causes.is_complete:
            assert stored == {each.read for each in causes.causes if each.input is None}
        else:
            assert horizon is not None


def _as_of_now(key: str, value: Any, then: Declared, now: Declared) -> Any:
    """Return a value as history gives it now: converted, if its type has changed."""
    if key == "price" and value is not None and then.unit != now.unit:
        return in_euros(value)
    return value


def _some(records: Sequence[Assembled]) -> list[Assembled]:
    places = {0, len(records) // 2, len(records) - 1} if records else set()
    return [records[place] for place in sorted(places)]
