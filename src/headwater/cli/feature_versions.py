"""`headwater features versions`, `rename` and `drop`: the features that the store has values of."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.groups import Yes
from headwater.cli.options import AnyStore, AsJson, FileOption, declared_or_remote, features_file
from headwater.cli.output import is_interactive, note, pluralize, print_json, print_table
from headwater.cli.runner import run
from headwater.declarations.runtime import runtime_of
from headwater.model.catalog import Dropped
from headwater.store.feature_store import FeatureStore

_COLUMNS = ("version", "state", "type", "since", "series", "online", "history")


def versions(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the feature.")],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """List the versions of a feature, with the number of their values.

    A version begins with a backfill or with a converted type. The series is the name that its
    values are stored under.
    """
    listed = run(declared_or_remote(file), lambda store: store.catalog.versions(name))
    if as_json:
        print_json(listed)
        return
    print_table(
        _COLUMNS,
        [(v.version, v.state, v.type, v.since, v.series, v.online, v.history) for v in listed],
    )


def rename(
    old: Annotated[str, typer.Argument(metavar="OLD", help="Present name of the feature.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Rename a feature with all its values and its history, while workers run.

    Run it before you deploy the new name: processes that declare the old name go on with it.
    """
    store = declared_or_remote(file)
    run(store, lambda store: store.catalog.rename(old, new))
    path, features = _shown(store, file), _declared(store)
    rest = "restart the workers and servers that were started with the old name, in any order"
    if new not in features:
        rest = f"rename it in {path}, in templates and contexts too, and deploy that in any order"
    following = f"Next, {rest}; until then they serve and compute the same values as {old}."
    if as_json:
        print_json({"renamed": old, "to": new, "next": following})
    else:
        typer.echo(f"Renamed feature {old} to {new}, with its values and its history.")
        note(following)


def drop(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the feature.")],
    *,
    version: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Drop this version alone, which is not served."),
    ] = None,
    yes: Yes = False,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Remove a feature with all its values and its history, or one version of it.

    Remove it from the features file and restart the workers first. If it is declared again, it
    begins without values.
    """
    store = declared_or_remote(file)
    if not yes:
        if not is_interactive():
            raise typer.BadParameter(
                "cannot ask for confirmation without a terminal; pass --yes to drop the feature"
            )
        preview = run(store, lambda store: store.catalog.drop(name, version=version, dry_run=True))
        typer.confirm(f"Drop {_described(preview, version)}? They cannot be restored.", abort=True)
    dropped = run(store, lambda store: _drop(store, name, version))
    if as_json:
        print_json(dropped)
    else:
        typer.echo(f"Dropped {_described(dropped, version)}.")
        if version is None and name in _declared(store):
            note(f"{_shown(store, file)} still declares {name}: it begins without values.")


async def _drop(store: AnyStore, name: str, version: int | None) -> Dropped:
    return await store.catalog.drop(name, version=version)


def _described(found: Dropped, version: int | None) -> str:
    subject = f"feature {found.feature}"
    if version is not None:
        subject = f"version {version} of {subject}"
    values = f"{found.online:,} online and {found.history:,} in history"
    return f"{subject} with {pluralize(found.online + found.history, 'value')} ({values})"


def _declared(store: AnyStore) -> Collection[str]:
    """Return the names of the declared features."""
    if isinstance(store, FeatureStore):
        return runtime_of(store).registry.features
    listing = run(store, lambda store: store.declarations())
    return {feature.name for feature in listing.features}


def _shown(store: AnyStore, file: Path | None) -> str:
    if isinstance(store, FeatureStore):
        return str(features_file(file))
    return f"the features file of {store.url}"
