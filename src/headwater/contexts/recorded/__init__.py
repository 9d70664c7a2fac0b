"""Evidence: recorded contexts found, proved, explained, replayed, compared and redacted.

``finding`` looks for them, ``proof`` says what holds of one, ``replays`` gives one once more,
``receipts`` takes in what was assembled elsewhere; ``verbs`` is what the store calls.
"""

from headwater.contexts.recorded.external import Receipt
from headwater.contexts.recorded.rerun import current_rehearsal, note_search, refuse_rehearsal
from headwater.contexts.recorded.search import LARGEST_PAGE, ContextPage, Wanted
from headwater.contexts.recorded.service import Evidence
from headwater.contexts.recorded.verification import check_signing

__all__ = [
    "LARGEST_PAGE",
    "ContextPage",
    "Evidence",
    "Receipt",
    "Wanted",
    "check_signing",
    "current_rehearsal",
    "note_search",
    "refuse_rehearsal",
]
