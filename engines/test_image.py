"""The image is built, and its processes run as in the chart: not as root, on a read-only root."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.downloads import FOLDER, ROOT
from engines.images import Image, Images
from headwater.settings.schema import Settings
from tests.docs.pages import DOCS, blocks
from tests.servers import POLL_SECONDS, READY_WITHIN_SECONDS, free_port

_FEATURES = """
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="visit", default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    return await visits.get(user_id) + 1
"""


# Of its own layers, as a registry gets them; the page says what it was.
_MOST_MEGABYTES = 115
_LOOK = """
import errno, os, re
for folder in ("/", "/app", "/opt/headwater", "/home/headwater", "/var/tmp"):
    try:
        open(os.path.join(folder, "new"), "w")
    except OSError as error:
        print(errno.errorcode[error.errno])
open("/tmp/new", "w").close()
print(os.getuid(), re.search(r"CapEff:\\s*0*$", open("/proc/self/status").read(), re.M) is not None)
"""


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    """Return the images of the Dockerfile, and of the one on the page with our features file."""
    with tempfile.TemporaryDirectory(prefix="images-", dir=FOLDER) as folder:
        images = Images(Path(folder))
        images.make_base("base")
        yield images


@pytest.fixture(scope="module")
def headwater(images: Images, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Return the image of the Dockerfile."""
    context = tmp_path_factory.mktemp("context")
    uv = str(ROOT / ".tools" / "bin" / "uv")
    wheel = ("build", "--quiet", "--wheel", f"--out-dir={context / 'dist'}", str(ROOT))
    subprocess.run([uv, *wheel], check=True)
    return images.build("headwater", context, ROOT / "deploy" / "Dockerfile", BASE="localhost/base")


@pytest.fixture(scope="module")
def shop(images: Images, headwater: Image, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Return an image of our own, made as the page says."""
    context = tmp_path_factory.mktemp("shop")
    (context / "features.py").write_text(_FEATURES)
    shown = {block.title: block.text for block in blocks(DOCS / "how-to" / "kubernetes.md")}
    (context / "shop.Dockerfile").write_text(shown["shop.Dockerfile"])
    return images.build("shop", context, context / "shop.Dockerfile")


def test_the_image_lists_what_is_in_it(headwater: Image) -> None:
    installed = headwater.root / "opt" / "headwater"
    listed = json.loads((installed / "sbom.json").read_bytes())
    assert listed["bomFormat"] == "CycloneDX"
    found = {each["name"].lower().replace("_", "-") for each in listed["components"]}
    folders = installed.glob("lib/python3*/site-packages/*.dist-info")
    assert found == {each.name.partition("-")[0].lower().replace("_", "-") for each in folders}
    assert {"headwater", "asyncpg", "hiredis", "duckdb"} <= found
    ui = next(installed.rglob("headwater/ui"))
    assert "react" in (ui / "licenses.md").read_text(encoding="utf-8").lower()
    assert (headwater.root / "var/lib/dpkg/status").is_file()


def test_its_own_layers_are_small(images: Images, headwater: Image) -> None:
    _of_the_base, *own = images.layers("headwater")
    assert sum(own) < _MOST_MEGABYTES * 1_000_000, own


def test_it_is_not_root_and_writes_only_to_tmp(headwater: Image) -> None:
    looking = headwater.start("python", "-c", _LOOK, variables={}, stdout=subprocess.PIPE)
    said, _ = looking.communicate()
    assert said.split() == ["EROFS"] * 5 + ["10001", "True"]


def test_it_migrates_serves_and_works_by_argument(shop: Image, new_production: Settings) -> None:
    own = {
        "HEADWATER_FEATURES": "features.py",
        "HEADWATER_REDIS_URL": new_production.redis.url,
        "HEADWATER_POSTGRES_URL": new_production.postgres.url,
        "HEADWATER_POSTGRES_SCHEMA": new_production.postgres.schema,
        "HEADWATER_REDIS_PREFIX": new_production.redis.prefix,
        "HEADWATER_API_KEY": "a-key-of-the-test-4711",
    }

    def start(*arguments: str) -> subprocess.Popen[str]:
        return shop.start(*shop.config["Entrypoint"], *arguments, variables=own)

    assert start("migrate").wait(60) == 0
    port, metrics = free_port(), free_port()
    api = start("serve", "--workers", "0", "--port", str(port))
    worker = start("worker", "--metrics-port", str(metrics))
    try:
        for ready in (port, metrics):
            wait_until_ready(ready)
        url = f"http://127.0.0.1:{port}/ingest/visit?wait=30s"
        body = json.dumps({"entity_id": "ada"}).encode()
        headers = {"X-API-Key": own["HEADWATER_API_KEY"], "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as answer:
            assert json.loads(answer.read())["visible"]
    finally:
        for process in (api, worker):
            process.send_signal(signal.SIGTERM)
    assert (api.wait(60), worker.wait(60)) == (0, 0)


def wait_until_ready(port: int) -> None:
    deadline = time.monotonic() + READY_WITHIN_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz"):
                return
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(POLL_SECONDS)
