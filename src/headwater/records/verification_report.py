"""The report of a verification: the results of all checks, and a verdict in words."""

from __future__ import annotations

from typing import Literal

import msgspec

CheckName = Literal["hash", "signature", "disclosures", "content", "reassembly"]
Fault = Literal["altered", "another", "unsigned", "unchecked"]
# The sentences for a record that is intact but does not meet a requirement of the caller.
_UNMET: dict[Fault, str] = {
    "another": "It is not the record that was expected.",
    "unsigned": "It is not signed.",
    "unchecked": "Its signature could not be checked.",
}


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of one check: `ok` is None if it could not be made; `detail` gives the reason.

    A failed check has a `fault`: the record was altered, or a requirement of the caller is not met.
    """

    check: CheckName
    ok: bool | None
    detail: str
    fault: Fault | None = None


class VerificationReport(msgspec.Struct, frozen=True):
    """The results of all checks; `signed` is True if the record has a signature, checked or not."""

    checks: tuple[Check, ...]
    signed: bool

    def __repr__(self) -> str:
        return f"<VerificationReport {'ok' if self.ok else 'failed'}: {self.verdict}>"

    @property
    def ok(self) -> bool:
        """True if no check failed."""
        return all(check.ok is not False for check in self.checks)

    @property
    def verdict(self) -> str:
        """The result in one or two sentences."""
        faults = {check.fault for check in self.checks if check.ok is False}
        if faults - _UNMET.keys():
            return "This record is broken."
        if faults:
            return " ".join(text for fault, text in _UNMET.items() if fault in faults)
        if self.of("signature").ok:
            return "Nothing is broken."
        unproved = "its signature was not checked" if self.signed else "it is not signed"
        return f"Nothing is broken, but {unproved}."

    def of(self, name: CheckName) -> Check:
        """Return one check by name."""
        return next(check for check in self.checks if check.check == name)


def holds(name: CheckName, detail: str) -> Check:
    """Return a check that holds."""
    return Check(name, ok=True, detail=detail)


def broken(name: CheckName, detail: str, fault: Fault = "altered") -> Check:
    """Return a check that failed."""
    return Check(name, ok=False, detail=detail, fault=fault)


def unchecked(name: CheckName, detail: str) -> Check:
    """Return a check that could not be made."""
    return Check(name, ok=None, detail=detail)
