"""The demo's script: what is asked of the server, in which order, and what must come of it."""

import ast
import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from headwater.cli.demo.printer import RecordedCall, Shift, Story, show
from headwater.cli.demo.server import DemoError, Response, Shop
from headwater.cli.output import counted
from headwater.declarations.runtime import runtime_of
from headwater.ports import DeadLetter

_PATIENCE_SECONDS = 20.0
_POLL_SECONDS = 0.002
_MANY = 500
_QUESTION = "How long does a parcel to Norway take?"

T = TypeVar("T")


def take_tour(shop: Shop, story: Story) -> None:
    """Shows everything once; raises DemoError if anything does not come out as it must."""
    tour = Tour(shop, story)
    story.begin(shop.url, shop.folder)
    tour.events_change_a_feature()
    tour.values_are_composed()
    tour.a_failure_is_kept()
    tour.a_crash_loses_nothing()
    tour.a_context_is_proved()


class Tour:
    """The parts of the tour."""

    def __init__(self, shop: Shop, story: Story) -> None:
        self._shop = shop
        self._story = story
        self._source = (shop.folder / "features.py").read_text(encoding="utf-8")

    def events_change_a_feature(self) -> None:
        self._story.step(
            "Events change a feature",
            "A triggered feature is a function of an entity and an event. Once the server answers "
            "202 the event is on disk; a worker runs the function, once per event and in order.",
        )
        self._code("total_spend")
        self._read("total_spend", "ada")
        self._publish("purchase", "ada", amount=40)
        self._becomes("total_spend", "ada", 0.0, 40.0)
        self._publish("purchase", "ada", amount=75.5)
        self._publish("refund", "ada", amount=15.5)
        self._becomes("total_spend", "ada", 40.0, 100.0)

    def values_are_composed(self) -> None:
        self._story.step(
            "Values are computed when read, composed, and taken from files",
            "tier runs when it is asked for; past_orders is one query over a CSV file for all "
            "users, on a schedule; blurb names the others, and so depends on them.",
        )
        self._code("tier", "past_orders", "blurb")
        self._wait("past_orders of ada", lambda: self._value("past_orders", "ada") == 3)
        self._read("tier", "ada")
        self._read("past_orders", "ada")
        before = self._read("blurb", "ada")
        self._publish("refund", "ada", amount=50)
        self._becomes("blurb", "ada", before, "silver customer: 50.0 spent, 3 past orders")

    def a_failure_is_kept(self) -> None:
        self._story.step(
            "An event that cannot be handled is kept, not lost",
            "parcel_fee needs a rate that nobody has set. It is tried again, then set aside as a "
            "dead letter, and everything else goes on. Once the cause is gone, it is run again.",
        )
        self._code("parcel_fee")
        self._publish("checkout", "ada", country="NO", kg=2)
        letter = asyncio.run(self._first_letter())
        self._story.command(
            "headwater dlq list",
            f"{letter.id}  {letter.feature}  {letter.event.event_type}  {letter.event.entity_id}"
            f"  {counted(letter.attempts, 'attempt')}  {letter.error}",
        )
        self._publish("rate_set", "NO", per_kg=4.5)
        self._wait("the rate of NO", lambda: self._value("parcel_rate", "NO") == 4.5)
        asyncio.run(self._redrive(letter))
        self._story.command(f"headwater dlq redrive {letter.id}")
        self._becomes("parcel_fee", "ada", None, 9.0)

    def a_crash_loses_nothing(self) -> None:
        self._story.step(
            "A crash loses nothing and counts nothing twice",
            f"{_MANY} purchases of 1.00 arrive in one request. As soon as the first of them are "
            "counted, the server is killed with SIGKILL, in the middle of its work, and started "
            "again.",
        )
        line = show({"event_type": "purchase", "entity_id": "grace", "payload": {"amount": 1}})
        body = "\n".join([line] * _MANY)
        pid = self._shop.pid
        answer, spent = asyncio.run(self._crash(body.encode()))
        call = RecordedCall("POST", "/ingest", f"{_MANY} lines of JSON", answer.status, None)
        self._story.call(call, f"{answer.status} accepted")
        self._story.command(f"kill -9 {pid}", f"it had counted {spent:g} of {_MANY} by then")
        self._shop.start()
        self._story.command("headwater serve features.py")
        self._becomes("total_spend", "grace", spent, float(_MANY))

    def a_context_is_proved(self) -> None:
        self._story.step(
            "A model is given a context, and what it was given can be proved",
            "support puts features and what a search found into a budget of tokens: what matters "
            "least is left out, and nothing may be older than five minutes. What it read, kept and "
            "dropped is recorded before the answer is given.",
        )
        self._code("search_help", "support")
        context = self._assemble("support", user_id="ada", question=_QUESTION)
        self._story.quote(context["content"])
        self._tell_what_went_in(context)
        verify = ("context", "verify", str(context["context_id"]))
        said = self._shop.command(*verify)
        self._story.command(f"headwater {' '.join(verify)}", *said)

    def _assemble(self, name: str, **params: object) -> Any:
        path = f"/v1/contexts/{name}"
        body = show({"params": params})
        answer = self._shop.request("POST", path, body.encode())
        if answer.status != 200:
            raise DemoError(f"the demo's server assembled no context: {show(answer.body)}")
        budget = answer.body["lineage"]["max_tokens"]
        self._story.call(
            RecordedCall("POST", path, body, answer.status, answer.body),
            f"{answer.body['tokens']} of {budget} tokens",
        )
        return answer.body

    def _tell_what_went_in(self, context: Any) -> None:
        path = f"/context/{context['context_id']}/explain"
        answer = self._shop.request("GET", path)
        trace = answer.body
        counts = Counter(item["decision"] for item in trace["items"])
        self._story.call(
            RecordedCall("GET", path, "", answer.status, trace),
            ", ".join(
                f"{counts[decision]} {decision}" for decision in sorted(counts, reverse=True)
            ),
        )
        self._story.facts(
            *((item["source_ref"] or item["source_kind"], item["why"]) for item in trace["items"]),
            *(
                (read["feature"], f"{show(read['value'])}, {read['age_ms']} ms old")
                for read in context["lineage"]["features"]
            ),
            (
                "freshness",
                f"{context['freshness_status']}: the oldest is {context['lineage']['stalest_ms']} "
                f"ms old, and {context['freshness_sla_ms']} ms are allowed",
            ),
            ("record", context["record_hash"]),
        )

    def _code(self, *names: str) -> None:
        self._story.code("\n\n".join(source_of(name, self._source) for name in names))

    def _publish(self, event_type: str, entity_id: str, **payload: object) -> None:
        path = f"/ingest/{event_type}"
        body = show({"entity_id": entity_id, "payload": payload})
        answer = self._accepted(self._shop.request("POST", path, body.encode()))
        self._story.call(
            RecordedCall("POST", path, body, answer.status, answer.body),
            f"{answer.status} accepted",
        )

    def _accepted(self, answer: Response) -> Response:
        if answer.status != 202:
            raise DemoError(f"the demo's server refused an event: {show(answer.body)}")
        return answer

    def _read(self, name: str, entity_id: str) -> object:
        path = _path(name, entity_id)
        answer = self._shop.request("GET", path)
        value: object = answer.body.get("value")
        self._story.call(
            RecordedCall("GET", path, "", answer.status, answer.body),
            f"{show(value)}  ({answer.body.get('source')})",
        )
        return value

    def _value(self, name: str, entity_id: str) -> object:
        value: object = self._shop.request("GET", _path(name, entity_id)).body.get("value")
        return value

    def _becomes(self, name: str, entity_id: str, before: object, after: object) -> None:
        """Waits until a value is what it must become, and shows the change."""
        began = time.perf_counter()
        self._wait(f"{name} of {entity_id}", lambda: self._value(name, entity_id) == after)
        waited = (time.perf_counter() - began) * 1000
        self._story.change(Shift(name, entity_id, before, after), f"seen {waited:.0f} ms later")

    def _wait(self, what: str, condition: Callable[[], T]) -> T:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not (result := condition()):
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not come within {_PATIENCE_SECONDS:.0f} s")
            time.sleep(_POLL_SECONDS)
        return result

    async def _first_letter(self) -> DeadLetter:
        async with self._shop.store() as store:
            dead_letters = (await runtime_of(store).open()).backends.dead_letters
            (letter,) = await _wait_for("a dead letter", lambda: dead_letters.letters(limit=1))
        return letter

    async def _crash(self, body: bytes) -> tuple[Response, float]:
        """Sends events and kills the server while it counts them; how far it had come."""
        async with self._shop.store() as store:
            online = (await runtime_of(store).open()).backends.online

            async def spent() -> float:
                # Looked up beside the server: an answer of its own would come too late.
                (cells,) = await online.get("User", ["grace"])
                cell = cells.get("total_spend")
                return 0.0 if cell is None else msgspec.json.decode(cell.value, type=float)

            answer = self._accepted(self._shop.request("POST", "/ingest", body))
            await _wait_for("total_spend of grace", spent)
            self._shop.kill()
            return answer, await spent()

    async def _redrive(self, letter: DeadLetter) -> None:
        async with self._shop.store() as store:
            await (await runtime_of(store).open()).backends.dead_letters.redrive([letter.id])


async def _wait_for(what: str, condition: Callable[[], Awaitable[T]]) -> T:
    """Waits for what another process brings about."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (result := await condition()):
        if time.monotonic() > deadline:
            raise DemoError(f"{what} did not come within {_PATIENCE_SECONDS:.0f} s")
        await asyncio.sleep(_POLL_SECONDS)
    return result


def source_of(name: str, source: str) -> str:
    """The text of a function and its decorators."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            first = min(decorator.lineno for decorator in node.decorator_list)
            return "\n".join(source.splitlines()[first - 1 : node.end_lineno])
    raise DemoError(f"the example has no function {name}")


def _path(name: str, entity_id: str) -> str:
    return f"/v1/features/{name}?{urlencode({'entity_id': entity_id})}"
