"""Keeping the proof: records are sealed, signed and appended, to be found by keyed hashes."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Sequence

import msgspec

from headwater.errors import HeadwaterError, RecordingError
from headwater.logs import log
from headwater.ports import RecordLog, StoredRecord
from headwater.record.core import Core
from headwater.record.parts import Record, encode_disclosures, encode_redactions
from headwater.record.sealing import seal
from headwater.record.signing import parse_keyring, sign
from headwater.settings import Settings


class Recorder:
    """Makes records as the settings ask, and keeps them."""

    def __init__(self, records: RecordLog, settings: Settings) -> None:
        self._records = records
        self._settings = settings
        self._keyring = parse_keyring(settings.signing_key)
        self._index_key = _index_key(settings)

    def seal(self, core: Core) -> Record:
        """The record of what the core says, signed where there is a key, or where it must be."""
        record, mode = seal(core), self._settings.signature_mode
        if mode == "required" or (mode == "optional" and self._keyring.signer is not None):
            return sign(record, self._keyring, core.created_at)
        return record

    async def keep(self, core: Core, record: Record, parts: Collection[Sequence[str]]) -> bool:
        """Appends a record, to be found by what it was made of, and says whether that went well.

        A log that fails does not fail the context, unless the settings say that it must.
        """
        keys = {_hashed(self._index_key, part) for part in parts}
        try:
            await self._records.append(self._stored(core, record), keys)
        except HeadwaterError as error:
            log.error("context not recorded", context_id=record.context_id, error=str(error))
            if self._settings.record.required:
                raise RecordingError(record.context_id, str(error)) from error
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


def find_key(settings: Settings, *parts: str) -> bytes:
    """A keyed hash of what a record was made of, so that nothing is found in clear."""
    return _hashed(_index_key(settings), parts)


def _index_key(settings: Settings) -> bytes:
    signing = settings.signing_key.partition(",")[0].strip()
    return (settings.record.index_key or signing or "headwater").encode()


def _hashed(key: bytes, parts: Sequence[str]) -> bytes:
    return hmac.digest(key, "\0".join(parts).encode(), "sha256")[:16]
