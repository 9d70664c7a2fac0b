"""Results of tools: a value, its text for the model, and facts about it in ``_meta``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from mcp_types import CallToolResult, ContentBlock, TextContent

from headwater.access.bounded_verbs import CALL_RULES
from headwater.core.codec import encode_custom
from headwater.core.json_values import plain
from headwater.errors.base import RequestError
from headwater.model.contexts import RecordSummary
from headwater.model.lineage import ContextFacts
from headwater.model.problems import STORE_RULES, Rule, rule_of

META_PREFIX = "headwater/"

_RULES = {**STORE_RULES, **CALL_RULES, RequestError: Rule(403, "refused", "Not allowed")}


class ResultFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a result, each None if it does not apply.

    ``record_hash`` is the hash of the record, ``as_of`` the time that the result is about (of
    several values, the oldest), and ``freshness`` the verdict by the declared SLAs.
    """

    record_hash: str | None = None
    as_of: datetime | None = None
    freshness: str | None = None

    def meta(self) -> dict[str, Any]:
        """Return the facts as members of ``_meta``."""
        facts = msgspec.to_builtins(msgspec.structs.asdict(self))
        return {META_PREFIX + name: fact for name, fact in facts.items() if fact is not None}


def record_facts(context: ContextFacts | RecordSummary) -> ResultFacts:
    """Return the facts about a recorded context."""
    return ResultFacts(
        record_hash=context.record_hash,
        as_of=context.created_at,
        freshness=context.freshness_status,
    )


class ToolAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a tool; without ``content``, the text is the value as JSON."""

    value: msgspec.Struct
    facts: ResultFacts = ResultFacts()
    content: Sequence[ContentBlock] = ()


def to_json(value: Any) -> str:
    """Return a value as JSON text; values without a JSON form are tagged."""
    return msgspec.json.encode(plain(value), enc_hook=encode_custom).decode()


def call_result(result: ToolAnswer) -> CallToolResult:
    """Return the answer to a call that succeeded."""
    value = msgspec.to_builtins(plain(result.value), str_keys=True, enc_hook=encode_custom)
    return CallToolResult(
        content=[*result.content] or [TextContent(text=to_json(result.value))],
        structured_content=value,
        _meta=result.facts.meta(),
    )


def failed_call(error: Exception) -> CallToolResult:
    """Return the answer to a call that failed."""
    return CallToolResult(
        content=[TextContent(text=problem_text(error))],
        is_error=True,
        _meta={f"{META_PREFIX}problem": rule_of(error, _RULES).name},
    )


def problem_text(error: Exception) -> str:
    """Return the problem and its remedy in words, without messages of user code."""
    rule = rule_of(error, _RULES)
    return f"{rule.title}: {rule.detail.format(error)}"
