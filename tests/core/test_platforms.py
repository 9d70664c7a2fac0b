"""Systems that Headwater does not run on."""

import os
import sys

import pytest

from headwater.core.platforms import check_platform


@pytest.mark.parametrize(
    ("name", "confstr", "found"),
    [("win32", {}, "win32"), ("linux", {}, "Linux without glibc"), ("freebsd14", {}, "freebsd14")],
)
def test_other_systems_are_refused_with_the_remedy(
    name: str, confstr: dict[str, int], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", name)
    monkeypatch.setattr(os, "confstr_names", confstr)
    with pytest.raises(ImportError, match=f"not on {found}.*WSL"):
        check_platform()


def test_macos_and_linux_with_glibc_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    check_platform()
    monkeypatch.setattr(sys, "platform", "darwin")
    check_platform()
