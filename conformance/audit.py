"""Conformance tests of the ``AuditLog`` port."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from conformance.suite import START, Connect, Opened, Suite, after
from headwater.errors import InvalidInputError
from headwater.model.admin import AuditEntry
from headwater.model.values import new_id
from headwater.ports import AuditQuery

_END_OF_TIME = datetime.max.replace(tzinfo=UTC)


class AuditLogConformance(Suite):
    """Administrative actions, which can be added and never changed or removed."""

    async def test_an_appended_entry_is_durable(self, connect: Connect) -> None:
        first = await Opened.by(connect)
        stored = ended(entry(parameters={"ids": ["1", "ä\0"], "adopt": True}))
        await first.audit_log.append(stored)
        await first.lifecycle.close()
        assert await entries(await Opened.by(connect)) == [stored]

    async def test_appending_the_outcome_of_an_entry_changes_nothing_else(
        self, store: Opened, other: Opened
    ) -> None:
        begun = entry()
        await store.audit_log.append(begun)
        assert await entries(other) == [begun]
        done = ended(begun)
        await other.audit_log.append(msgspec.structs.replace(done, actor="eve", target="other"))
        assert await entries(store) == [done]

    async def test_the_first_outcome_is_kept(self, store: Opened, other: Opened) -> None:
        done = ended(entry())
        await store.audit_log.append(done)
        failed = msgspec.structs.replace(done, outcome="failed", error="KeyError")
        for again in (failed, done, entry(done.id)):
            await other.audit_log.append(again)
        assert await entries(store) == [done]

    async def test_entries_are_returned_newest_first_and_page_by_page(
        self, store: Opened, other: Opened
    ) -> None:
        stored = [entry(at=after(number // 2)) for number in range(7)]
        await asyncio.gather(*map(store.audit_log.append, stored))
        newest = sorted(stored, key=lambda each: (each.at, each.id), reverse=True)
        assert await entries(other) == newest
        page = await entries(other, limit=3)
        await store.audit_log.append(entry(at=after(9)))
        page += await entries(other, limit=3, cursor=page[-1].id)
        page += await entries(other, limit=3, cursor=page[-1].id)
        assert page == newest
        with pytest.raises(InvalidInputError, match="next_cursor of the previous page"):
            await entries(other, cursor="unknown")

    async def test_entries_match_all_filters(self, store: Opened) -> None:
        redrive, early, late = entry(), entry(actor="ci"), entry(at=after(5), actor="ci")
        drop = entry(action="indexes.drop", at=after(5))
        for each in (redrive, early, late, drop):
            await store.audit_log.append(each)
        assert await entries(store, actor="ci") == [late, early]
        assert await entries(store, action="indexes.drop") == [drop]
        assert await entries(store, action="indexes.drop", actor="ci") == []
        assert await entries(store, actor="ci", since=after(5)) == [late]
        assert await entries(store, actor="ci", before=after(5), since=START) == [early]
        assert await entries(store, action="a\0", actor="b") == []
        earliest = datetime.min.replace(tzinfo=UTC)
        assert len(await entries(store, since=earliest)) == 4
        assert await entries(store, since=_END_OF_TIME) == []

    async def test_retention_keeps_entries(self, store: Opened) -> None:
        await store.audit_log.append(entry())
        await store.offline.prune(history=_END_OF_TIME, events=_END_OF_TIME)
        await store.records.prune(_END_OF_TIME)
        assert len(await entries(store)) == 1


async def entries(store: Opened, **query: object) -> list[AuditEntry]:
    """Return the entries that match a query, without the later one of creating the store."""
    query.setdefault("before", after(60))
    return await store.audit_log.entries(msgspec.convert(query, AuditQuery))


def entry(
    entry_id: str | None = None,
    *,
    at: datetime = START,
    actor: str = "ada",
    action: str = "dead_letters.redrive",
    parameters: dict[str, object] | None = None,
) -> AuditEntry:
    """Return an entry of an action that has started."""
    return AuditEntry(
        id=entry_id or new_id(),
        at=at,
        actor=actor,
        action=action,
        target="clicks",
        parameters=parameters or {},
    )


def ended(begun: AuditEntry) -> AuditEntry:
    """Return the same entry after its action is done."""
    return msgspec.structs.replace(begun, outcome="done", finished_at=after(1))
