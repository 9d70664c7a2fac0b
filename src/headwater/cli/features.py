"""`headwater features`: reading values and listing what is declared."""

from datetime import timedelta
from typing import Annotated

import typer

from headwater.cli.context_declared import note_contexts
from headwater.cli.missing_value_hints import absent, recomputed, why_absent
from headwater.cli.options import AsJson, FileOption, declared_store, looked_up_in, verbs
from headwater.cli.output import note, print_json, print_table
from headwater.cli.runner import run
from headwater.core.durations import format_duration
from headwater.core.values import FeatureValue
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.store.feature_store import FeatureStore

app = verbs("Read and list features.")


@app.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The feature.")],
    entity_ids: Annotated[list[str], typer.Argument(metavar="ENTITY_ID...", help="Whose value.")],
    *,
    file: FileOption = None,
    as_json: AsJson = False,
) -> None:
    """Read a feature of one or more entities, with each value's age and where it came from."""
    store = declared_store(file)
    with looked_up_in(file):
        feature = runtime_of(store).registry.feature(name)

    async def read(store: FeatureStore) -> tuple[dict[str, FeatureValue], list[str]]:
        rows = await store.get_feature_values([name], entity_ids)
        values = {i: row[name] for i, row in zip(entity_ids, rows, strict=True)}
        return values, [] if as_json else await why_absent(store, feature, absent(feature, values))

    values, reasons = run(store, read)
    now = store.clock.now()
    if as_json:
        print_json(
            [
                {
                    "feature": name,
                    "entity_id": entity_id,
                    "value": value.value,
                    "as_of": value.as_of,
                    "age_ms": value.age_ms(now),
                    "source": value.source,
                }
                for entity_id, value in values.items()
            ]
        )
        return
    rows = [(i, v.value, v.source, _age(v.age_ms(now)), v.as_of) for i, v in values.items()]
    print_table((feature.entity.id_field, name, "source", "age", "as of"), rows)
    if reasons:
        note("\n" + "\n".join(reasons))


@app.command("list")
def list_(*, file: FileOption = None, as_json: AsJson = False) -> None:
    """List the features of a file and how each is recomputed."""
    registry = runtime_of(declared_store(file)).registry
    features = registry.features.values()
    if as_json:
        print_json([_described(feature) for feature in features])
        return
    rows = [
        (f.name, f.entity.name, f.codec.expected, f.mode, recomputed(f), f.description[:80])
        for f in features
    ]
    if rows:
        print_table(("feature", "entity", "type", "mode", "recomputed", "description"), rows)
    else:
        typer.echo("No features.")
    note_contexts(registry)


def _described(feature: FeatureDef) -> dict[str, object]:
    return {
        "name": feature.name,
        "entity": feature.entity.name,
        "type": feature.codec.expected,
        "mode": feature.mode,
        "triggers": feature.triggers,
        "refresh_ms": _millis(feature.refresh),
        "materialize": feature.materialize,
        "max_retries": feature.max_retries,
        "order": feature.order,
        "ttl_ms": _millis(feature.ttl),
        "default": feature.default,
        "needs": feature.template.references if feature.template else (),
        "sql": feature.sql,
        "description": feature.description,
        "declared_at": str(feature.location),
    }


def _millis(span: timedelta | None) -> int | None:
    return None if span is None else span // timedelta(milliseconds=1)


def _age(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_duration(milliseconds)
