"""The reference lists every tool, resource and fact, and nothing else."""

from headwater import FeatureStore
from headwater.mcp.resources import CONTEXT_TEMPLATE, DECLARATIONS, RECORD_TEMPLATE
from headwater.mcp.results import META_PREFIX, ResultFacts
from headwater.mcp.tools import StoreTools
from headwater.settings.schema import Settings
from tests.docs.pages import DOCS, quoted, rows, sections

SECTIONS = sections(DOCS / "reference" / "mcp.md")


def test_every_tool_is_listed_with_its_scope() -> None:
    tools = StoreTools(FeatureStore(settings=Settings())).tools()
    listed = [(quoted(row[0]), row[1]) for row in rows(SECTIONS["Tools"])]
    assert listed == [(tool.name, tool.scope) for tool in tools]


def test_every_resource_is_listed() -> None:
    listed = {quoted(row[0]) for row in rows(SECTIONS["Resources"])}
    assert listed == {DECLARATIONS, CONTEXT_TEMPLATE, RECORD_TEMPLATE}


def test_every_fact_is_listed() -> None:
    listed = {quoted(row[0]) for row in rows(SECTIONS["Facts in `_meta`"])}
    facts = (*ResultFacts.__struct_fields__, "problem")
    assert listed == {META_PREFIX + name for name in facts}
