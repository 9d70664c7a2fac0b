"""Keeping the proof: records are sealed, signed and appended, to be found by keyed hashes."""

from __future__ import annotations

import hmac
from collections.abc import Collection

import msgspec

from headwater.errors import ConfigError, HeadwaterError, RecordingError
from headwater.logs import log
from headwater.ports import RecordLog, StoredRecord
from headwater.record.core import Core
from headwater.record.parts import Record, encode_disclosures, encode_redactions
from headwater.record.sealing import seal
from headwater.record.signing import Keyring, parse_keyring, sign
from headwater.settings import Settings


class Recorder:
    """Makes records as the settings ask, and keeps them."""

    def __init__(self, records: RecordLog, settings: Settings) -> None:
        self._records = records
        self._settings = settings
        self._keyring = keyring_of(settings)
        if settings.signature_mode == "required" and self._keyring.signer is None:
            raise ConfigError(
                "records must be signed (signature_mode is 'required'), and no key that signs is "
                "set; set HEADWATER_SIGNING_KEY"
            )

    def seal(self, core: Core) -> Record:
        """The record of what the core says, signed where there is a key."""
        record = seal(core)
        if self._settings.signature_mode == "off" or self._keyring.signer is None:
            return record
        return sign(record, self._keyring, core.created_at)

    async def keep(self, core: Core, record: Record, keys: Collection[bytes]) -> bool:
        """Appends a record, and says whether that went well.

        A log that fails does not fail the context, unless the settings say that it must.
        """
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


def keyring_of(settings: Settings) -> Keyring:
    """The keys that sign and verify; none where nothing is signed."""
    return parse_keyring("" if settings.signature_mode == "off" else settings.signing_key)


def find_key(settings: Settings, *parts: str) -> bytes:
    """A keyed hash of what a record was made of, so that nothing is found in clear."""
    key = settings.record.index_key or settings.signing_key or "headwater"
    return hmac.digest(key.encode(), "\0".join(parts).encode(), "sha256")[:16]
