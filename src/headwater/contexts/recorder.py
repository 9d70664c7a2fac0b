"""Keeping the proof: records are sealed, signed and appended, to be found by keyed hashes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

import msgspec

from headwater.core.logging import log
from headwater.core.values import Part
from headwater.errors import ConfigError, HeadwaterError, RecordingError
from headwater.ports import RecordLog, StoredRecord
from headwater.records.core import Core
from headwater.records.record import Record, encode_disclosures, encode_redactions
from headwater.records.sealing import seal
from headwater.records.signing import parse_keyring, sign
from headwater.settings.schema import Settings

_KEY_BYTES = 16
_KEYS_REMEMBERED = 8_192
_MIDDLING = 256


def _key(secret: bytes, text: str) -> bytes:
    hashed = blake2b(key=secret, digest_size=_KEY_BYTES)
    # A text that no store can keep has a key as well, by which nothing is found.
    hashed.update(text.encode(errors="surrogatepass"))
    return hashed.digest()


_known_key = lru_cache(_KEYS_REMEMBERED)(_key)


class Index:
    """Where records are found by what they were made of: keyed hashes, so that none is in clear."""

    def __init__(self, secret: bytes) -> None:
        short = len(secret) <= blake2b.MAX_KEY_SIZE
        self._secret = secret if short else blake2b(secret).digest()

    def keys(self, provenance: Iterable[Part]) -> set[bytes]:
        """Every key of a record: of features, whose they were, entities and chunks."""
        found: set[Part] = set()
        for part in provenance:
            if part[0] == "feature":
                _, entity, feature, entity_id = part
                found |= {("feature", feature), ("feature", feature, entity_id)}
                found |= {("id", entity_id), ("entity", entity, entity_id)}
            else:
                found.add(part)
        return {self.key(*part) for part in found}

    def key(self, *part: str) -> bytes:
        """The key of one of them."""
        text = "\0".join(part)
        # What contexts are made of is much the same from one to the next.
        return (
            _known_key(self._secret, text) if len(text) <= _MIDDLING else _key(self._secret, text)
        )


def index_of(settings: Settings) -> Index | None:
    """The index that the settings give a secret; without one, the log has its own."""
    secret = settings.record.index_key
    return Index(secret.encode()) if secret else None


class Recorder:
    """Makes records as the settings ask, and keeps them."""

    def __init__(self, records: RecordLog, settings: Settings) -> None:
        self._records = records
        self._settings = settings
        self._keyring = parse_keyring(settings.signing_key)
        self._index = index_of(settings)

    def check(self) -> None:
        """Refuses to go without a key that signs where every record must be signed."""
        if self._settings.signature_mode == "required" and self._keyring.signer is None:
            raise ConfigError(
                "HEADWATER_SIGNATURE_MODE is 'required' and none of the keys in "
                "HEADWATER_SIGNING_KEY signs: public ones only verify; add one that signs"
            )

    def seal(self, core: Core) -> Record:
        """The record of what the core says, signed where there is a key, or where it must be."""
        record, mode = seal(core), self._settings.signature_mode
        if mode == "required" or (mode == "optional" and self._keyring.signer is not None):
            return sign(record, self._keyring, core.created_at)
        return record

    async def keep(self, core: Core, record: Record, provenance: Iterable[Part]) -> bool:
        """Appends a record, to be found by what it was made of, and says whether that went well.

        A log that fails or takes too long does not fail the context, unless the settings say that
        it must. What took too long may yet be kept.
        """
        seconds = self._settings.record.timeout
        try:
            async with asyncio.timeout(seconds):
                if self._index is None:
                    self._index = Index(await self._records.index_key())
                await self._records.append(self._stored(core, record), self._index.keys(provenance))
        except (HeadwaterError, TimeoutError) as error:
            problem = _too_long(seconds) if isinstance(error, TimeoutError) else str(error)
            log.error("context not recorded", context_id=record.context_id, error=problem)
            if self._settings.record.required:
                raise RecordingError(record.context_id, problem) from error
            return False
        return True

    def _stored(self, core: Core, record: Record) -> StoredRecord:
        kept = record if self._settings.record.include_content else record.private()
        return StoredRecord(
            context_id=record.context_id,
            record_hash=record.record_hash,
            content_hash=record.content_hash,
            name=core.context.name,
            created_at=core.created_at,
            freshness_status=core.freshness.status,
            core=record.core,
            disclosures=encode_disclosures(kept.disclosures),
            signature=None if record.signature is None else msgspec.json.encode(record.signature),
            redactions=encode_redactions(record.redactions),
        )


def _too_long(seconds: float) -> str:
    return (
        f"it was not kept within {seconds:g} s; see to the load of the store, or raise "
        "HEADWATER_RECORD_TIMEOUT"
    )
