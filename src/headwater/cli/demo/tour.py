"""The steps of the demo: requests to a real server, printed with their results."""

import ast
import http.client
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypedDict
from urllib.parse import urlsplit

import msgspec
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from headwater.cli.demo.shop.week import answers_to
from headwater.core.ui_files import BUILD_UI, is_ui_installed
from headwater.errors import HeadwaterError
from headwater.messages.parts import Message
from headwater.retrieval.embeddings.embedder import INSTALL_LOCAL_MODEL
from headwater.settings.loading import environment_without_settings

_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.002
_CRASH_EVENTS = 2_000
_WIDTH = 88

TEXTS = tomllib.loads(Path(__file__).with_name("tour.toml").read_text(encoding="utf-8"))


class DemoError(HeadwaterError):
    """A step of the demo that did not give the expected result."""


class DemoStep(TypedDict):
    """The title of a step and the lines that it printed."""

    title: str
    lines: list[str]


class DemoServer:
    """A `headwater serve` process for the example, which can be killed and restarted."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def start(self) -> None:
        """Start the server on its port, and return when it is ready."""
        command = [sys.executable, "-m", "headwater", "serve", "features.py", "--json"]
        command += ["--port", str(urlsplit(self.url).port)]
        log_file = self.folder / "server.log"
        with log_file.open("ab") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=environment_without_settings(),
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # a signal reaches only the demo, which stops the server
            )
        ready = self._process.stdout.readline() if self._process.stdout else b""
        if not ready:
            raise DemoError(
                f"the demo server did not start: {log_file.read_text()[-2000:].strip()}"
            )
        self.url = msgspec.json.decode(ready)["url"]

    def end(self, *, kill: bool = False) -> None:
        """Stop the server, or end it as a crash would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill() if kill else process.terminate()
            if process.stdout:
                process.stdout.close()
            process.wait(_TIMEOUT_SECONDS)

    def request(self, method: str, path: str, body: str = "") -> Any:
        """Return the decoded response; raise DemoError if the status is not 2xx."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=_TIMEOUT_SECONDS)
        kind = "application/x-ndjson" if path == "/ingest" else "application/json"
        try:
            connection.request(
                method, path, body.encode() or None, {"Content-Type": kind} if body else {}
            )
            response = connection.getresponse()
            content = response.read()
        except OSError as error:
            raise DemoError(f"the demo server does not respond at {self.url}: {error}") from error
        finally:
            connection.close()
        if response.status >= 300:
            raise DemoError(f"{method} {path} failed: {content.decode(errors='replace')}")
        return msgspec.json.decode(content)

    def run_command(self, *arguments: str) -> str:
        """Return the output of a `headwater` command in the folder of the example."""
        done = subprocess.run(
            [sys.executable, "-m", "headwater", *arguments],
            cwd=self.folder,
            env=environment_without_settings(),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode:
            output = (done.stdout + done.stderr).strip()
            raise DemoError(f"`headwater {' '.join(arguments)}` failed: {output}")
        return done.stdout


class Tour:
    """The steps, printed with their results and kept as text."""

    def __init__(self, server: DemoServer, console: Console) -> None:
        self.steps: list[DemoStep] = []
        self._server = server
        self._console = console
        self._source = (server.folder / "features.py").read_text(encoding="utf-8")

    def run(self) -> None:
        self._server.start()
        self._console.print(Text("Headwater demo", "bold cyan"))
        url = self._server.url
        self._console.print(f"A small shop runs at {url}, in a temporary folder.")
        self._console.print(f"While the tour lasts, its web UI is at {url}/{without_ui()}")
        self.events()
        self.composed_values()
        self.dead_letters()
        self.crash()
        question = self.search()
        context_id = self.context(question)
        self.answer(context_id)
        self.changed_document(question)
        self.evaluation()

    def events(self) -> None:
        self._step("events")
        self._publish("purchase", "ada", amount=120)
        self._publish("refund", "ada", amount=20)
        self._read("total_spend", "ada", until=100.0)

    def composed_values(self) -> None:
        self._step("composed_values")
        self._read("past_orders", "ada", until=3)
        self._read("blurb", "ada", until="gold customer: 100.0 spent, 3 past orders")

    def dead_letters(self) -> None:
        self._step("dead_letters")
        self._publish("checkout", "ada", country="NO", kg=2)
        self._wait(
            "a dead letter", lambda: self._server.run_command("dlq", "list", "--json") != "[]\n"
        )
        self._run("dlq", "list")
        self._publish("rate_set", "NO", per_kg=4.5)
        self._read("shipping_rate", "NO", until=4.5)
        self._run("dlq", "redrive", "--all")
        self._read("shipping_fee", "ada", until=9.0)

    def crash(self) -> None:
        self._step("crash")
        event = {"event_type": "purchase", "entity_id": "grace", "payload": {"amount": 1}}
        self._server.request("POST", "/ingest", f"{_json(event)}\n" * _CRASH_EVENTS)
        self._print_call(f"POST /ingest  ({_CRASH_EVENTS} lines of JSON)", "accepted")
        self._wait("total_spend of grace", lambda: self._value("total_spend", "grace") > 0)
        spent = self._value("total_spend", "grace")
        self._server.end(kill=True)
        self._print_call("kill -9 SERVER", f"killed after {spent:.0f} of {_CRASH_EVENTS} events")
        self._server.start()
        self._print_call("headwater serve features.py", "started again")
        self._read("total_spend", "grace", until=float(_CRASH_EVENTS))

    def search(self) -> str:
        """Index articles and search them; return the question."""
        self._step("search")
        for article, text in TEXTS["articles"].items():
            self._publish("article_saved", article, text=text)
        self._wait("the articles", lambda: self._index()["documents"] == len(TEXTS["articles"]))
        is_lexical = self._index()["spec"]["embedder"].startswith("lexical")
        question: str = TEXTS["lexical_question" if is_lexical else "question"]
        if is_lexical:
            self._print(textwrap.indent(textwrap.fill(TEXTS["lexical"], _WIDTH), "   "))
            self._print(f"   {INSTALL_LOCAL_MODEL}")
        body = _json({"query": question, "top_k": 1})
        answer = self._server.request("POST", "/v1/search/help", body)
        (chunk,) = answer["chunks"]
        self._print_call(
            f"POST /v1/search/help {body}",
            f"{chunk['document']}, score {chunk['score']:.2f}, index version {answer['version']}",
        )
        self._print(f"   │ {chunk['text']}", "cyan")
        if not is_lexical:
            self._print("   The question and the article have no word in common.")
        return question

    def context(self, question: str) -> str:
        """Assemble the context of the example and verify its record; return its id."""
        self._step("context")
        context = self._assemble(question)
        trace = self._get(f"/context/{context['context_id']}/explain")
        for item in trace["items"]:
            kind, ref = item["source_kind"], item["source_ref"]
            source = ref.partition("#")[0] if kind == "retrieval" else kind
            self._print(f"   {source:<15}{item['why']}")
        self._print("")
        self._run("context", "verify", context["context_id"])
        return str(context["context_id"])

    def answer(self, context_id: str) -> None:
        self._step("answer")
        context = self._get(f"/v1/context/{context_id}")
        answer, _ = answers_to(msgspec.convert(context["request"]["messages"], list[Message]))
        usage = {"input": context["tokens"], "output": len(answer.split())}
        path = f"/v1/context/{context_id}/outcomes"
        for body in (
            {"answer": answer, "model": "first-page", "usage": usage},
            {"score": "helpful", "flag": True, "judge": "human"},
        ):
            outcome = self._server.request("POST", path, _json(body))
            self._print_call(f"POST {path} {_json(body)}", f"stored as {outcome['outcome_id']}")
        self._run("context", "list", "--score", "helpful=true")

    def changed_document(self, question: str) -> None:
        self._step("changed_document")
        self._publish("article_saved", "refunds", text=TEXTS["changed"])
        self._wait("the change", lambda: self._get("/v1/index/help/refunds")["version"] == 2)
        context = self._assemble(question)
        if TEXTS["changed"] not in context["content"]:
            raise DemoError("the context does not contain the changed article")
        (search,) = context["lineage"]["retrievers"]
        self._print(f"   recorded with index version {search['index_version']}")

    def evaluation(self) -> None:
        self._step("evaluation")
        changed = self._source.replace("spent >= 100", "spent >= 150")
        (self._server.folder / "changed.py").write_text(changed, encoding="utf-8")
        for line in _source_of("tier", changed).splitlines()[-1:]:
            self._print(f"   changed.py: {line.strip()}", "cyan")
        self._run("eval", "freeze", "tour", "--context", "support")
        self._run("eval", "run", "tour", "--file", "changed.py")
        listed = self._server.run_command("context", "list", "--json")
        newest = msgspec.json.decode(listed)["contexts"][0]["context_id"]
        self._run("eval", "show", "tour", newest)

    def _assemble(self, question: str) -> Any:
        """Assemble the context of the example and print its text."""
        body = _json({"params": {"user_id": "ada", "question": question}})
        context = self._server.request("POST", "/v1/contexts/support", body)
        self._print_call(
            f"POST /v1/contexts/support {body}",
            f"{context['tokens']} of 80 tokens, freshness {context['freshness_status']}",
        )
        for line in context["content"].splitlines():
            self._print(f"   │ {line}".rstrip(), "cyan")
        self._print("")
        return context

    def _index(self) -> Any:
        (index,) = self._get("/v1/indexes")["indexes"]
        return index

    def _get(self, path: str) -> Any:
        return self._server.request("GET", path)

    def _step(self, name: str) -> None:
        step = TEXTS["steps"][name]
        self.steps.append({"title": step["title"], "lines": []})
        self._print(f"\n{len(self.steps)}. {step['title']}", "bold cyan")
        self._print(textwrap.indent(textwrap.fill(step["text"], _WIDTH), "   ") + "\n")
        for name in step["functions"]:
            source = _source_of(name, self._source)
            text = Syntax(source, "python", theme="ansi_dark").highlight(source)
            for line in text.split():
                self._console.print(Text("     ") + line)
            self._console.print()

    def _publish(self, event_type: str, entity_id: str, **payload: object) -> None:
        body = _json({"entity_id": entity_id, "payload": payload})
        self._server.request("POST", f"/ingest/{event_type}", body)
        self._print_call(f"POST /ingest/{event_type} {body}", "accepted")

    def _read(self, feature: str, entity_id: str, *, until: object) -> None:
        """Read a feature until it has the expected value, and print it."""
        started = time.perf_counter()
        self._wait(f"{feature} of {entity_id}", lambda: self._value(feature, entity_id) == until)
        milliseconds = (time.perf_counter() - started) * 1000
        self._print_call(
            f"GET  {_path(feature, entity_id)}", f"{_json(until)}  (after {milliseconds:.0f} ms)"
        )

    def _value(self, feature: str, entity_id: str) -> Any:
        return self._get(_path(feature, entity_id))["value"]

    def _wait(self, subject: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise DemoError(f"{subject} did not appear within {_TIMEOUT_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)

    def _run(self, *arguments: str) -> None:
        """Run a `headwater` command and print its output."""
        output = self._server.run_command(*arguments)
        self._print(f"   $ headwater {' '.join(arguments)}", "green")
        self._print(textwrap.indent(output, "     ").rstrip())

    def _print_call(self, call: str, result: str) -> None:
        self._print(f"   {call}", "green")
        self._print(f"     → {result}")

    def _print(self, text: str, style: str = "") -> None:
        self.steps[-1]["lines"].append(text)
        self._console.print(Text(text, style))


def without_ui() -> str:
    """Return the remark that belongs to the address of a web UI that is not installed."""
    return "" if is_ui_installed() else f", if you {BUILD_UI}"


def _source_of(name: str, source: str) -> str:
    """Return the source of a declaration: a function with its decorators, or an assignment."""
    for node in ast.parse(source).body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                first = min(decorator.lineno for decorator in node.decorator_list)
            case ast.Assign(targets=[ast.Name(id=target)]) if target == name:
                first = node.lineno
            case _:
                continue
        return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
    raise DemoError(f"the example does not declare {name}")


def _path(feature: str, entity_id: str) -> str:
    return f"/v1/features/{feature}?entity_id={entity_id}"


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
