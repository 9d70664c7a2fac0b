"""The tools of the MCP server, as a client sees them."""

import json
from datetime import datetime, timedelta
from pathlib import Path

import jsonschema
import pytest
from mcp import Client, MCPError
from mcp_types import ResourceLink, TextContent, TextResourceContents

from headwater import FeatureStore
from headwater.core.logging import log
from headwater.mcp.server import create_server
from headwater.mcp.transports import STDIO_CALLER
from headwater.model.callers import Caller, CallerLimits
from headwater.store.loader import load_store
from headwater.store.verbs.records import ContextReadVerbs
from headwater.store.verbs.verb import declared
from tests.mcp.conftest import as_caller, call, facts, problem

READ_ONLY = {
    "get_feature",
    "get_features",
    "get_windows",
    "list_declarations",
    "search_index",
    "list_contexts",
    "explain_context",
    "get_lineage",
    "verify_record",
}
ADDING = {"assemble_context", "add_score", "context_support", "context_endless"}


async def test_every_tool_has_schemas_and_says_whether_it_only_reads(shop: FeatureStore) -> None:
    async with as_caller(shop) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert tools.keys() == READ_ONLY | ADDING
    for name, tool in tools.items():
        assert tool.description
        assert tool.annotations
        assert tool.annotations.read_only_hint is (name in READ_ONLY)
        assert tool.annotations.destructive_hint is False
        for schema in (tool.input_schema, tool.output_schema):
            assert schema
            assert schema["type"] == "object"
            jsonschema.Draft202012Validator.check_schema(schema)


async def test_a_model_scores_a_context_if_its_key_has_the_scope(shop: FeatureStore) -> None:
    ctx = await shop.assemble("support", {"user_id": "ada", "question": "Where is it?"})
    score = {"ref": ctx.context_id, "name": "helpful", "value": 4, "explanation": "It is short."}
    scorer = Caller("judge", frozenset({"outcomes", "records"}))
    async with as_caller(shop, scorer) as client:
        added, _ = await call(client, "add_score", **score)
        explained, _ = await call(client, "explain_context", ref=ctx.context_id)
    assert (added["kind"], added["judge"], added["actor"]) == ("score", "model", "judge")
    assert [outcome["outcome_id"] for outcome in explained["outcomes"]] == [added["outcome_id"]]
    async with as_caller(shop, Caller("reader", frozenset({"records"}))) as client:
        assert "add_score" not in {tool.name for tool in (await client.list_tools()).tools}


async def test_a_context_is_a_tool_with_the_parameters_of_its_function(shop: FeatureStore) -> None:
    async with as_caller(shop) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    tool = tools["context_support"]
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "user_id": {"type": "string"},
            "question": {"type": "string"},
            "tone": {"type": "string", "default": "calm"},
        },
        "required": ["user_id", "question"],
        "additionalProperties": False,
    }
    assert tool.description == (
        "All that an agent needs to answer a question. At most 200 tokens. If a value is older "
        "than 5m, the context is marked as degraded."
    )


async def test_features_carry_their_time_and_the_verdict_of_their_sla(shop: FeatureStore) -> None:
    async with as_caller(shop) as client:
        one, known = await call(client, "get_feature", feature="total_spend", entity_id="ada")
        many, mixed = await call(
            client, "get_features", features=["total_spend", "shout"], entity_ids=["ada", "bob"]
        )
    assert (one["value"], one["source"]) == (5.0, "online")
    assert known == {"as_of": one["as_of"], "freshness": "guaranteed"}
    assert datetime.now().astimezone() - datetime.fromisoformat(one["as_of"]) < timedelta(hours=1)
    assert many["entity"] == "User"
    assert [row["values"]["total_spend"]["value"] for row in many["rows"]] == [5.0, None]
    # Nothing is known of bob, although total_spend has an SLA.
    assert mixed["freshness"] == "degraded"


async def test_a_model_learns_what_a_value_means_and_what_it_is_counted_in(
    shop: FeatureStore,
) -> None:
    async with as_caller(shop) as client:
        listed, _ = await call(client, "list_declarations", kind="features")
        one, _ = await call(client, "get_feature", feature="total_spend", entity_id="ada")
        many, _ = await call(
            client, "get_features", features=["total_spend", "shout"], entity_ids=["ada"]
        )
    spend = {each["name"]: each for each in listed["features"]}["total_spend"]
    assert spend["description"] == "What a user spends."
    assert (spend["owner"], spend["tags"], spend["unit"]) == ("shop", ["money"], "EUR")
    assert one["unit"] == "EUR"
    assert many["units"] == {"total_spend": "EUR"}


@pytest.mark.both_environments
async def test_a_context_is_text_for_the_model_with_a_record_that_verifies(
    shop: FeatureStore,
) -> None:
    async with as_caller(shop) as client:
        result = await client.call_tool("context_support", {"user_id": "ada", "question": "Why?"})
        text, link = result.content
        found = result.structured_content
        assert isinstance(text, TextContent)
        assert text.text == found["content"] == "Question: Why?\n\nada spent 5.0, calm"
        assert isinstance(link, ResourceLink)
        assert link.uri == f"headwater://context/{found['context_id']}"
        known = facts(result.meta)
        assert known == {
            "record_hash": found["record_hash"],
            "as_of": found["created_at"],
            "freshness": "guaranteed",
        }
        for tool in ("explain_context", "get_lineage", "verify_record"):
            for ref in (found["context_id"], found["record_hash"]):
                value, same = await call(client, tool, ref=ref)
                assert same == known, tool
                assert value["record_hash"] == known["record_hash"]
        report, _ = await call(client, "verify_record", ref=found["context_id"])
        assert report["ok"] is True
        page, _ = await call(client, "list_contexts", name="support")
        assert [each["context_id"] for each in page["contexts"]] == [found["context_id"]]


async def test_a_tool_of_a_verb_takes_all_its_arguments_within_its_bounds(
    shop: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = declared(ContextReadVerbs.list_contexts)
    async with as_caller(shop) as client:
        for question in ("first", "second"):
            await call(client, "context_support", user_id="ada", question=question)
        newest, _ = await call(client, "list_contexts")
        oldest, _ = await call(
            client, "list_contexts", order="oldest", start="2020-01-01T00:00:00Z"
        )
        assert oldest["contexts"] == newest["contexts"][::-1]
        assert "<= 100" in await problem(client, "list_contexts", limit=101)
    monkeypatch.setitem(vars(listing), "at_once", 0)
    async with as_caller(shop) as client:
        text = await problem(client, "list_contexts")
        assert text.startswith("Too many calls at once: 0 requests run list_contexts")


async def test_a_context_by_name_takes_tighter_limits(shop: FeatureStore) -> None:
    given = {"context": "support", "params": {"user_id": "ada", "question": "Why?"}}
    async with as_caller(shop) as client:
        found, _ = await call(client, "assemble_context", **given, max_tokens=8)
        refused = await problem(client, "assemble_context", **given, max_tokens=100_000)
    assert 0 < found["tokens"] <= 8
    assert refused.startswith("Option is looser than declared: ")


async def test_a_search_names_the_time_of_the_index(shop: FeatureStore) -> None:
    await shop.index("help", "parcels", "Parcels arrive within 3 days.")
    async with as_caller(shop) as client:
        found, known = await call(
            client, "search_index", index="help", query="parcels", mode="text"
        )
    assert [chunk["document"] for chunk in found["chunks"]] == ["parcels"]
    assert known.keys() == {"as_of"}


async def test_declarations_are_listed_by_kind(shop: FeatureStore) -> None:
    async with as_caller(shop) as client:
        everything, _ = await call(client, "list_declarations")
        contexts, _ = await call(client, "list_declarations", kind="contexts")
    assert [each["name"] for each in everything["features"]] == ["total_spend", "shout", "broken"]
    assert [each["name"] for each in everything["events"]] == ["purchase"]
    assert contexts["features"] == []
    assert contexts["contexts"] == everything["contexts"]


async def test_errors_are_results_with_the_problem_and_the_remedy(shop: FeatureStore) -> None:
    async with as_caller(shop) as client:
        assert await problem(client, "get_feature", feature="totl_spend", entity_id="ada") == (
            "Name not declared: unknown feature 'totl_spend'; did you mean 'total_spend'?"
        )
        assert await problem(client, "get_feature", feature="shout") == (
            "Invalid input: the argument 'entity_id' is required"
        )
        assert await problem(client, "get_feature", feature="shout", entity="ada") == (
            "Invalid input: unknown argument 'entity'; did you mean 'entity_id'?"
        )
        assert "Expected `str`" in await problem(client, "get_feature", feature=1, entity_id="ada")
        assert "needs the parameter 'question'" in await problem(
            client, "context_support", user_id="ada"
        )
        assert "no recorded context" in await problem(client, "verify_record", ref="0" * 36)


async def test_a_call_reads_at_most_as_many_values_as_a_request(
    shop: FeatureStore, monkeypatch: pytest.MonkeyPatch, features: Path
) -> None:
    monkeypatch.setenv("HEADWATER_HTTP_MAX_VALUES", "3")
    given = {"features": ["shout", "total_spend"], "entity_ids": ["ada", "bob"]}
    async with as_caller(load_store(features)) as client:
        text = await problem(client, "get_features", **given)
    assert text.startswith("Invalid input: the call is for 4 values, more than the maximum of 3")


async def test_a_host_of_an_earlier_revision_is_served(shop: FeatureStore) -> None:
    async with as_caller(shop, mode="legacy") as client:
        assert client.protocol_version < "2026"
        value, known = await call(client, "get_feature", feature="total_spend", entity_id="ada")
        assert (value["value"], known["freshness"]) == (5.0, "guaranteed")


async def test_an_unknown_tool_is_a_protocol_error_with_a_suggestion(shop: FeatureStore) -> None:
    async with as_caller(shop) as client:
        with pytest.raises(MCPError, match="unknown tool 'get_featur'; did you mean 'get_feature'"):
            await client.call_tool("get_featur", {})


async def test_messages_of_user_code_stay_in_the_log(
    shop: FeatureStore, capfd: pytest.CaptureFixture[str]
) -> None:
    async with as_caller(shop) as client:
        text = await problem(client, "get_feature", feature="broken", entity_id="ada")
    assert text == (
        "Feature computation failed: feature 'broken' failed for 'ada'; see the server log for the "
        "cause"
    )
    log.flush()
    logged = capfd.readouterr().err
    assert "mcp request failed" in logged
    assert "hunter2" in logged


@pytest.mark.parametrize(
    "hostile",
    [
        "\x00",
        "' OR 1=1 --",
        "../../etc/passwd",
        "{0.__class__}",
        "💥" * 500,
        "\x1b[31m",
        "a" * 9_999,
    ],
)
async def test_hostile_texts_are_values_or_problems(shop: FeatureStore, hostile: str) -> None:
    async with as_caller(shop) as client:
        for tool, arguments in (
            ("get_feature", {"feature": hostile, "entity_id": hostile}),
            ("get_feature", {"feature": "shout", "entity_id": hostile}),
            ("search_index", {"index": "help", "query": hostile, "mode": "text"}),
            ("verify_record", {"ref": hostile}),
            ("context_support", {"user_id": "ada", "question": hostile}),
            ("list_contexts", {"cursor": hostile}),
            ("list_declarations", {hostile: hostile}),
        ):
            result = await client.call_tool(tool, arguments)
            if result.is_error:
                (content,) = result.content
                assert isinstance(content, TextContent)
                assert "Internal server error" not in content.text, (tool, content.text)


async def test_texts_that_json_cannot_answer_are_refused(shop: FeatureStore) -> None:
    async with as_caller(shop) as client:
        params = {"user_id": "ada", "question": "\ud800"}
        assert "in the arguments" in await problem(client, "context_support", **params)


async def test_a_caller_sees_and_calls_only_the_tools_of_its_scopes(shop: FeatureStore) -> None:
    reader = Caller("reader", frozenset({"read"}))
    async with as_caller(shop, reader) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == {
            "get_feature",
            "get_features",
            "get_windows",
            "list_declarations",
            "search_index",
        }
        for tool in ("verify_record", "context_support"):
            assert await problem(client, tool) == (
                f"Not allowed: the key 'reader' does not have the scope "
                f"'{'records' if tool == 'verify_record' else 'assemble'}'; use a key that has it"
            )
        resources = await client.list_resources()
        assert [each.uri for each in resources.resources] == ["headwater://declarations"]
        with pytest.raises(MCPError, match="does not have the scope 'records'"):
            await client.read_resource("headwater://context/0")


async def test_a_key_with_limits_sees_and_calls_only_what_they_allow(shop: FeatureStore) -> None:
    await shop.assemble("support", {"user_id": "zed", "question": "Why?"})
    limits = CallerLimits(tenant="a", contexts=frozenset({"support"}))
    async with as_caller(shop, Caller("tenant", limits=limits)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert "context_support" in names
        assert "context_endless" not in names
        listed, _ = await call(client, "list_declarations")
        assert [each["name"] for each in listed["contexts"]] == ["support"]
        assert (len(listed["entities"]), listed["indexes"]) == (1, [])
        await call(client, "get_feature", feature="shout", entity_id="ada")
        found, _ = await call(client, "context_support", user_id="ada", question="Why?")
        page, _ = await call(client, "list_contexts")
        assert [each["context_id"] for each in page["contexts"]] == [found["context_id"]]
        for tool, arguments in (
            ("get_feature", {"feature": "shout", "entity_id": "zed"}),
            ("context_support", {"user_id": "zed", "question": "Why?"}),
            ("context_endless", {"folder": "/nowhere"}),
            ("search_index", {"index": "help", "query": "parcels", "mode": "text"}),
        ):
            text = await problem(client, tool, **arguments)
            assert text.startswith("Outside of the limits of the key: "), (tool, text)
        (shown,) = (await client.read_resource("headwater://declarations")).contents
        assert isinstance(shown, TextResourceContents)
        assert [each["name"] for each in json.loads(shown.text)["contexts"]] == ["support"]


async def test_without_an_admitted_caller_nothing_is_answered(shop: FeatureStore) -> None:
    async with Client(create_server(shop)) as client:
        with pytest.raises(MCPError, match="admitted no caller"):
            await client.list_tools()
        assert await problem(client, "get_feature", feature="shout", entity_id="ada")


async def test_resources_are_paged_and_read_by_their_address(shop: FeatureStore) -> None:
    recorded = [
        await shop.assemble("support", {"user_id": "ada", "question": str(number)})
        for number in range(60)
    ]
    async with as_caller(shop, STDIO_CALLER) as client:
        first = await client.list_resources()
        assert first.next_cursor
        second = await client.list_resources(cursor=first.next_cursor)
        listed = [each for page in (first, second) for each in page.resources]
        assert listed[0].uri == "headwater://declarations"
        assert [each.name for each in listed[1:]] == [each.context_id for each in recorded[::-1]]
        newest = recorded[-1]
        assert facts(listed[1].meta)["record_hash"] == newest.record_hash
        templates = (await client.list_resource_templates()).resource_templates
        assert {each.uri_template for each in templates} == {
            "headwater://record/{hash}",
            "headwater://context/{id}",
        }
        for uri in (listed[1].uri, f"headwater://record/{newest.record_hash}"):
            read = await client.read_resource(uri)
            assert facts(read.meta)["record_hash"] == newest.record_hash
            assert newest.record_hash in read.contents[0].model_dump()["text"]
        for uri in ("headwater://other", "file:///etc/passwd", "headwater://record/unknown"):
            with pytest.raises(MCPError, match="ot found: "):
                await client.read_resource(uri)
