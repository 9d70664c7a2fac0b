"""Records of the SDK's log in Headwater's log."""

import logging

import pytest

from headwater.core.logging import log
from headwater.mcp.sdk_log import forwarded_sdk_log


@pytest.mark.parametrize("private", [True, False])
def test_values_of_callers_are_logged_unless_content_is_private(
    capfd: pytest.CaptureFixture[str], private: bool
) -> None:
    with forwarded_sdk_log(private=private):
        try:
            raise ValueError("hunter2")
        except ValueError:
            logging.getLogger("mcp.server.runner").exception("dropped %r", "hunter2")
    log.flush()
    logged = capfd.readouterr().err
    assert '"event":"mcp library warning","detail":"dropped ' in logged
    assert ("hunter2" in logged) is not private
