"""`headwater context assemble`: a declared context, made in this process."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import typer

from headwater.cli.key_value_args import read_pairs
from headwater.cli.options import AsJson, FileOption, declared_store, looked_up_in
from headwater.cli.output import note, on_terminal, print_json, write
from headwater.cli.runner import run
from headwater.cli.utf8_args import check_event_bytes
from headwater.declarations import ContextDef, annotations_of, overrides
from headwater.declarations.runtime import runtime_of
from headwater.http.context_arguments import arguments_of, with_reference
from headwater.http.contexts import assembled
from headwater.http.json_values import plain
from headwater.records.lineage import Context


def assemble(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The context.")],
    params: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PARAMS...", show_default=False, help="One JSON object, or key=value pairs."
        ),
    ] = None,
    *,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Another budget than the declared one.")
    ] = None,
    freshness_sla: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Another SLA than the declared one, such as 5m."),
    ] = None,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Assemble a context here, record it, and print its text."""
    store = declared_store(file)
    with looked_up_in(file):
        definition = runtime_of(store).registry.context(name)
    given, reference = with_reference(definition, _values(definition, params or []), msgspec.UNSET)
    bound = arguments_of(definition, given)
    changed = overrides(
        msgspec.UNSET if max_tokens is None else max_tokens,
        msgspec.UNSET if freshness_sla is None else freshness_sla,
        reference,
    )
    context = run(
        store,
        lambda store: runtime_of(store).assemble(definition, bound.args, bound.kwargs, changed),
        make=True,
    )
    if as_json:
        print_json(plain(assembled(context)))
        return
    write(context.content.encode(), None)
    if on_terminal():
        note("")  # the text ends as it ends; what follows begins a line
    note(_told(context))


def _values(definition: ContextDef, words: Sequence[str]) -> dict[str, Any]:
    check_event_bytes(words, "nothing was assembled")
    return read_pairs(words, "parameter", annotations_of(definition.function))


def _told(context: Context) -> str:
    """What became of it, in a line."""
    budget = context.lineage.max_tokens
    tokens = f"{context.tokens} tokens" if budget is None else f"{context.tokens}/{budget} tokens"
    kept = f"recorded as {context.record_hash}" if context.meta["recorded"] else "not recorded"
    return f"{context.context_id}: {tokens}, {context.freshness_status}, {kept}"
