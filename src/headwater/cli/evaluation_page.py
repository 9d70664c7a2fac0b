"""The page of an evaluation: one HTML file with its tables and changes of each kind and cause."""

import re
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from html import escape
from importlib.resources import files

import msgspec

from headwater.cli.evaluation_reports import (
    ReportFindings,
    Section,
    base_text,
    causes_text,
    groups_of,
    headline,
    kinds_text,
    overview,
    sections,
    texts_of,
    verdict,
)
from headwater.cli.output import EMPTY, cell_text, pluralize, second_text
from headwater.contexts.evaluation.summary import cause_labels
from headwater.core.short_repr import printable_lines
from headwater.model.evaluations import ComparedContext, EvaluatedContext

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_CONTEXT_LINES = 3
_MOST_COMPARED = 4_000_000
"""Pairs of words; longer passages are marked as a whole."""
_LONGEST_PASSAGE = 12_000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_STATES = {"ok": "good", "BROKEN": "bad", "approximate": "warn", "failed": "bad"}


def html_page(found: ReportFindings) -> str:
    """Return a page that needs no other file, and shows everything without its script, too."""
    report = found.report
    run = report.run
    holds = all(gate.passed for gate in report.gates)
    state = _state("ok" if holds else "BROKEN") if report.gates else ""
    title = f"{run.cohort}: {headline(report)}"
    tables = "".join(map(_section, sections(report)))
    where = (
        f"Cohort <code>{_text(run.cohort)}</code>, run <code>{_text(run.run_id)}</code>, "
        f"{_text(second_text(run.started_at))}: <code>{_text(run.file)}</code> against "
        f"{_text(base_text(report))}."
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{_text(title)}</title>
<style>
{_file("evaluation_page.css")}</style>
</head>
<body>
<h1>{state} {_text(headline(report))}</h1>
<p>{_text(overview(report))}</p>
{"" if report.gates else f"<p>{_text(verdict(report))}</p>"}
<p class="faint">{where}</p>
<div class="tables">{tables}</div>
{_examples(found)}
<script>
{_file("evaluation_page.js")}</script>
</body>
</html>
"""


def _file(name: str) -> str:
    return files("headwater.cli").joinpath(name).read_text("utf-8")


def _text(value: object) -> str:
    return escape(printable_lines(str(value)))


def _state(word: str) -> str:
    return f'<span class="state {_STATES.get(word, "plain")}">{_text(word)}</span>'


def _section(section: Section) -> str:
    head = "".join(
        f'<th class="number">{_text(name)}</th>'
        if _is_number(section, n)
        else f"<th>{_text(name)}</th>"
        for n, name in enumerate(section.columns)
    )
    cells = [
        "".join(_cell(cell, is_number=_is_number(section, n)) for n, cell in enumerate(row))
        for row in section.rows
    ]
    rows = "".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f"<section><h2>{_text(section.title)}</h2><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></section>"
    )


def _is_number(section: Section, column: int) -> bool:
    return section.columns[column] in (
        "contexts",
        "calls",
        "share",
        "approximate",
        "before",
        "after",
        "change",
    )


def _cell(value: object, *, is_number: bool) -> str:
    if value in _STATES:
        return f"<td>{_state(str(value))}</td>"
    text = f"{value:,}" if isinstance(value, int) else cell_text(value)
    return f'<td class="number">{_text(text)}</td>' if is_number else f"<td>{_text(text)}</td>"


def _examples(found: ReportFindings) -> str:
    if not found.examples:
        return "<p>No context differs.</p>"
    contexts = [example.context for example in found.examples]
    choices: dict[str, list[str]] = {
        "cause": sorted({label for context in contexts for label in cause_labels(context)}),
        "kind": sorted({group for context in contexts for group in groups_of(context)}),
        "fidelity": sorted({str(context.fidelity) for context in contexts}),
    }
    selects = "".join(_select(name, values) for name, values in choices.items())
    hidden = ", ".join(f"{count:,} of {name}" for name, count in found.hidden.items())
    more = f"<p>Not on this page: {_text(hidden)}.</p>" if hidden else ""
    shown = "".join(map(_example, found.examples))
    return (
        f"<h2>Contexts that differ</h2>{more}<form hidden>{selects}<output></output></form>{shown}"
    )


def _select(name: str, values: Iterable[str]) -> str:
    options = "".join(f'<option value="{_text(value)}">{_text(value)}</option>' for value in values)
    every = '<option value="">all</option>'
    return f'<label>{name} <select name="{name}">{every}{options}</select></label>'


def _example(example: ComparedContext) -> str:
    context = example.context
    data = (
        f'data-causes="{_text(_json(cause_labels(context)))}" '
        f'data-kinds="{_text(_json(groups_of(context)))}" data-fidelity="{context.fidelity}"'
    )
    state = context.fidelity if context.status == "changed" else context.status
    return (
        f'<details {data}><summary><span class="id">{_text(context.context_id)}</span>'
        f"<span>{_text(kinds_text(context))}</span>"
        f'<span class="faint">{_text(causes_text(context))}</span>'
        f"{_state(state)}</summary>"
        f'<div class="body">{_facts(context)}'
        f"{_compared(example)}</div></details>"
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _facts(context: EvaluatedContext) -> str:
    sides = "record" if context.compared_with == "record" else "former code"
    facts = {
        "context": f"{context.name}, {second_text(context.created_at)}, compared with the {sides}",
        "tokens": _arrow(f"{context.tokens_before:,}", f"{context.tokens_after:,}"),
        "values": ", ".join(context.values),
        "freshness": _arrow(context.freshness_before, context.freshness_after),
        "not exact": "; ".join(context.reasons),
    }
    if context.status == "failed":
        facts = {"context": facts["context"], "error": context.error}
    lines = (f"{_text(name)}: {_text(value)}" for name, value in facts.items() if value)
    return "".join(f"<p>{line}</p>" for line in lines)


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before or EMPTY} → {after or EMPTY}"


def _compared(example: ComparedContext) -> str:
    if example.before is None or example.after is None:
        return f"<p>{_text(example.withheld)}</p>" if example.withheld else ""
    head = '<div class="head">before</div><div class="head right">after</div>'
    before, after = texts_of(example)
    return f'<div class="sides">{head}{"".join(_passages(before, after))}</div>'


def _passages(before: str, after: str) -> Iterator[str]:
    """Yield both texts side by side; equal lines far from a difference are left out."""
    one, two = before.split("\n"), after.split("\n")
    shown = 0
    groups = SequenceMatcher(None, one, two, autojunk=False).get_grouped_opcodes(_CONTEXT_LINES)
    for group in groups:
        yield _gap(group[0][1] - shown)
        for kind, a, b, c, d in group:
            sides = ("\n".join(one[a:b]), "\n".join(two[c:d]))
            if kind == "equal":
                text = _text(sides[0])
                yield f'<pre class="same">{text}</pre><pre class="same right">{text}</pre>'
                continue
            for side, word, place in zip(
                _marked(*sides), ("removed", "added"), ("", "right"), strict=True
            ):
                yield f'<pre class="{word if side else ""} {place}">{side}</pre>'
        shown = group[-1][2]
    yield _gap(len(one) - shown)


def _gap(lines: int) -> str:
    return f'<div class="gap">{pluralize(lines, "equal line")}</div>' if lines else ""


def _marked(before: str, after: str) -> tuple[str, str]:
    """Return both passages as HTML, in which the words that differ are marked."""
    before, after = (_shortened(text) for text in (before, after))
    one, two = _WORD.findall(before), _WORD.findall(after)
    if not one or not two or len(one) * len(two) > _MOST_COMPARED:
        return _text(before), _text(after)
    left, right = list[str](), list[str]()
    for kind, a, b, c, d in SequenceMatcher(None, one, two, autojunk=False).get_opcodes():
        gone, new = _text("".join(one[a:b])), _text("".join(two[c:d]))
        left.append(gone if kind == "equal" or not gone else f"<del>{gone}</del>")
        right.append(new if kind == "equal" or not new else f"<ins>{new}</ins>")
    return "".join(left), "".join(right)


def _shortened(text: str) -> str:
    rest = len(text) - _LONGEST_PASSAGE
    return f"{text[:_LONGEST_PASSAGE]}\n… {rest:,} more characters" if rest > 0 else text
