"""The verbs of a store by subject: recorded contexts, dead letters and administration."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from headwater.contexts.recorded import ContextPage, ContextQuery, check_not_replaying
from headwater.contexts.recorded.replay import Mode, Replay
from headwater.declarations.feature_handles import Feature, feature_name
from headwater.features.reconcile import AuditReport, Progress, RebuildReport, Reconciler
from headwater.ports import ConsumerLag, DeadLetter, Health
from headwater.records.diff import ContextDiff
from headwater.records.lineage import ContextTrace
from headwater.records.record import Record
from headwater.records.verify import VerificationReport
from headwater.store.runtime import Runtime
from headwater.store.sync import Blocking, blocking


class RecordVerbs:
    """``store.records``: search, verify, explain, replay and redact recorded contexts.

    ``ref`` is a context id, its first 8 or more characters, or a record hash.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def get(self, ref: str) -> Record:
        """Return the record of a context."""
        return await (await self._runtime.open()).evidence.record_of(ref)

    async def find(
        self,
        *,
        feature: str | Feature[Any] | None = None,
        entity: str | None = None,
        entity_id: str | int | None = None,
        chunk: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ContextPage:
        """Return the recorded contexts that used this feature, entity and chunk, newest first.

        Indirect use counts: the inputs of computed features, of searches and of inner contexts.
        ``entity`` names the kind of entity that ``entity_id`` belongs to.
        """
        evidence = (await self._runtime.open()).evidence
        name = None if feature is None else feature_name(feature)
        return await evidence.find(ContextQuery(name, entity, entity_id, chunk), limit, cursor)

    async def verify(
        self, ref: str, *, expect: str | None = None, signed: bool = False
    ) -> VerificationReport:
        """Check a stored record against its hashes and signature.

        ``expect`` is the record hash that was handed out with the answer. With ``signed``, a
        missing signature is a failure, as it is where ``signature_mode`` requires one.
        """
        return await (await self._runtime.open()).evidence.verify(ref, expect, signed=signed)

    async def explain(self, ref: str) -> ContextTrace:
        """Explain a context: which items were kept and why, ages, latencies, tokens and cost."""
        return await (await self._runtime.open()).evidence.explain(ref)

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """Replay a recorded context.

        ``show`` returns the stored text; ``reassemble`` fits the stored items again; ``as_of`` runs
        the function with the feature values of that time, ``live`` with those of now. The last two
        are not recorded, and a function that would write is refused.
        """
        return await (await self._runtime.open()).evidence.replay(ref, mode)

    async def diff(self, before: str, after: str) -> ContextDiff:
        """Return the differences between two recorded contexts."""
        return await (await self._runtime.open()).evidence.diff(before, after)

    async def redact(
        self,
        ref: str,
        *pointers: str,
        reason: str,
        by: str | None = None,
        everywhere: bool = False,
    ) -> Record:
        """Erase values of a record permanently, all or none; hash and signature stay valid.

        With ``everywhere``, also erase them in every other place of the record that discloses one
        of them, as a whole or inside a text.
        """
        check_not_replaying("redact")
        evidence = (await self._runtime.open()).evidence
        return await evidence.redact(ref, pointers, reason, by, everywhere=everywhere)


class DeadLetterVerbs:
    """``store.dead_letters``: events that could not be handled."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def list(
        self,
        *,
        ids: Collection[str] | None = None,
        feature: str | None = None,
        event_type: str | None = None,
        entity_id: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Return dead letters, oldest first, each with its error."""
        engine = await self._runtime.open()
        return await engine.backends.dead_letters.letters(
            ids=ids,
            feature=feature,
            event_type=event_type,
            entity_id=entity_id,
            since=since,
            before=before,
            limit=limit,
        )

    async def redrive(self, *ids: str) -> None:
        """Run dead letters again, each for the failed feature only; all or none."""
        check_not_replaying("redrive")
        engine = await self._runtime.open()
        await engine.backends.dead_letters.redrive(ids)

    async def discard(self, *ids: str) -> None:
        """Delete dead letters permanently; all or none."""
        check_not_replaying("discard")
        engine = await self._runtime.open()
        await engine.backends.dead_letters.discard(ids)


class AdminVerbs:
    """``store.admin``: health, lag, and the repair of online values from history."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def health(self) -> list[Health]:
        """Return the health of each part of the store."""
        return await (await self._runtime.open()).backends.lifecycle.health()

    async def lag(self) -> list[ConsumerLag]:
        """Return for each partition its worker, its waiting events and the age of the oldest."""
        return await (await self._runtime.open()).backends.bus.lag()

    async def rebuild(
        self, *, adopt: bool = False, progress: Progress | None = None
    ) -> RebuildReport:
        """Restore online values from history; newer ones stay, so workers may be running.

        The history of another store is refused unless ``adopt`` is true.
        """
        check_not_replaying("rebuild")
        engine = await self._runtime.open()
        async with engine.backends.lifecycle.restoring(adopt=adopt):
            return await (await self._repair()).rebuild(progress)

    async def audit(self, *, limit: int = 1_000, progress: Progress | None = None) -> AuditReport:
        """Compare online values with history; return at most ``limit`` differences."""
        return await (await self._repair()).audit(limit, progress)

    async def _repair(self) -> Reconciler:
        backends = (await self._runtime.open()).backends
        clock = self._runtime.clock
        return Reconciler(self._runtime.registry, backends.online, backends.offline, clock)


class SyncRecordVerbs(Blocking[RecordVerbs]):
    """``store.sync.records``."""

    get = blocking(RecordVerbs.get)
    find = blocking(RecordVerbs.find)
    verify = blocking(RecordVerbs.verify)
    explain = blocking(RecordVerbs.explain)
    replay = blocking(RecordVerbs.replay)
    diff = blocking(RecordVerbs.diff)
    redact = blocking(RecordVerbs.redact)


class SyncDeadLetterVerbs(Blocking[DeadLetterVerbs]):
    """``store.sync.dead_letters``."""

    list = blocking(DeadLetterVerbs.list)
    redrive = blocking(DeadLetterVerbs.redrive)
    discard = blocking(DeadLetterVerbs.discard)


class SyncAdminVerbs(Blocking[AdminVerbs]):
    """``store.sync.admin``."""

    health = blocking(AdminVerbs.health)
    lag = blocking(AdminVerbs.lag)
    rebuild = blocking(AdminVerbs.rebuild)
    audit = blocking(AdminVerbs.audit)
