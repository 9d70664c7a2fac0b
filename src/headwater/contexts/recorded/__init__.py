"""Recorded contexts: find, verify, explain, replay, compare and redact them.

``service`` has the operations that the store calls. ``search`` finds records, ``verification``
decodes and verifies them, ``replay`` replays them, and ``external`` records contexts that other
programs assembled.
"""

from headwater.contexts.recorded.search import ContextQuery
from headwater.contexts.recorded.service import RecordedContexts
from headwater.contexts.recorded.verification import check_signing

__all__ = [
    "ContextQuery",
    "RecordedContexts",
    "check_signing",
]
