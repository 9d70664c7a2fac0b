"""Evidence: recorded contexts found, proved, explained, replayed, compared and redacted.

``finding`` looks for them, ``proof`` says what holds of one, ``replays`` gives one once more,
``receipts`` takes in what was assembled elsewhere; ``verbs`` is what the store calls.
"""

from headwater.evidence.finding import LARGEST_PAGE, ContextPage, Wanted
from headwater.evidence.proof import check_signing
from headwater.evidence.receipts import Receipt
from headwater.evidence.replays import current_rehearsal, note_search, refuse_rehearsal
from headwater.evidence.verbs import Evidence

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
