"""`headwater forget`: erase one entity for good."""

from typing import Annotated

import typer

from headwater.cli.options import AnyStore, AsJson, FileOption, command_group, declared_or_remote
from headwater.cli.output import is_interactive, note, pluralize, print_json, print_table
from headwater.cli.runner import run
from headwater.model.admin import ForgetReport

app = command_group("Erase one entity: values, history, events, values in records.")


@app.command()
def forget(
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="Entity, such as User.")],
    entity_id: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    *,
    reason: Annotated[
        str, typer.Option(help="Reason; it stays in the records, so name no person.")
    ],
    allow_return: Annotated[
        bool, typer.Option("--allow-return", help="Let events of after this begin it anew.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count, and erase nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Erase an entity: its values, history, events and dead letters, and its values in records.

    Records of contexts that read the entity keep their hashes and lose all values. Documents of
    indexes and exported files stay: remove these with `headwater index delete` and by hand. What is
    erased stays erased: refreshes, imports, backfills, rebuilds and late events do not bring it
    back, and new events are refused unless --allow-return is given. It is safe to repeat this, and
    to run it while workers are running.
    """
    store = declared_or_remote(file)

    def forgotten(*, dry_run: bool) -> ForgetReport:
        async def call(store: AnyStore) -> ForgetReport:
            return await store.admin.forget(
                entity, entity_id, reason=reason, allow_return=allow_return, dry_run=dry_run
            )

        return run(store, call)

    if not (dry_run or yes):
        counted = forgotten(dry_run=True)  # which also finds mistakes
        if not is_interactive():
            raise typer.BadParameter(
                "cannot ask for confirmation without a terminal; pass --yes to erase the entity, "
                "or --dry-run to count"
            )
        _print(counted)
        typer.confirm(f"Erase {entity} {entity_id} for good?", abort=True)
    report = forgotten(dry_run=dry_run)
    if as_json:
        print_json(report)
        return
    _print(report)


def _print(report: ForgetReport) -> None:
    parts = {
        "current values": report.values,
        "past values": report.history,
        "events": report.events,
        "dead letters": report.dead_letters,
        "records": report.records,
    }
    print_table(("part", "to erase" if report.dry_run else "erased"), list(parts.items()))
    if report.waiting:
        note(
            f"{pluralize(report.waiting, 'event')} in the partition of this entity still wait; "
            "those of this entity have no effect."
        )
    for names, problem in (
        (report.sources, "still return this entity; its rows are not stored: remove them there"),
        (report.unchecked_sources, "could not be run, so it is not known if they return it"),
    ):
        if names:
            note(f"The queries of {', '.join(names)} {problem}.")
