"""Records of the SDK's log in Headwater's log."""

import logging

import pytest

from headwater import FeatureStore
from headwater.core.logging import log
from headwater.mcp.transports import StreamableHttp


async def test_warnings_of_the_sdk_are_in_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    async with StreamableHttp(FeatureStore()).running():
        logging.getLogger("mcp.server.runner").warning("dropped a message")
    log.flush()
    logged = capfd.readouterr().err
    assert '"event":"mcp library warning","detail":"dropped a message"' in logged
