"""All cases of the test vectors."""

from __future__ import annotations

from verifier.generator.cases.cores import broken_cores
from verifier.generator.cases.disclosures import broken_disclosures
from verifier.generator.cases.holding import holding
from verifier.generator.cases.outcomes import outcomes
from verifier.generator.cases.signatures import broken_signatures
from verifier.generator.cases.unreadable import unreadable
from verifier.generator.cases.vocabulary import Case


def all_cases() -> list[Case]:
    """Return all cases."""
    return [
        *holding(),
        *broken_cores(),
        *broken_disclosures(),
        *broken_signatures(),
        *unreadable(),
        *outcomes(),
    ]
