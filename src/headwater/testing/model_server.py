"""A local stand-in for the APIs of OpenAI and Anthropic, for tests and how-tos."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, NamedTuple, Self

import msgspec

from headwater.messages.counting import counter_for
from headwater.messages.parts import Tool

Json = dict[str, Any]

_ERRORS = {"rate-limited": (429, "rate_limit_error"), "broken": (500, "api_error")}
"""Names of models whose calls fail, with the status and the type of the error."""


class ModelServer:
    """Answers requests of the SDKs of OpenAI and Anthropic in their wire formats, without a model.

    The answer is the sentence of the request that has most words of the question; if there are
    tools and no result of one, it is a call of the first tool. Usage is counted by our counter.
    The models ``rate-limited`` and ``broken`` fail, the stream of ``cut-off`` breaks off, and
    ``held`` sends nothing until ``release`` is called.

    >>> with ModelServer() as server:
    ...     client = openai.OpenAI(base_url=server.url + "/v1", api_key="local")
    """

    def __init__(self) -> None:
        self.requests: list[Json] = []
        """The bodies of the requests."""
        self.cached: set[str] = set()
        self.ids = count(1)
        self.released = threading.Event()
        self.waiting = threading.Event()
        """Set when a request is held."""
        handler = type("Handler", (_Handler,), {"owner": self})
        self._http = _Http(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.01,), name="model-server", daemon=True
        )
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def release(self) -> None:
        """Answer the requests that are held."""
        self.released.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Asked(NamedTuple):
    """A request in the words that the three APIs share."""

    model: str
    messages: Sequence[tuple[str, str]]
    tools: Sequence[Tool]
    cached_prefix: str

    @property
    def question(self) -> str:
        """The last paragraph that the user wrote; those before it may be what a search found."""
        asked = next((text for role, text in reversed(self.messages) if role == "user"), "")
        return asked.rpartition("\n\n")[2]

    @property
    def input_tokens(self) -> int:
        counter = counter_for(self.model)
        texts = sum(
            counter.message_tokens + counter.tokenizer.count(text) for _, text in self.messages
        )
        tools = sum(map(counter.part_tokens, self.tools)) + counter.tools_tokens
        return counter.request_tokens + texts + (tools if self.tools else 0)

    def tokens(self, text: str) -> int:
        return counter_for(self.model).tokenizer.count(text)

    def call(self) -> tuple[str, Json] | None:
        """Return the name and the arguments of the tool that is called, if one is."""
        if not self.tools or self.messages[-1][0] == "tool":
            return None
        schema = self.tools[0].parameters or {}
        return self.tools[0].name, {name: self.question for name in schema.get("properties", ())}

    def text(self) -> str:
        return _best_sentence(self.question, [text for _, text in self.messages])


def _best_sentence(question: str, texts: Iterable[str]) -> str:
    """Return the sentence that has most words of a question; of several the first."""
    words = _words(question)
    found = [each for text in texts for each in _sentences(text) if not each.endswith("?")]
    return max(found, key=lambda each: len(words & _words(each)), default="I do not know.")


def _sentences(text: str) -> list[str]:
    return [each for each in re.split(r"(?<=[.?!])\s+|\n", text) if each]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


def _text(content: Any) -> str:
    """Return the text of a message's content: text, or a list of parts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return str(content.get("text") or _text(content.get("content", content.get("output"))))
    return "".join(map(_text, content or ()))


def _asked(path: str, body: Json) -> _Asked:
    system, marked = body.get("system") or body.get("instructions"), ""
    given = body.get("messages", body.get("input"))
    given = [{"role": "user", "content": given}] if isinstance(given, str) else given
    messages = [("system", _text(system))] if system else []
    for message in given or ():
        blocks = message.get("content")
        kinds = {each.get("type") for each in blocks or () if isinstance(each, Mapping)}
        is_result = "tool_result" in kinds or message.get("type") == "function_call_output"
        role = "tool" if is_result else message.get("role", "assistant")
        messages.append((role, _text(message)))
    if path == "/v1/messages" and b"cache_control" in msgspec.json.encode([system, given]):
        marked = messages[0][1]
    defined = [tool.get("function") or tool for tool in body.get("tools") or ()]
    tools = [
        Tool(
            name=each["name"],
            description=each.get("description") or "",
            parameters=each.get("parameters") or each.get("input_schema"),
        )
        for each in defined
    ]
    return _Asked(body["model"], messages, tools, marked)


def _pieces(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text)


def _chat(asked: _Asked, id: int) -> tuple[Json, Iterator[Json]]:
    """Return an answer of ``POST /v1/chat/completions``, and the events of its stream."""
    called, shared = asked.call(), {"id": f"chatcmpl-{id}", "created": 1_790_000_000}
    shared |= {"model": f"{asked.model}-2026-08-01", "system_fingerprint": "fp_local"}
    if called is None:
        text = asked.text()
        message: Json = {"content": text}
        deltas: list[Json] = [{"content": piece} for piece in _pieces(text)]
    else:
        arguments = msgspec.json.encode(called[1]).decode()
        function = {"name": called[0], "arguments": arguments}
        text = arguments
        call = {"id": f"call_{id}", "type": "function"}
        message = {"content": None, "tool_calls": [{**call, "function": function}]}
        begun = {"index": 0, **call, "function": {**function, "arguments": ""}}
        deltas = [{"tool_calls": [begun]}]
        deltas += [
            {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}
            for piece in re.findall(".{1,4}", arguments, re.S)
        ]
    reason = "stop" if called is None else "tool_calls"
    read, written = asked.input_tokens, asked.tokens(text)
    usage = {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
    message = {"role": "assistant", "refusal": None, **message}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    whole = {**shared, "object": "chat.completion", "choices": [choice], "usage": usage}

    def events() -> Iterator[Json]:
        shared["object"] = "chat.completion.chunk"
        first = {"role": "assistant", "content": "" if called is None else None, "refusal": None}
        for delta in [first, *deltas, {}]:
            end = None if delta else reason
            piece = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}
            yield {**shared, "choices": [piece]}
        yield {**shared, "choices": [], "usage": usage}

    return whole, events()


def _responses(asked: _Asked, id: int) -> tuple[Json, Iterator[Json]]:
    """Return an answer of ``POST /v1/responses``, and the events of its stream."""
    called = asked.call()
    text = asked.text() if called is None else msgspec.json.encode(called[1]).decode()
    part: Json = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item: Json = {"id": f"msg_{id}", "type": "message", "role": "assistant", "content": [part]}
    empty: Json = {**item, "content": []}
    kind, place = "output_text", {"item_id": item["id"], "output_index": 0}
    if called is not None:
        item = {"id": f"fc_{id}", "type": "function_call", "call_id": f"call_{id}"}
        item |= {"name": called[0], "arguments": text}
        empty, kind = {**item, "arguments": ""}, "function_call_arguments"
    read, written = asked.input_tokens, asked.tokens(text)
    usage = {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": written,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + written,
    }
    begun: Json = {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": 1_790_000_000,
        "model": f"{asked.model}-2026-08-01",
        "status": "in_progress",
        "output": [],
        "error": None,
        "incomplete_details": None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
    }
    done = {**item, "status": "completed"}
    whole = {**begun, "status": "completed", "output": [done], "usage": usage}

    def events() -> Iterator[Json]:
        yield {"type": "response.created", "response": begun}
        added = {**empty, "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": 0, "item": added}
        if called is None:
            place["content_index"] = 0
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        for piece in _pieces(text):
            yield {"type": f"response.{kind}.delta", **place, "delta": piece, "logprobs": []}
        name = "text" if called is None else "arguments"
        yield {"type": f"response.{kind}.done", **place, name: text, "logprobs": []}
        if called is None:
            yield {"type": "response.content_part.done", **place, "part": part}
        yield {"type": "response.output_item.done", "output_index": 0, "item": done}
        yield {"type": "response.completed", "response": whole}

    return whole, (event | {"sequence_number": number} for number, event in enumerate(events()))


def _messages(asked: _Asked, id: int, *, is_cached: bool) -> tuple[Json, Iterator[Json]]:
    """Return an answer of ``POST /v1/messages``, and the events of its stream."""
    called = asked.call()
    block: Json = {"type": "text", "text": asked.text()}
    empty: Json = {"type": "text", "text": ""}
    name, text = "text", block["text"]
    if called is not None:
        block = {"type": "tool_use", "id": f"toolu_{id}", "name": called[0], "input": called[1]}
        empty, name, text = {**block, "input": {}}, "partial_json", _json(called[1])
    cached = asked.tokens(asked.cached_prefix)
    usage = {
        "input_tokens": asked.input_tokens - cached,
        "cache_creation_input_tokens": 0 if is_cached else cached,
        "cache_read_input_tokens": cached if is_cached else 0,
        "output_tokens": asked.tokens(text),
    }
    shared = {"id": f"msg_{id}", "type": "message", "role": "assistant", "model": asked.model}
    reason = "end_turn" if called is None else "tool_use"
    end = {"stop_reason": reason, "stop_sequence": None}
    whole = {**shared, "content": [block], **end, "usage": usage}

    def events() -> Iterator[Json]:
        open_end = {"stop_reason": None, "stop_sequence": None}
        begun: Json = {**shared, "content": [], **open_end, "usage": {**usage, "output_tokens": 1}}
        yield {"type": "message_start", "message": begun}
        yield {"type": "content_block_start", "index": 0, "content_block": empty}
        yield {"type": "ping"}
        kind = "text_delta" if called is None else "input_json_delta"
        for piece in _pieces(text):
            delta = {"type": kind, name: piece}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}
        counted = {"output_tokens": usage["output_tokens"]}
        yield {"type": "message_delta", "delta": end, "usage": counted}
        yield {"type": "message_stop"}

    return whole, events()


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """Write nothing to the terminal if a client hangs up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ModelServer

    def log_message(self, *_: object) -> None:
        """Write nothing to the terminal."""

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        body = msgspec.json.decode(self.rfile.read(int(self.headers["content-length"])))
        self.owner.requests.append(body)
        model = body.get("model")
        if model in _ERRORS:
            status, kind = _ERRORS[model]
            problem = {"type": kind, "message": f"the model {model} fails", "code": None}
            self._send(status, {"type": "error", "error": problem})
            return
        if model == "held":
            self.owner.waiting.set()
            self.owner.released.wait(60)
        asked, id = _asked(path, body), next(self.owner.ids)
        if path == "/v1/messages":
            is_cached = asked.cached_prefix in self.owner.cached
            self.owner.cached.add(asked.cached_prefix)
            whole, events = _messages(asked, id, is_cached=is_cached)
        elif path == "/v1/responses":
            whole, events = _responses(asked, id)
        else:
            whole, events = _chat(asked, id)
        if body.get("stream"):
            has_usage = (body.get("stream_options") or {}).get("include_usage", False)
            self._stream(path, events, cut=model == "cut-off", has_usage=has_usage)
        else:
            self._send(200, whole)

    def _send(self, status: int, answer: Json) -> None:
        content = msgspec.json.encode(answer)
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, path: str, events: Iterator[Json], *, cut: bool, has_usage: bool) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for place, event in enumerate(events):
            if cut and place == 5:
                self.close_connection = True
                return
            if "choices" in event and not event["choices"] and not has_usage:
                continue
            name = f"event: {event['type']}\n" if "type" in event else ""
            self._write(f"{name}data: {_json(event)}\n\n")
        if path.endswith("/completions"):
            self._write("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _write(self, text: str) -> None:
        content = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
        self.wfile.flush()
