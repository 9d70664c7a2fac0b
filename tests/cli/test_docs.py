"""`headwater docs`, and features with an owner, tags and a unit on the command line."""

from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.cli.conftest import Run

BANK = '''
from headwater import ContextItem, FeatureStore, Index, ServiceEvent, context, entity, feature
from headwater import retriever

store = FeatureStore()

@entity(store)
class Customer:
    """A person with an account."""
    customer_id: str

@feature(
    entity=Customer, trigger="purchase", window=["1h", "7d"], aggregate=["sum", "count"],
    unit="EUR", owner="risk", tags=["money", "fraud"],
)
def spend(customer_id: str, event: ServiceEvent) -> float:
    """What a customer pays.

    By card | or <b>cash</b>:
    - in shops
    - # elsewhere
    ===
    """
    return event.payload["amount"]

@feature(entity=Customer, stored=True, default=0, unit="tickets", owner="support", tags=["fraud"])
def open_tickets(customer_id: str) -> int: ...

@feature(entity=Customer, refresh="1h", ttl="2h", freshness_sla="90m", owner="risk")
async def score(customer_id: str) -> float | None:
    """How likely a loss is."""
    return 0.25

@feature(entity=Customer, template="{spend_sum_7d} spent, {open_tickets|no} tickets open")
def summary(customer_id: str) -> str: ...

Index(store, "help")

@retriever(store, index="help", top_k=3)
async def search_help(query: str): ...

@context(store, max_tokens=400)
async def copilot(customer_id: str, question: str = "a|b `c`"):
    """What the copilot is told."""
    await search_help(question)
    return [ContextItem(await store.get_feature("summary", customer_id), priority=1)]
'''


@pytest.fixture
def folder(folder: Path) -> Path:
    (folder / "features.py").write_text(BANK)
    return folder


def rendered(page: str) -> str:
    return str(MarkdownIt("gfm-like", {"linkify": False}).render(page))


def test_docs_writes_a_page_of_all_declarations_for_a_teams_wiki(run: Run) -> None:
    page = run("docs").out
    for title in ("Entities", "Events", "Features of Customer", "Indexes", "Retrievers"):
        assert f"\n## {title}\n" in page
    for name in ("Customer", "purchase", "spend", "score", "help", "search_help", "copilot"):
        assert f"\n### {name}\n" in page
    assert "A person with an account." in page
    assert "| [open_tickets](#feature-open_tickets) | `int` | tickets | only when it is set" in page
    for fact in ("unit: EUR", "owner: risk", "tags: money, fraud", "ttl: `2h`", "default: `0`"):
        assert f"\n* {fact}\n" in page
    assert "* freshness sla: `1h 30m`" in page
    assert "* max tokens: `400`" in page
    assert "| sum | `spend_sum_1h` | `spend_sum_7d` |" in page
    assert "* needs: [spend](#feature-spend), [open_tickets](#feature-open_tickets)" in page
    assert 'n0[/"spend<br/>window, EUR, risk"/]' in page


def test_every_link_of_the_page_leads_to_a_heading_of_it(run: Run) -> None:
    html = rendered(run("docs").out.replace('<a id="', "ID(").replace('"></a>', ")"))
    links = {part.partition('"')[0] for part in html.split('href="#')[1:]}
    anchors = [part.partition(")")[0] for part in html.split("ID(")[1:]]
    assert len(anchors) == len(set(anchors))
    assert links
    assert links <= set(anchors)


def test_words_of_a_declaration_cannot_change_the_page(run: Run) -> None:
    html = rendered(run("docs").out)
    assert "By card | or &lt;b&gt;cash&lt;/b&gt;:" in html
    assert "<li>in shops</li>" in html
    assert "<li># elsewhere\n===</li>" in html
    assert "<td><code>float | None</code></td>" in html
    assert "<code>customer_id: str, question: str = a|b `c`</code>" in html
    assert html.count("<h2>") == 7


def test_the_page_changes_only_with_the_declarations(folder: Path, run: Run) -> None:
    page = run("docs").out
    assert run("docs").out == page
    file = ("--output", "DECLARATIONS.md")
    missing = run("docs", *file, "--check")
    assert (missing.code, "DECLARATIONS.md is not the page" in missing.err) == (1, True)
    assert run("docs", *file).out == ""
    assert (folder / "DECLARATIONS.md").read_text() == page
    assert run("docs", *file, "--check").code == 0
    (folder / "features.py").write_text(BANK.replace('unit="EUR"', 'unit="USD"'))
    assert run("docs", *file, "--check").code == 1
    assert run("docs", *file).code == 0
    assert run("docs", *file, "--check").code == 0
    assert run("docs", "--check").code == 2


def test_the_page_says_what_belongs_to_whom(folder: Path, run: Run) -> None:
    ticket = '@store.entity(belongs_to={"customer_id": Customer})\nclass Ticket:\n    id: str\n'
    opened = "def subject(id: str, event: ServiceEvent) -> str:\n    return ''\n"
    opened = f'@feature(entity=Ticket, trigger="opened")\n{opened}'
    (folder / "features.py").write_text(BANK + ticket + opened)

    page = run("docs").out

    assert "* belongs to: `Customer by customer_id`\n" in page
    assert "* owns: [Ticket](#entity-Ticket)\n" in page
    assert "* needs: [Ticket]" not in page


def test_a_page_of_nothing_says_so(folder: Path, run: Run) -> None:
    (folder / "features.py").write_text(
        "from headwater import FeatureStore\nstore = FeatureStore()"
    )
    assert "Nothing is declared." in run("docs").out


def test_features_are_listed_by_owner_and_tag(run: Run) -> None:
    def listed(*options: str) -> list[str]:
        return [each["name"] for each in run("features", "list", "--json", *options).json]

    assert listed("--owner", "support") == ["open_tickets"]
    assert listed("--owner", "") == ["summary"]
    assert listed("--tag", "fraud", "--tag", "money", "--owner", "risk")[0] == "spend"
    assert "score" not in listed("--tag", "fraud")
    assert listed("--entity", "Nobody") == []
    heading, *rows = run("features", "list").out.splitlines()
    assert heading.split()[-3:] == ["OWNER", "TAGS", "DESCRIPTION"]
    assert [row.split()[0] for row in rows] == ["spend", "open_tickets", "score", "summary"]
    assert "money, fraud" in rows[0]
    assert "spend_sum_7d" in run("features", "list", "--windows").out


def test_one_feature_is_shown_with_description_owner_tags_and_unit(run: Run) -> None:
    shown = run("features", "show", "spend_sum_7d").out
    assert shown.startswith("sum of spend over 7d: What a customer pays.\n")
    facts = dict(line.split(None, 1) for line in shown.splitlines() if "  " in line)
    assert (facts["unit"], facts["owner"], facts["tags"]) == ("EUR", "risk", "money, fraud")
    assert facts["family"] == "spend"
    assert facts["type"] == "float"
    family = run("features", "show", "spend", "--json").json
    assert (family["unit"], family["needed_by"]) == ("EUR", ["summary"])
    assert run("features", "show", "spend_count_1h", "--json").json["unit"] == ""
    assert "did you mean 'spend'" in run("features", "show", "spent").err


def test_the_graph_draws_one_node_for_a_family_unless_windows_are_asked_for(run: Run) -> None:
    assert "spend_sum_7d" not in run("graph").out
    assert 'spend_sum_7d<br/>window, EUR, risk"' in run("graph", "--windows").out
    (node,) = (node for node in run("graph", "--json").json["nodes"] if node["name"] == "score")
    assert (node["owner"], node["description"]) == ("risk", "How likely a loss is.")
