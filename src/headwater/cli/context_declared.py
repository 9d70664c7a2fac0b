"""`headwater context declared`: list the contexts and retrievers of a features file."""

from collections.abc import Sequence

import typer

from headwater.cli.options import AsJson, FileOption, declared_or_remote
from headwater.cli.output import cell_text, note, pluralize, print_json, print_table, span_text
from headwater.cli.runner import listing
from headwater.model.declarations import ParameterListing, StoreListing


def declared(*, file: FileOption = None, as_json: AsJson = False) -> None:
    """List declared contexts and retrievers."""
    listed = listing(declared_or_remote(file))
    contexts, retrievers = listed.contexts, listed.retrievers
    if as_json:
        print_json({"contexts": contexts, "retrievers": retrievers})
        return
    rows: list[tuple[object, ...]] = [
        (
            c.name,
            "context",
            _parameters(c.parameters),
            None,
            c.max_tokens,
            span_text(c.freshness_sla_ms),
            c.model,
            c.description[:80],
        )
        for c in contexts
    ]
    rows += [
        (
            r.name,
            "retriever",
            _parameters(r.parameters),
            r.index,
            None,
            span_text(r.freshness_sla_ms),
            None,
            r.description[:80],
        )
        for r in retrievers
    ]
    if rows:
        columns = ("name", "kind", "parameters", "index", "tokens", "sla", "model", "description")
        print_table(columns, rows)
    else:
        typer.echo("No contexts and no retrievers.")


def hint_at_contexts(listed: StoreListing) -> None:
    """Print how to list contexts and retrievers, if there are any."""
    counts = [
        pluralize(len(declared), kind)
        for declared, kind in ((listed.contexts, "context"), (listed.retrievers, "retriever"))
        if declared
    ]
    if counts:
        note(f"The file also declares {' and '.join(counts)}: see `headwater context declared`.")


def _parameters(parameters: Sequence[ParameterListing]) -> str:
    return ", ".join(map(_parameter, parameters))


def _parameter(parameter: ParameterListing) -> str:
    typed = f"{parameter.name}: {parameter.type}" if parameter.type else parameter.name
    return typed if parameter.required else f"{typed} = {cell_text(parameter.default)}"
