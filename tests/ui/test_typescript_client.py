"""The TypeScript client, under Node and in a page."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route

from dev.ui_build import MODULES, ROOT, install
from tests.ui.conftest import OpenTab
from tests.ui.site import Site

CLIENT = ROOT / "clients" / "typescript"
STORY = CLIENT / "test" / "story.mjs"
FAILURES = CLIENT / "test" / "failures.test.mjs"
PLAIN = "http://headwater.test"
"""A host whose pages the browser does not trust, because they come without TLS."""

SEEN = {
    "spend": 42.0,
    "other": 1.0,
    "isSame": True,
    "unknown": [404, "unknown-feature", "total_spend"],
    "requests": 3,
    "visits": 1,
    "assembled": "not sent again",
    "metrics": True,
}
_WRONG = """
import { createClient } from "./index.js";
const client = createClient();
// @ts-expect-error: it needs a name
await client.read_feature({ entity_id: "ada" });
// @ts-expect-error: no such parameter
await client.read_lag({ partition: 1 });
// @ts-expect-error: no such parameter
await client.tail_events({ entity: "ada" });
await client.tail_events({ entity_id: "ada" }, { headers: { "Last-Event-ID": "1" } });
// @ts-expect-error: the body needs an entity_id
await client.ingest_event({ event_type: "visit", body: { payload: {} } });
// @ts-expect-error: a file has a type, which a string has not
await client.import_history({ features: "visits", body: "user_id,value" });
// @ts-expect-error: it has no body
await client.metrics({ body: new Blob() });
const lag = await client.read_lag();
const waiting: number = lag.waiting;
// @ts-expect-error: it is a number
const text: string = lag.waiting;
export { text, waiting };
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the compiled client."""
    folder = tmp_path_factory.mktemp("client")
    compiler(CLIENT, "--outDir", str(folder))
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def compiler(folder: Path, *options: str) -> None:
    program = str(MODULES / "typescript" / "bin" / "tsc")
    node(program, "--project", str(folder), *options)


def node(*arguments: str, folder: Path | None = None, **variables: str) -> str:
    """Return what a program prints under Node."""
    return printed((str(install().executable), *arguments), folder, variables)


def npm(folder: Path, *arguments: str) -> str:
    """Return what npm prints, which has nothing in its cache and may ask no registry."""
    found = install()
    programs = (MODULES / ".bin", found.executable.parent)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    options = ("--offline", f"--cache={folder / '.npm'}")
    return printed((*found.npm, *arguments, *options), folder, {"PATH": path})


def printed(command: Sequence[str], folder: Path | None, variables: dict[str, str]) -> str:
    ran = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_an_application_on_node_uses_the_api(own_site: Site, built: Path, tmp_path: Path) -> None:
    program = f"""
import * as client from {json.dumps(str(built / "index.js"))};
import {{ story }} from {json.dumps(str(STORY))};
console.log(JSON.stringify(await story(client, {json.dumps(own_site.url)})));
"""
    file = tmp_path / "main.mjs"
    file.write_text(program)
    assert json.loads(node(str(file))) == SEEN


def test_requests_to_a_server_that_misbehaves(built: Path) -> None:
    options = ("--expose-gc", "--test", "--test-timeout=60000")
    node(*options, str(FAILURES), HEADWATER_CLIENT=str(built / "index.js"))


def test_an_application_installs_the_package_and_runs_the_readme(
    own_site: Site, tmp_path: Path
) -> None:
    # As in a clone: the package takes the licence of the project.
    shutil.copy(ROOT / "LICENSE", tmp_path)
    clone = tmp_path / "clients" / "typescript"
    shutil.copytree(CLIENT, clone, ignore=shutil.ignore_patterns("dist", "node_modules"))
    [packed] = json.loads(npm(clone, "pack", "--json", "--pack-destination", str(tmp_path)))
    names = {file["path"] for file in packed["files"]}
    sources = {f"src/{name}" for name in ("index.ts", "routes.ts", "schema.d.ts")}
    compiled = {f"dist/{name}" for name in ("index.js", "index.d.ts", "routes.js", "routes.d.ts")}
    about = {"LICENSE", "README.md", "package.json"}
    assert names == {*sources, *compiled, *about, "dist/schema.d.ts"}

    application = tmp_path / "application"
    application.mkdir()
    (application / "package.json").write_text('{"type": "module", "private": true}')
    npm(application, "install", str(tmp_path / packed["filename"]))
    blocks = re.findall(r"^```ts\n(.*?)^```", (CLIENT / "README.md").read_text(), re.M | re.S)
    program = "\n".join(blocks).replace("http://localhost:8000", own_site.url)
    (application / "main.ts").write_text(program)
    for resolution in ("nodenext", "bundler"):
        options = {
            "module": "nodenext" if resolution == "nodenext" else "preserve",
            "moduleResolution": resolution,
            "target": "es2022",
            "strict": True,
            "exactOptionalPropertyTypes": True,
            "types": ["node"],
            "typeRoots": [str(MODULES / "@types")],
        }
        configuration = {"compilerOptions": options, "files": ["main.ts"]}
        (application / "tsconfig.json").write_text(json.dumps(configuration))
        compiler(application)
    shown = node(str(application / "main.js")).splitlines()
    assert (shown[0], shown[-1]) == ("40", "text/event-stream; charset=utf-8")
    assert "When do I get my money back?" in "\n".join(shown[1:-1])


def test_wrong_arguments_do_not_compile(tmp_path: Path) -> None:
    sources = tmp_path / "src"
    sources.mkdir()
    for file in (CLIENT / "src").iterdir():
        (sources / file.name).write_bytes(file.read_bytes())
    (sources / "wrong.ts").write_text(_WRONG)
    (tmp_path / "tsconfig.json").write_bytes((CLIENT / "tsconfig.json").read_bytes())
    (tmp_path / "package.json").write_text('{"type": "module"}')
    compiler(tmp_path, "--noEmit")


@pytest.mark.browser
def test_a_page_uses_the_api(own_site: Site, built: Path, open_tab: OpenTab) -> None:
    tab = open_tab(own_site)
    tab.expected.append("404")  # a feature that does not exist
    assert story_in(tab.open(), built) == SEEN


@pytest.mark.browser
def test_a_page_of_another_host_without_tls_uses_the_api(
    own_site: Site, built: Path, open_tab: OpenTab
) -> None:
    tab = open_tab(own_site)
    tab.expected += ["404", f"request to another host: {PLAIN}/"]
    page = tab.blank()

    def pass_on(route: Route) -> None:
        # As a proxy does; the browser itself refuses requests of such a page to its own machine.
        headers = {name: text for name, text in route.request.headers.items() if name != "origin"}
        url = route.request.url.replace(PLAIN, own_site.url)
        route.fulfill(response=route.fetch(url=url, headers=headers))

    page.route(f"{PLAIN}/**", pass_on)
    page.route(f"{PLAIN}/", partial(Route.fulfill, body="", content_type="text/html"))
    page.goto(f"{PLAIN}/")
    assert page.evaluate("[isSecureContext, 'randomUUID' in crypto]") == [False, False]
    assert story_in(page, built) == SEEN


def story_in(page: Page, built: Path) -> Any:
    """Return what the story saw in a page, which loads the client from its own host."""
    modules = {
        "/client/index.js": built / "index.js",
        "/client/routes.js": built / "routes.js",
        "/client/story.mjs": STORY,
    }
    for path, file in modules.items():
        page.route(
            f"**{path}",
            partial(Route.fulfill, path=file, content_type="text/javascript"),
        )
    return page.evaluate(
        """async () => {
            const { story } = await import("/client/story.mjs");
            return await story(await import("/client/index.js"), "");
        }"""
    )
