"""Reports of an evaluation as data: its sections, the contexts to show, JUnit and Markdown."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import unified_diff
from html import escape as html_escape
from itertools import islice, zip_longest
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from headwater.cli.markdown import code, escaped, table
from headwater.cli.output import EMPTY, cell_text
from headwater.contexts.evaluation.gates import usd
from headwater.contexts.evaluation.summary import cause_labels
from headwater.core.json_values import plain
from headwater.core.short_repr import printable, printable_lines
from headwater.model.evaluations import (
    AnswerReport,
    ComparedContext,
    EvaluatedContext,
    EvaluationReport,
    EvaluationSummary,
)

_MOST_PER_GROUP = 20
MOST_EXAMPLES = 200
_WORST = ("failed", "lost a required item", "refusal", "lost", "cut", "gained")
"""The differences that are shown first; of the others the rarest."""
_MOST_CASES = 500
_MOST_CHARACTERS = 60_000
"""Of a comment on GitHub, which may have 65,536."""
_MOST_DETAILS = 10
_LONGEST_CELL = 300
_LONGEST_DIFFERENCE = 60
_LONGEST_DIFF = 6_000
_NOT_IN_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Section(NamedTuple):
    """A table of a report; every writer shows the same ones."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


class ReportFindings(NamedTuple):
    """What writers show of a run: its report, and contexts of each kind of difference and cause."""

    report: EvaluationReport
    examples: Sequence[ComparedContext] = ()

    @property
    def hidden(self) -> dict[str, int]:
        """How many more contexts each kind of difference and each cause has than are shown."""
        shown = Counter(
            label
            for one in self.examples
            for label in (*groups_of(one.context), *cause_labels(one.context))
        )
        summary = self.report.summary
        found = {"failed": summary.failed, **summary.kinds, **summary.causes}
        return {name: more for name, count in found.items() if (more := count - shown[name]) > 0}


def groups_of(context: EvaluatedContext) -> list[str]:
    """Return how a context differs: failed, without a required item, and its kinds."""
    facts = {"failed": context.status == "failed", "lost a required item": context.lost_required}
    return [*(name for name, holds in facts.items() if holds), *context.kinds]


def choose(
    contexts: Iterable[EvaluatedContext], most: int = MOST_EXAMPLES
) -> list[EvaluatedContext]:
    """Return one context of each kind of difference and each cause in turn, the worst kind first.

    So a kind that is rare in the cohort is shown, too.
    """
    counts, found = Counter[str](), dict[str, list[EvaluatedContext]]()
    for context in contexts:
        for group in (*groups_of(context), *cause_labels(context)):
            counts[group] += 1
            if counts[group] <= _MOST_PER_GROUP:
                found.setdefault(group, []).append(context)
    ranks = {group: rank - len(_WORST) for rank, group in enumerate(_WORST)}
    order = sorted(found, key=lambda group: (ranks.get(group, 0), counts[group]))
    turns = zip_longest(*(found[group] for group in order))
    chosen = {context.context_id: context for turn in turns for context in turn if context}
    return [*islice(chosen.values(), most)]


def verdict(report: EvaluationReport) -> str:
    """Return the result of a run as a sentence."""
    if not report.gates:
        return "No gates are set; see [eval.gates]."
    broken = [gate.gate for gate in report.gates if not gate.passed]
    if broken:
        return f"{'Gates are' if len(broken) > 1 else 'A gate is'} broken: {', '.join(broken)}."
    return f"All {len(report.gates)} gates hold." if len(report.gates) > 1 else "The gate holds."


def headline(report: EvaluationReport) -> str:
    """Return what matters most of a run: its gates, or what changed if there are none."""
    return verdict(report) if report.gates else f"{_changed_text(report.summary)}."


def contexts_text(number: int) -> str:
    """Return a number of contexts in words."""
    return f"{number:,} {'context' if number == 1 else 'contexts'}"


def _changed_text(summary: EvaluationSummary) -> str:
    compared, changed = contexts_text(summary.compared), f"{summary.changed:,}"
    if summary.failed:
        verb = "fails" if summary.failed == 1 else "fail"
        return f"{summary.failed:,} of {compared} {verb}, {changed} changed"
    return f"{changed} of {compared} changed"


def overview(report: EvaluationReport) -> str:
    """Return what a run found, with its fidelity, as a sentence."""
    summary = report.summary
    exact, approximate = (summary.fidelity.get(name, 0) for name in ("exact", "approximate"))
    skipped = f", {summary.skipped:,} skipped" if summary.skipped else ""
    return (
        f"{_changed_text(summary)}, "
        f"{summary.text_changed:,} in what a model would have been shown; "
        f"{exact:,} exact, {approximate:,} approximate{skipped}."
    )


def base_text(report: EvaluationReport) -> str:
    """Return where the former code is from."""
    return report.run.base or "the code that its cohort keeps"


def sections(report: EvaluationReport) -> list[Section]:
    """Return the tables of a report, without empty ones."""
    found = [
        _gates(report),
        _statuses(report.summary),
        Section("Differences", ("kind", *_COUNTED), list(_counted(report.summary, "kinds"))),
        _causes(report),
        _numbers(report.summary),
        _dead_letters(report.summary),
        _reasons(report.summary),
        _answers(report),
        _failed_calls(report),
        _baseline(report),
    ]
    return [section for section in found if section.rows]


_COUNTED = ("contexts", "approximate")


def _counted(summary: EvaluationSummary, which: str) -> Iterator[tuple[object, ...]]:
    counts = summary.kinds if which == "kinds" else summary.causes
    for name, count in counts.items():
        yield name, count, summary.approximate.get(name, 0)


def _gates(report: EvaluationReport) -> Section:
    rows = [
        ("ok" if gate.passed else "BROKEN", gate.gate, gate.limit, gate.value)
        for gate in sorted(report.gates, key=lambda gate: gate.passed)
    ]
    return Section("Gates", ("", "gate", "limit", "found"), rows)


def _statuses(summary: EvaluationSummary) -> Section:
    numbers = {
        "identical": summary.identical,
        "changed": summary.changed,
        "failed": summary.failed,
        "skipped": summary.skipped,
        "another text": summary.text_changed,
        "refused now": summary.new_refusals,
        "lost a required item": summary.lost_required,
    }
    names = dict(zip(numbers, _TOTALS, strict=True))
    rows = [
        (name, count, f"{count / summary.contexts:.1%}", summary.approximate.get(names[name], 0))
        for name, count in numbers.items()
        if count or name in ("identical", "changed")
    ]
    return Section(
        "Contexts", ("", "contexts", "share", "approximate"), rows if summary.contexts else []
    )


# The names that the summary counts approximate ones by.
_TOTALS = (
    *("identical", "changed", "failed", "skipped"),
    *("text_changed", "new_refusals", "lost_required"),
)


def _causes(report: EvaluationReport) -> Section:
    """Return the causes, and the changed declarations that caused nothing."""
    summary = report.summary
    declared = {change.label: change for change in report.run.changes}
    counts = {**summary.causes, **{name: 0 for name in declared if name not in summary.causes}}
    rows = []
    for name, count in counts.items():
        change = declared.get(name)
        where = change and " · ".join(filter(None, (change.location, change.problem)))
        approximate = summary.approximate.get(name, 0)
        rows.append((name, change and change.change, count, approximate, where))
    return Section("Causes", ("declaration", "", *_COUNTED, "where"), rows)


def _numbers(summary: EvaluationSummary) -> Section:
    before, after = summary.tokens_before, summary.tokens_after
    rows = [
        ("tokens, median", before.p50, after.p50),
        ("tokens, p95", before.p95, after.p95),
        ("tokens, total", before.total, after.total),
    ]
    shown: list[Sequence[object]] = [
        (name, f"{was:,.0f}", f"{now:,.0f}", _growth(was, now)) for name, was, now in rows
    ]
    if summary.priced:
        was, now = summary.cost_before, summary.cost_after
        name = "price" if summary.priced == summary.compared else f"price, of {summary.priced:,}"
        shown.append((name, usd(was), usd(now), _growth(was, now)))
    exact = summary.identical + summary.changed
    title = f"Tokens and price of {contexts_text(exact)}"
    if approximate := summary.fidelity.get("approximate", 0):
        title += f", {approximate:,} of them approximate"
    return Section(title, ("", "before", "after", "change"), shown if exact else [])


def _growth(before: float, after: float) -> str:
    if before == after:
        return "same"
    return f"{(after - before) / before:+.1%}" if before else EMPTY


def _reasons(summary: EvaluationSummary) -> Section:
    rows = [(count, reason) for reason, count in summary.reasons.items()]
    return Section("Not exact, failed or skipped", ("contexts", "reason"), rows)


def _dead_letters(summary: EvaluationSummary) -> Section:
    rows = [(count, problem) for problem, count in summary.dead_letters.items()]
    return Section("Events that would be dead letters", ("contexts", "handler"), rows)


def _answers(report: EvaluationReport) -> Section:
    answers = report.answers
    if answers is None:
        return Section("Answers", (), [])
    rows = [
        (
            score.name,
            f"{score.before:.3f}",
            f"{score.after:.3f}",
            f"{score.difference:+.3f}",
            f"{score.wins:,} / {score.ties:,} / {score.losses:,}",
            _probability(score.p_value),
            _probability(score.p_sign),
        )
        for score in answers.scores
    ]
    title = (
        f"Scores of {answers.answer}, which answered to both sides of {answers.answered:,} of "
        f"{contexts_text(answers.contexts)}"
    )
    if not rows:
        return Section(title, ("score",), [(_unscored(answers),)])
    columns = ("score", "before", "after", "change", "better / same / worse", *_TESTS)
    return Section(title, columns, rows)


_TESTS = ("p (mean)", "p (sign test)")


def _probability(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def _unscored(answers: AnswerReport) -> str:
    if not answers.contexts:
        return "none, because no text changed"
    if answers.score is None:
        return "none; pass --score module:function"
    return "none, because no context has a score on both sides"


def _failed_calls(report: EvaluationReport) -> Section:
    problems = report.answers.problems if report.answers else {}
    return Section(_FAILED_CALLS, ("calls", "problem"), [(n, text) for text, n in problems.items()])


_FAILED_CALLS = "Calls of --answer and --score that failed"
_OPEN = frozenset(("Gates", "Contexts", "Causes", _FAILED_CALLS))
"""The tables of a comment that readers need not open."""


def _baseline(report: EvaluationReport) -> Section:
    used = report.baseline
    if used is None:
        return Section("Baseline", (), [])
    rows: list[Sequence[object]] = [("accepted", used.accepted, used.file)]
    if used.stale:
        more = ", …" if used.stale > len(used.contexts) else ""
        rows.append(("no longer occurs", used.stale, ", ".join(used.contexts) + more))
    return Section("Baseline", ("", "contexts", ""), rows)


def kinds_text(context: EvaluatedContext) -> str:
    """Return how a context differs, in words."""
    if context.status in ("failed", "skipped"):
        return f"{context.status}: {context.error}"
    counts = {"gained": context.gained, "lost": context.lost, "cut": context.cut}
    words = [f"{counts[kind]} {kind}" if counts.get(kind) else kind for kind in context.kinds]
    if context.lost_required:
        words.append(f"{context.lost_required} required lost")
    return ", ".join(words)


def causes_text(context: EvaluatedContext) -> str:
    """Return the causes of a difference, in words."""
    return ", ".join(cause_labels(context)) or EMPTY


def changed_rows(contexts: Iterable[EvaluatedContext]) -> list[Sequence[object]]:
    """Return contexts as rows of `CHANGED_COLUMNS`."""
    return [
        (
            one.context_id,
            _cell(kinds_text(one), _LONGEST_DIFFERENCE),
            causes_text(one),
            f"{one.tokens_before:,} → {one.tokens_after:,}" if one.status == "changed" else None,
            one.fidelity if one.status == "changed" else None,
        )
        for one in contexts
    ]


CHANGED_COLUMNS = ("context", "difference", "cause", "tokens", "fidelity")


def markdown(found: ReportFindings) -> str:
    """Return a comment for a pull request: the verdict, tables, and as many examples as fit."""
    report = found.report
    run = report.run
    mark = "❌ " if not all(gate.passed for gate in report.gates) else "✅ " if report.gates else ""
    parts = [
        f"### {mark}Headwater: {escaped(headline(report))}",
        _safe(overview(report)),
        *(() if report.gates else (_safe(verdict(report)),)),
        f"Cohort {code(run.cohort)}, run {code(run.run_id)}, {code(run.file)} against "
        f"{_safe(base_text(report))}.",
    ]
    for title, columns, rows in sections(report):
        cells = [[_safe(_cell(cell)) for cell in row] for row in rows]
        text = table(columns, cells)
        parts.append(f"**{title}**\n\n{text}" if title in _OPEN else _collapsed(title, text))
    broken = [gate for gate in report.gates if gate.contexts]
    parts += [f"{code(gate.gate)}: {', '.join(map(code, gate.contexts))}" for gate in broken]
    left = _MOST_CHARACTERS - sum(map(len, parts))
    for example in found.examples[:_MOST_DETAILS]:
        text = _details(example)
        left -= len(text) + 2
        if left > 0:
            parts.append(text)
    return "\n\n".join(parts) + "\n"


def _cell(value: object, longest: int = _LONGEST_CELL) -> str:
    text = f"{value:,}" if isinstance(value, int) else cell_text(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _safe(text: str) -> str:
    """Return text that shows as it is and notifies no user of that name."""
    return escaped(text).replace("@", "&#64;")


def _details(example: ComparedContext) -> str:
    context = example.context
    title = f"{context.context_id}: {kinds_text(context)} ({causes_text(context)})"
    body = f"{context.fidelity}" + "".join(f"; {_safe(reason)}" for reason in context.reasons)
    if example.before and example.after:
        body += f"\n\n{_fenced(_text_diff(example))}"
    elif example.withheld:
        body += f"; {_safe(example.withheld)}"
    return _collapsed(title, body)


def _collapsed(title: str, body: str) -> str:
    """Return a part that readers open; its title is HTML and not Markdown."""
    text = printable(" ".join(title[:_LONGEST_CELL].split()))
    summary = html_escape(text).replace("@", "&#64;")
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _text_diff(example: ComparedContext) -> str:
    before, after = texts_of(example)
    lines = unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=2)
    text = "\n".join([*lines][2:]) or "the text is the same"
    return text if len(text) <= _LONGEST_DIFF else text[:_LONGEST_DIFF] + "\n…"


def texts_of(example: ComparedContext) -> tuple[str, str]:
    """Return both texts of a context, printable."""
    sides = [
        side.content if side and side.content else "" for side in (example.before, example.after)
    ]
    return printable_lines(sides[0]), printable_lines(sides[1])


def _fenced(text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}diff\n{text}\n{fence}"


def junit(report: EvaluationReport, contexts: Iterable[EvaluatedContext]) -> str:
    """Return test cases: one for each gate, and one for each context that differs, up to a bound.

    A context fails if a broken gate names it, and is an error if its code raised one.
    """
    root = Element("testsuites")
    gates = [
        Element("testcase", _case(f"{gate.gate} {gate.limit}", "gates")) for gate in report.gates
    ]
    broken = dict[str, str]()
    for gate, case in zip(report.gates, gates, strict=True):
        if not gate.passed:
            message = f"{gate.gate} is limited to {gate.limit} and found {gate.value}"
            failure = SubElement(case, "failure", message=_xml(message), type="gate")
            failure.text = _xml("\n".join((message, *gate.contexts)))
            broken |= {name: message for name in gate.contexts}
    _suite(root, report, "gates", gates)
    cases, more = list[Element](), 0
    for context in contexts:
        if context.status == "identical":
            continue
        if len(cases) == _MOST_CASES:
            more += 1
            continue
        cases.append(_context_case(context, broken.get(context.context_id)))
    _suite(root, report, "contexts", cases, f"{more:,} more contexts differ" if more else "")
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _context_case(context: EvaluatedContext, broken: str | None) -> Element:
    difference = f"{kinds_text(context)} ({causes_text(context)})"
    case = Element("testcase", _case(context.context_id, f"contexts.{context.name}"))
    facts = [difference, f"fidelity: {context.fidelity}", *context.reasons]
    if context.status == "skipped":
        SubElement(case, "skipped", message=_xml(context.error))
    elif context.status == "failed":
        error = SubElement(case, "error", message=_xml(context.error), type="failed")
        error.text = _xml(context.error)
    elif broken is not None:
        failure = SubElement(case, "failure", message=_xml(difference), type="changed")
        failure.text = _xml("\n".join((broken, *facts)))
    else:
        case.set("name", _xml(f"{context.context_id}: {difference}, {context.fidelity}"))
    return case


def _case(name: str, group: str) -> dict[str, str]:
    return {"name": _xml(name), "classname": _xml(f"headwater.eval.{group}"), "time": "0"}


def _suite(
    root: Element, report: EvaluationReport, name: str, cases: Sequence[Element], note: str = ""
) -> None:
    run = report.run
    counts = {
        f"{kind}s" if kind != "skipped" else kind: sum(
            case.find(kind) is not None for case in cases
        )
        for kind in ("failure", "error", "skipped")
    }
    suite = SubElement(
        root,
        "testsuite",
        {
            "name": _xml(f"headwater eval {run.cohort}: {name}"),
            "package": "headwater.eval",
            "id": str(len(root)),
            "timestamp": f"{run.started_at:%Y-%m-%dT%H:%M:%S}",
            "hostname": "localhost",
            "tests": str(len(cases)),
            "time": "0",
            **{kind: str(count) for kind, count in counts.items()},
        },
    )
    properties = SubElement(suite, "properties")
    facts = {"run": run.run_id, "file": run.file, "fidelity": plain(report.summary.fidelity)}
    for fact, value in facts.items():
        SubElement(properties, "property", name=fact, value=_xml(cell_text(value)))
    suite.extend(cases)
    SubElement(suite, "system-out").text = _xml("\n".join(filter(None, (overview(report), note))))
    SubElement(suite, "system-err")


def _xml(text: str) -> str:
    """Return text without the characters that XML cannot have."""
    return _NOT_IN_XML.sub("\N{REPLACEMENT CHARACTER}", text)
