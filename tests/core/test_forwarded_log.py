"""Records of other libraries in Headwater's log."""

import logging
from typing import Any

import pytest

from headwater.core.logging import forwarded_log


@pytest.mark.parametrize("private", [True, False])
def test_values_of_callers_are_forwarded_unless_content_is_private(private: bool) -> None:
    forwarded: list[dict[str, Any]] = []
    with forwarded_log("library", lambda _, fields: forwarded.append(fields), private=private):
        try:
            raise ValueError("hunter2")
        except ValueError:
            logging.getLogger("library.part").exception("dropped %r", "hunter2")
        logging.getLogger("library.part").info("not forwarded")
    logging.getLogger("library.part").warning("not forwarded")
    (fields,) = forwarded
    assert fields["detail"].startswith("dropped ")
    assert ("hunter2" in fields["detail"]) is not private
    assert ("hunter2" in fields["traceback"]) is not private
