"""`headwater context assemble`: assemble a declared context."""

from typing import Annotated, Any

import msgspec
import typer

from headwater.cli.key_value_args import parse_values
from headwater.cli.options import AsJson, FileOption, declared_or_remote, named_in
from headwater.cli.output import note, print_json, write
from headwater.cli.runner import listing, run
from headwater.cli.utf8_args import check_utf8
from headwater.core.json_values import plain
from headwater.declarations.context_arguments import bind_parameters
from headwater.declarations.contexts import overrides
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.runtime import runtime_of
from headwater.model.contexts import assembled
from headwater.model.declarations import StoreListing
from headwater.model.lineage import Context
from headwater.store.feature_store import FeatureStore


def assemble(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.")],
    params: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PARAMS...", show_default=False, help="One JSON object, or key=value pairs."
        ),
    ] = None,
    *,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Token budget. Default: as declared.")
    ] = None,
    freshness_sla: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Maximum age of values, such as 5m, not longer than declared unless the context "
            "allows it. Default: as declared.",
        ),
    ] = None,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Assemble a context and print its text.

    The context is assembled in this process, or by the server of --url, and recorded.
    """
    check_utf8(params or [], "nothing was assembled")
    store = declared_or_remote(file)
    options = overrides(
        msgspec.UNSET if max_tokens is None else max_tokens,
        msgspec.UNSET if freshness_sla is None else freshness_sla,
    )
    if isinstance(store, FeatureStore):
        with named_in(file):
            definition = runtime_of(store).registry.context(name)
        values = parse_values(params or [], "parameter", annotations_of(definition.function))
        # Before a store is created for nothing.
        bind_parameters(definition, values, options)
    else:
        values = parse_values(params or [], "parameter", _text_parameters(listing(store), name))
    context = run(store, lambda store: store.assemble(name, values, options), create=True)
    if as_json:
        print_json(plain(assembled(context)))
        return
    write(context.content.encode(), None)
    note(f"\n{_summary(context)}")  # the text may end without a line break


def _text_parameters(listed: StoreListing, name: str) -> dict[str, Any]:
    """Return the parameters of a server's context that take any text."""
    parameters = [
        p for context in listed.contexts if context.name == name for p in context.parameters
    ]
    return {p.name: str for p in parameters if p.type in ("str", "str | None")}


def _summary(context: Context) -> str:
    budget = context.lineage.max_tokens
    tokens = f"{context.tokens} tokens" if budget is None else f"{context.tokens}/{budget} tokens"
    record = f"recorded as {context.record_hash}" if context.meta["recorded"] else "not recorded"
    return f"{context.context_id}: {tokens}, {context.freshness_status}, {record}"
