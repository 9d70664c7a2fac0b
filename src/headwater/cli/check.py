"""`headwater check`: check the declarations of a features file without touching its store."""

import asyncio
from collections.abc import Iterator

import typer

from headwater.cli.options import AsJson, FileArgument, command_group, declared_store, features_file
from headwater.cli.output import note, pluralize, print_json
from headwater.declarations.hidden_inputs import unrepeatable
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors.hints import closest
from headwater.settings.environments import on_servers
from headwater.store.feature_store import FeatureStore
from headwater.testing import temporary

app = command_group("Check a features file without touching its store.")


@app.command()
def check(file: FileArgument = None, *, as_json: AsJson = False) -> None:
    """Check a features file: declarations, references, queries, embedders and settings.

    Nothing is read from or written to its store. Exits with 1 and the file and line of the first
    problem if there is one.
    """
    store = declared_store(file)
    has_postgres = on_servers(store.settings)
    asyncio.run(_check(store, with_queries=not has_postgres))
    registry = runtime_of(store).registry
    counts, warnings = _counts(registry), [*_similar_indexes(registry), *_hidden_inputs(registry)]
    for warning in warnings:
        note(f"warning: {warning}")
    if as_json:
        print_json({"file": str(features_file(file)), "declared": counts, "warnings": warnings})
        return
    declared = [pluralize(number, *_NOUNS[kind]) for kind, number in counts.items() if number]
    typer.echo(f"{features_file(file)}: {', '.join(declared) or 'nothing'} declared, no problem.")
    if has_postgres and any(
        feature.sql for feature in runtime_of(store).registry.features.values()
    ):
        typer.echo("Queries of SQL features run on Postgres; a worker checks them when it starts.")


async def _check(store: FeatureStore, *, with_queries: bool) -> None:
    async with temporary(store):
        engine = await runtime_of(store).open()
        await engine.assembler.warm_up()
        for index in engine.registry.all_indexes().values():
            engine.embedders.check(index)
        if with_queries:
            await engine.refresh.check_queries()


def _similar_indexes(registry: Registry) -> Iterator[str]:
    """Yield a warning for each index that only a retriever names, if a declared one is similar."""
    for name, index in registry.all_indexes().items():
        similar = None if name in registry.indexes else closest(name, registry.indexes)
        if similar:
            yield (
                f"{index.location}: a retriever names the index {name!r}, which no Index(...) "
                f"declares; did you mean {similar!r}?"
            )


def _hidden_inputs(registry: Registry) -> Iterator[str]:
    """Yield a warning for each use of time or chance that training and replays cannot repeat."""
    for declared, hidden in unrepeatable(registry):
        yield f"{hidden.location}: {declared} {hidden}"


_NOUNS = {
    "entities": ("entity", "entities"),
    "features": ("feature",),
    "indexes": ("index", "indexes"),
    "retrievers": ("retriever",),
    "contexts": ("context",),
}


def _counts(registry: Registry) -> dict[str, int]:
    return {
        "entities": len(registry.entities),
        "features": len(registry.features),
        "indexes": len(registry.all_indexes()),
        "retrievers": len(registry.retrievers),
        "contexts": len(registry.contexts),
    }
