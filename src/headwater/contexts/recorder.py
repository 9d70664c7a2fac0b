"""Sealing, signing and storing records, with keyed hashes by which they are found."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar

import msgspec

from headwater.backends.observed import count_erased
from headwater.core.logging import log
from headwater.errors import (
    BackendUnavailableError,
    ConfigError,
    ErasedMeanwhileError,
    HeadwaterError,
    RecordingError,
)
from headwater.features.services import Services
from headwater.model.values import EVERYTHING, Part
from headwater.ports import StoredRecord, is_storable
from headwater.records.core import Core
from headwater.records.record import Record, Sealed, encode_disclosures, encode_redactions
from headwater.records.redaction import redact
from headwater.records.sealing import seal
from headwater.records.signing import parse_keyring, sign
from headwater.settings.schema import Settings

S = TypeVar("S", bound=Sealed)
_KEY_BYTES = 16
_CACHED_KEYS = 8_192
_LONGEST_CACHED = 256
_MARK = "mark"
_ERASED = "an entity that it read was erased before it was stored"


def _key(secret: bytes, text: str) -> bytes:
    hashed = blake2b(key=secret, digest_size=_KEY_BYTES)
    # A text with lone surrogates cannot be stored, so its key finds nothing.
    hashed.update(text.encode(errors="surrogatepass"))
    return hashed.digest()


_cached_key = lru_cache(_CACHED_KEYS)(_key)


class ProvenanceIndex:
    """The keys by which records are found: keyed hashes of their provenance.

    With a configured secret, all its records have a mark too, which shows that they need it.
    """

    def __init__(self, secret: bytes, *, is_configured: bool = False) -> None:
        is_short = len(secret) <= blake2b.MAX_KEY_SIZE
        self._secret = secret if is_short else blake2b(secret).digest()
        self.marks = {self.key(_MARK)} if is_configured else set[bytes]()

    def keys(self, provenance: Iterable[Part]) -> set[bytes]:
        """Return all keys of a record: of its features, entities, chunks and documents."""
        parts: set[Part] = set()
        inherited: set[bytes] = set()
        for part in provenance:
            match part:
                case ("feature", entity, feature, entity_id):
                    parts |= {("feature", feature), ("feature", feature, entity_id)}
                    parts |= {("id", entity_id), ("entity", entity, entity_id)}
                case ("entity" | "event", *_, entity_id):
                    parts |= {part, ("id", entity_id)}
                case ("document", index, document):
                    parts |= {("document", document), ("indexed", index, document)}
                case ("index", _, _):
                    parts.add(part[:2])
                case ("chunk", _) | ("everything",):
                    parts.add(part)
                case ("key", key):
                    inherited.add(bytes.fromhex(key))
        return {self.key(*part) for part in parts} | inherited | self.marks

    def key(self, *part: str) -> bytes:
        """Return the key of one feature, entity, chunk, document or index."""
        text = "\0".join(part)
        # Successive contexts mostly read the same features and chunks.
        keyed_hash = _cached_key if len(text) <= _LONGEST_CACHED else _key
        return keyed_hash(self._secret, text)


def inherited(record: StoredRecord | None) -> set[Part]:
    """Return the sources of a context that has read a record; everything if it is not stored."""
    if record is None:
        return {EVERYTHING}
    starts = range(0, len(record.keys), _KEY_BYTES)
    return {("key", record.keys[start : start + _KEY_BYTES].hex()) for start in starts}


def index_of(settings: Settings) -> ProvenanceIndex | None:
    """Return the index with the key of the settings, or None to use the key of the log."""
    secret = settings.record.index_key
    return ProvenanceIndex(secret.encode(), is_configured=True) if secret else None


class Recorder:
    """Seals records, signs them as the settings require, and stores them."""

    def __init__(self, services: Services) -> None:
        self._records = services.backends.records
        self._append_record = services.interceptors.call("records.append", self._records.append)
        self._erasures = services.backends.erasures
        self._settings = services.settings
        self._keyring = parse_keyring(services.settings.signing_key)
        self._index: ProvenanceIndex | None = None

    def check(self) -> None:
        """Raise `ConfigError` if every record must be signed and no key can sign."""
        if self._settings.signature_mode == "required" and self._keyring.signer is None:
            raise ConfigError(
                "HEADWATER_SIGNATURE_MODE is 'required', but no key in HEADWATER_SIGNING_KEY can "
                "sign: public keys only verify; add a key that signs"
            )

    def seal(self, core: Core) -> Record:
        """Return the record of a core, signed if a key can sign or a signature is required."""
        return self.signed(seal(core), core.created_at)

    def signed(self, sealed: S, at: datetime) -> S:
        """Return a record or an outcome, signed if a key can sign or a signature is required."""
        mode = self._settings.signature_mode
        if mode == "required" or (mode == "optional" and self._keyring.signer is not None):
            return sign(sealed, self._keyring, at)
        return sealed

    async def index(self) -> ProvenanceIndex:
        """Return the index with the keys of new records and outcomes."""
        if self._index is None:
            index = index_of(self._settings) or ProvenanceIndex(await self._records.index_key())
            for mark in index.marks:
                await self._records.add_mark(mark)
            self._index = index
        return self._index

    async def store(
        self, core: Core, record: Record, provenance: Collection[Part], since: int
    ) -> bool:
        """Append a record with the keys of its provenance; return False if that failed.

        Without disclosures, if an entity that it read was erased since the assembly began, when
        ``since`` was the revision of the ledger.

        A failure or a timeout of the log does not fail the context, unless the settings require a
        record. After a timeout the record may still be stored.
        """
        seconds = self._settings.record.timeout
        try:
            async with asyncio.timeout(seconds):
                await self._append(core, record, provenance, since)
        except HeadwaterError as error:
            failure = error
        except TimeoutError:
            failure = BackendUnavailableError(
                f"it was not stored within {seconds:g} s; reduce the load of the store, or raise "
                "HEADWATER_RECORD_TIMEOUT"
            )
        else:
            return True
        log.error("context not recorded", context_id=record.context_id, error=str(failure))
        if self._settings.record.required:
            raise RecordingError(record.context_id, str(failure)) from failure
        return False

    async def _append(
        self, core: Core, record: Record, provenance: Collection[Part], since: int
    ) -> None:
        keys = (await self.index()).keys(provenance)
        while True:
            ledger = self._erasures.ledger
            checked = ledger.revision
            erased = ledger.erased_since(since, provenance) if checked > since else None
            kept = record
            if erased is not None and record.disclosures:
                pointers = [disclosure.pointer for disclosure in record.disclosures]
                kept = redact(record, *pointers, at=core.created_at, reason=_ERASED)
            try:
                await self._append_record(self._stored(core, kept, keys), keys, checked=checked)
            except ErasedMeanwhileError:
                await self._erasures.refresh()
            else:
                if erased is not None:
                    count_erased("record", {erased: 1})
                return

    async def inherited(self, context_id: str) -> set[Part]:
        """Return the sources of a context that uses an earlier one."""
        return inherited(await self._records.get(context_id))

    def _stored(self, core: Core, record: Record, keys: Iterable[bytes]) -> StoredRecord:
        stored = record if self._settings.record.include_content else record.private()
        model = core.policy.model
        return StoredRecord(
            context_id=record.context_id,
            record_hash=record.record_hash,
            content_hash=record.content_hash,
            name=core.context.name,
            created_at=core.created_at,
            freshness_status=core.freshness.status,
            caller=core.caller,
            assembly_us=core.timing.assembly_us,
            # The core has the name of the model also if a log cannot store it.
            model=model if model is not None and is_storable(model) else None,
            tokens=core.output.tokens,
            max_tokens=core.policy.max_tokens,
            cost_nano_usd=core.output.cost_nano_usd,
            items_dropped=core.output.items_dropped,
            is_signed=record.signature is not None,
            is_redacted=bool(record.redactions),
            core=record.core,
            disclosures=encode_disclosures(stored.disclosures),
            signature=None if record.signature is None else msgspec.json.encode(record.signature),
            redactions=encode_redactions(record.redactions),
            keys=b"".join(keys),
        )
