"""Commands for a project: begin it, check it, examine its installation, watch it."""

import asyncio
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from importlib.resources import files
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, get_args

import typer
import yaml

from headwater.backends.connect import grants
from headwater.cli.commands import (
    DECLARED_ARGUMENT,
    STORE,
    CommandCall,
    Commands,
    features_file,
    run,
)
from headwater.cli.declarations_page import DeclarationsPage
from headwater.cli.output import note, pluralize, write
from headwater.core.short_repr import printable_lines
from headwater.declarations.code_uses import gaps_in_templates, templates_in
from headwater.declarations.features import FeatureDef
from headwater.declarations.graph import SAMPLES
from headwater.declarations.hidden_inputs import unrepeatable
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.doctor.examination import examine
from headwater.errors import BackendError, FormatError, HeadwaterError, HomeError, InvalidInputError
from headwater.errors.hints import closest, nearest
from headwater.model.events import EventMisfits
from headwater.model.health import Examination, Finding, Findings, Severity
from headwater.settings.loading import FILE, describe, load, load_with_origins
from headwater.settings.schema import on_servers
from headwater.store.feature_store import FeatureStore
from headwater.testing import temporary
from headwater.windows.plan import ZERO

app = Commands()
metrics = Commands(app, "metrics", "Print a Grafana dashboard and Prometheus alert rules.")
config = Commands(app, "config", "Show the settings and where each value comes from.")
_FILES = {
    "features.py": "features.py.txt",
    "ask.py": "ask.py.txt",
    "test_features.py": "test_features.py.txt",
    "headwater.toml": "headwater.toml.txt",
    ".gitignore": "gitignore.txt",
}
MONITORING = files("headwater.telemetry")
_EXIT_CODES: dict[Severity, int] = {"ok": 0, "unknown": 0, "warning": 1, "error": 2}
_COLOURS = {"ok": "green", "unknown": "blue", "warning": "yellow", "error": "red"}
_MARK_WIDTH = 9
_CHECK_WIDTH = 18


@app.command(has_json=False)
def init(call: CommandCall, folder: Path = Path()) -> None:
    """Write a small project: features, settings and a test that runs.

    Args:
        folder: Folder of the project, which may be new.
    """
    existing = [name for name in _FILES if (folder / name).exists()]
    if existing:
        raise InvalidInputError(
            f"{folder / existing[0]} exists already, and nothing was written; name another folder"
        )
    templates = files("headwater.cli").joinpath("project")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, template in _FILES.items():
            (folder / name).write_text(templates.joinpath(template).read_text("utf-8"), "utf-8")
    except OSError as error:
        raise InvalidInputError(f"cannot write to {folder}: {error.strerror}") from error
    typer.echo(f"Wrote {', '.join(_FILES)} to {folder.absolute()}.\n\nNext:")
    if folder != Path():
        typer.echo(f"  cd {quote(str(folder))}")
    typer.echo("  python ask.py       # assemble a context, and see what a model would be given")
    typer.echo("  headwater check     # are all declarations right?")
    typer.echo("  pip install pytest  # the test needs it")
    typer.echo("  python -m pytest    # run the test")
    typer.echo("  headwater serve     # serve the API with a worker")


@app.command(file=DECLARED_ARGUMENT)
def check(call: CommandCall) -> None:
    """Check a features file: declarations, references, queries, embedders and settings.

    If its store exists, stored events are compared with their declared schemas; nothing else is
    read from it, and nothing is written. Exits with 1 and the file and line of the first problem if
    there is one.
    """
    has_postgres = on_servers(call.local.settings)
    registry = runtime_of(call.local).registry

    async def check() -> None:
        async with temporary(call.local):
            engine = await runtime_of(call.local).open()
            await engine.assembler.warm_up()
            for index in engine.registry.all_indexes().values():
                engine.embedders.check(index)
            if not has_postgres:
                await engine.refresh.check_queries()

    asyncio.run(check())
    features = registry.features.values()
    declared: dict[str, tuple[Sized, str]] = {
        "entities": (registry.entities, "entity"),
        "events": (registry.events, "event"),
        "features": ([f for f in features if f.windows is None], "feature"),
        "families": ([f for f in features if f.windows is not None], "family of windows"),
        "indexes": (registry.all_indexes(), "index"),
        "retrievers": (registry.retrievers, "retriever"),
        "contexts": (registry.contexts, "context"),
    }
    counts = {plural: len(names) for plural, (names, _) in declared.items()}
    file = str(features_file(call.file))
    warnings = [*warnings_of(registry), *_event_warnings(call.local)]
    for warning in warnings:
        note(f"warning: {warning}")
    words = {plural: plural for plural in counts} | {"families": "families of windows"}
    parts = [pluralize(n, declared[each][1], words[each]) for each, n in counts.items() if n]
    found = pluralize(len(warnings), "warning") if warnings else "no problem"
    result = f"{file}: {', '.join(parts) or 'nothing'} declared, {found}."
    if has_postgres and any(feature.sql for feature in registry.features.values()):
        result += "\nQueries of SQL features run on Postgres; a worker checks them when it starts."
    call.show({"file": file, "declared": counts, "warnings": warnings}, result)


def _event_warnings(store: FeatureStore) -> Iterator[str]:
    """Yield a warning for each declared type of which stored events do not fit the class."""
    events = runtime_of(store).registry.events

    async def misfits(store: FeatureStore) -> list[EventMisfits]:
        return await (await runtime_of(store).open()).events.misfits()

    try:
        found = run(store, misfits) if events else []
    except HomeError:  # there is no store yet
        return
    except BackendError as error:
        yield f"stored events were not compared with their schemas: {error}"
        return
    for each in found:
        yield (
            f"{events[each.event_type].location}: {each.count} of {each.examined} examined events "
            f"of the type {each.event_type!r} do not fit, such as {each.event_id}: {each.problem}"
        )


def warnings_of(registry: Registry) -> Iterator[str]:
    """Yield a warning for each index that only a retriever names, if a declared one is similar.

    Also for each use of time or chance that training and replays cannot repeat, and for each
    template with a gap where a feature has no value yet.
    """
    for name, index in registry.all_indexes().items():
        similar = None if name in registry.indexes else closest(name, registry.indexes)
        if similar:
            yield (
                f"{index.location}: a retriever names the index {name!r}, which no Index(...) "
                f"declares; did you mean {similar!r}?"
            )
    yield from _lost_owners(registry)
    for declared, hidden in unrepeatable(registry):
        yield f"{hidden.location}: {declared} {hidden}"
    for context in registry.contexts.values():
        for problem in _misfits(registry, context.function):
            yield f"{context.location}: context {context.name!r}: {problem}"
        for name in dict.fromkeys(_gaps(registry, gaps_in_templates(context.function))):
            yield (
                f"{context.location}: a template of context {context.name!r} shows {name!r}, "
                "which may have no value and leave a gap; declare a default= for it, or write a "
                f"fallback into the template: {{{name}|unknown}}"
            )


def _lost_owners(registry: Registry) -> Iterator[str]:
    """Yield the fields of owners that no event of an entity has, by the declared schemas."""
    for entity in registry.entities.values():
        for field, owner in entity.belongs_to:
            implied = registry.features.get(entity.implied_name(field))
            triggers = implied.triggers if implied is not None and implied.is_implied else ()
            if not triggers or not registry.events.keys() >= set(triggers):
                continue
            fields = {
                name
                for each in triggers
                for name in registry.events[each].schema.get("properties", ())
            }
            if field not in fields:
                yield (
                    f"{entity.location}: {entity.name} belongs to {owner.name} by {field!r}, which "
                    f"no declared event of it has; {nearest(field, fields)}"
                )


def _misfits(registry: Registry, function: Callable[..., Any]) -> Iterator[str]:
    """Yield what templates show that they cannot: unknown names, families, values by formats."""
    for template in templates_in(function):
        shown = {name: registry.features.get(name) for name in template.references}
        for name, feature in shown.items():
            if feature is None:
                hint = nearest(name, registry.features)
                yield f"a template shows unknown feature {name!r}; {hint}"
            elif feature.windows is not None:
                members = ", ".join(feature.windows.members)
                yield f"{feature.name!r} is a family of windows; name one of {members}"
        kinds = {name: feature and feature.codec.kind for name, feature in shown.items()}
        try:
            template.render({name: SAMPLES.get(kind or "") for name, kind in kinds.items()})
        except FormatError as error:
            yield str(error)


def _gaps(registry: Registry, shown: Iterable[str]) -> Iterator[str]:
    """Yield the stored features without a default that texts show, also in template features."""
    for feature in (registry.features[name] for name in shown if name in registry.features):
        if feature.default is None and feature.template is not None:
            yield from _gaps(registry, feature.template.needed)
        elif feature.default is None and (feature.stored or _may_be_empty(feature)):
            yield feature.name


def _may_be_empty(feature: FeatureDef) -> bool:
    """Return whether a feature is a window that has no value where nothing contributed."""
    return feature.window is not None and feature.window.aggregate.kind not in ZERO


@app.command(file=DECLARED_ARGUMENT)
def graph(call: CommandCall, *, windows: bool = False) -> None:
    """Print the declarations of a file, their events and sources, and dependencies, as Mermaid.

    Args:
        windows: Draw each window of a family, and not only the family. JSON always has them.
    """
    drawn = call.declarations().graph
    call.show(drawn, (drawn if windows else drawn.folded()).to_mermaid())


@app.command(file=DECLARED_ARGUMENT, has_json=False)
def docs(call: CommandCall, *, output: Path | None = None, check: bool = False) -> None:
    """Write a page of all declarations in Markdown, for a team's wiki.

    The same declarations give the same page, so a repository can keep it.

    Args:
        output FILE.md: Write this file, or replace it. Default: standard output.
        check: Write nothing, and exit with 1 if the file of --output has another content.
    """
    page = DeclarationsPage(call.declarations()).text().encode()
    if not check:
        write(page, output, force=True)
        return
    if output is None:
        raise typer.BadParameter("--check compares a file; name it with --output")
    if not output.exists() or output.read_bytes() != page:
        raise InvalidInputError(
            f"{output} is not the page of these declarations; write it again: run this command "
            "without --check"
        )


@metrics.command(has_json=False)
def dashboard(call: CommandCall) -> None:
    """Print the Grafana dashboard as JSON, for its import page."""
    typer.echo(MONITORING.joinpath("dashboard.json").read_text(), nl=False)


@metrics.command(has_json=False)
def alerts(call: CommandCall, *, docs_url: str | None = None) -> None:
    """Print the Prometheus alert rules as YAML, for `rule_files`.

    Args:
        docs_url URL: Address of a version of your site of the docs, such as
            https://docs.example/latest, for the links of the alerts. Default: no links.
    """
    rules = yaml.safe_load(MONITORING.joinpath("alerts.yml").read_text())
    if docs_url is not None:
        page = f"{docs_url.rstrip('/')}/how-to/alerts.html"
        for rule in (rule for group in rules["groups"] for rule in group["rules"]):
            rule["annotations"]["runbook_url"] = f"{page}#{rule['alert'].lower()}"
    typer.echo(yaml.safe_dump(rules, sort_keys=False, width=1_000), nl=False)


@config.command("show")
def show_config(call: CommandCall) -> None:
    """Show every setting with its value, origin and meaning."""
    settings = list(describe(load_with_origins()))
    rows = [(s.path, s.value, s.origin, s.variable, s.description) for s in settings]
    all_default = (
        "\nAll values are defaults. To change one, set its variable or write headwater.toml in "
        "this folder."
    )
    call.show_table(
        [setting._asdict() for setting in settings],
        ("setting", "value", "from", "variable", "meaning"),
        rows,
        None if any(setting.origin != "default" for setting in settings) else all_default,
    )


_Print = Annotated[bool, typer.Option("--print", help="With grants: print them.")]


@app.command(file=STORE)
def doctor(call: CommandCall, part: str = "", *, print_: _Print = False) -> None:
    """Examine configuration, installation, servers and workload of a store.

    Exits with 0 if all is well, with 1 after warnings and with 2 after errors. `grants --print`
    examines nothing: it prints the least rights that Redis and Postgres must give to the store.

    Args:
        part [grants]: Nothing, to examine all, or grants.
    """
    if part or print_:
        if part != "grants" or not print_:
            raise typer.BadParameter(
                "write `headwater doctor`, or `headwater doctor grants --print`"
            )
        text = grants(call.store.settings if isinstance(call.store, FeatureStore) else load())
        call.show({"grants": text}, text)
        return
    examination = asyncio.run(_examine(call))
    call.show(examination, lambda: _print_examination(examination))
    raise typer.Exit(_EXIT_CODES[examination.status])


async def _examine(call: CommandCall) -> Examination:
    try:
        store = call.store
    except HeadwaterError as error:
        place = str(call.file or f"{FILE} and HEADWATER_ variables")
        return _failure("configuration", "settings", error, place)
    if isinstance(store, FeatureStore):
        try:
            # Not opened here: the store may be the problem.
            return await examine(store)
        finally:
            await store.close()
    try:
        async with store:
            return await store.admin.doctor()
    except HeadwaterError as error:
        return _failure("server", "request", error, store.url)


def _failure(area: str, check: str, error: HeadwaterError, place: str) -> Examination:
    """Return the examination of an installation that has nothing else to examine."""
    report = Findings(area, place)
    report.error(
        check, printable_lines(str(error)), "correct this first; nothing else could be examined"
    )
    return Examination("error", report.all)


def _print_examination(examination: Examination) -> None:
    """Print the findings of each area, and a summary."""
    # Only on a terminal: a wrapped line cannot be searched, and its commands cannot be copied.
    is_terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size().columns, 120) if is_terminal else sys.maxsize
    for area, group in groupby(examination.findings, attrgetter("area")):
        findings = list(group)
        place, _ = Counter(finding.looked_at for finding in findings).most_common(1)[0]
        typer.echo(typer.style(area.capitalize(), bold=True) + f" ({place})")
        for finding in findings:
            _print_finding(finding, place, width)
        typer.echo()
    counts = Counter(finding.severity for finding in examination.findings)
    typer.echo(", ".join(f"{counts[severity]} {severity}" for severity in get_args(Severity)) + ".")


def _print_finding(finding: Finding, place: str, width: int) -> None:
    mark = typer.style(f"{finding.severity:<{_MARK_WIDTH}}", fg=_COLOURS[finding.severity])
    indent = " " * (2 + _MARK_WIDTH + _CHECK_WIDTH)
    looked_at = "" if finding.looked_at == place else f" ({finding.looked_at})"
    lines = [f"{finding.found}{looked_at}"]
    lines += [f"→ {finding.remedy}"] if finding.remedy else []
    text = "\n".join(
        textwrap.fill(
            *(line, width),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in lines
    )
    typer.echo(f"  {mark}{finding.check + ' ':<{_CHECK_WIDTH}}{text[len(indent) :]}")
