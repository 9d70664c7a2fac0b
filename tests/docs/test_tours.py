"""The commands of README and tutorial work in bash, in their order, and print what they show."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT
from tests.docs.reader import STAND_IN, Lasting, Reader, reading
from tests.servers import free_port

LEFT_OUT = {
    "make ": "they install and test the clone, whose tests these are",
    "pip install": "the environment of the tests has the packages; `make fresh` installs them",
    "python3 -m venv": "as before",
    "mkdir ": "the folder of the test is empty already",
}
DEV = "headwater dev"
WORKER = Lasting("Press Ctrl-C")

Read = Callable[..., Reader]

# Each starts about forty processes, one after another, which a busy machine does slowly.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Read]:
    """Make a reader in an empty folder, with the commands that do not end by themselves."""
    with ExitStack() as ending:

        def read(lasting: dict[str, Lasting], **variables: str) -> Reader:
            (folder := tmp_path / "shop").mkdir()
            return ending.enter_context(
                reading(
                    Reader(
                        folder,
                        port=free_port(),
                        lasting={"headwater worker features.py": WORKER} | lasting,
                        left_out=LEFT_OUT,
                        variables=variables,
                    )
                )
            )

        yield read


def test_the_tour_of_the_readme_works(read: Read) -> None:
    reader = read({DEV: Lasting("Serving ", ends="true")})
    reader.follow(ROOT / "README.md")
    assert len([each for each in reader.commands if each.startswith("curl ")]) == 4
    # The keys file is removed, and a server that starts again answers without a key.
    reader.run("true")
    reader.run(DEV)
    reader.run("curl -s 'localhost:8000/v1/features/blurb?entity_id=ada'", "…Ada has spent 25.0…")


def test_the_quickstart_works(read: Read) -> None:
    reader = read({DEV: Lasting("Serving ", ends="true")})
    reader.follow(DOCS / "quickstart.md")
    assert reader.commands.count("python ask.py") == 2


def test_the_tutorial_works(read: Read) -> None:
    serve = "headwater serve features.py > server.log 2>&1 &"
    reader = read({DEV: Lasting("Serving ", ends=serve)})
    reader.follow(DOCS / "tutorial.md")
    assert {"python grace.py", "python find.py", "python ask.py", "python answer.py"} <= {
        *reader.commands
    }
    assert len([each for each in reader.commands if each.startswith("curl ")]) == 9


def test_where_curl_is_missing_a_script_sends_its_requests(read: Read) -> None:
    reader = read({DEV: Lasting("Serving ", ends="true")})
    reader.save("features.py", "from headwater import FeatureStore\n\nstore = FeatureStore()\n")
    reader.save("rows", '{"event_type": "purchase", "entity_id": "ada", "payload": {}}\n')
    reader.run(DEV)
    reader.run(
        f"{STAND_IN} -s --retry 9 --retry-connrefused localhost:8000/healthz", '{"status":"ok"}'
    )
    ingest = "localhost:8000/ingest -H 'content-type: application/x-ndjson' --data-binary @rows"
    reader.run(f"{STAND_IN} -s -o answer -w '%{{http_code}}\\n' {ingest}", "202\n")
    reader.run(
        f"{STAND_IN} -s localhost:8000/nowhere -w '%{{http_code}}'", "…urn:headwater:problem:…404"
    )
