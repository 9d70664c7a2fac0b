"""The ledger of erasures, asked about what a context has read."""

from __future__ import annotations

import pytest

from headwater.core.values import EVERYTHING, Part
from headwater.ports.erasures import Ledger, Tombstone, erasure_digest

SECRET = b"secret"


def ledger() -> Ledger:
    """Return the ledger after the erasure of one user."""
    made = Ledger()
    made.add(SECRET, [Tombstone(3, erasure_digest(SECRET, "User", "u1"), 0, "0", may_return=True)])
    return made


@pytest.mark.parametrize(
    ("part", "is_erased"),
    [
        (("feature", "User", "address", "u1"), True),
        (("feature", "User", "address", "u2"), False),
        (("entity", "User", "u1"), True),
        (("entity", "Product", "u1"), False),
        (("event", "u1"), True),
        (("key", "00"), True),
        (EVERYTHING, True),
        (("other", "the log of events"), False),
        (("index", "letters", "1.1"), False),
    ],
)
def test_a_context_that_may_have_read_an_entity_learns_of_its_erasure(
    part: Part, is_erased: bool
) -> None:
    read = {part, ("chunk", "c1")}
    assert (ledger().erased_since(2, read) is not None) is is_erased
    assert ledger().erased_since(3, read) is None
