"""Evidence: recorded contexts found, proved, explained, replayed, compared and redacted.

``finding`` looks for them, ``proof`` says what holds of one, ``replays`` gives one once more,
``receipts`` takes in what was assembled elsewhere; ``verbs`` is what the store calls.
"""

from headwater.contexts.recorded.external import ExternalContext
from headwater.contexts.recorded.rerun import check_not_replaying, current_replay, track_search
from headwater.contexts.recorded.search import LARGEST_PAGE, ContextPage, ContextQuery
from headwater.contexts.recorded.service import RecordedContexts
from headwater.contexts.recorded.verification import check_signing

__all__ = [
    "LARGEST_PAGE",
    "ContextPage",
    "ContextQuery",
    "ExternalContext",
    "RecordedContexts",
    "check_not_replaying",
    "check_signing",
    "current_replay",
    "track_search",
]
