"""`headwater features`: reading values and listing what is declared."""

from collections.abc import Mapping
from typing import Annotated

import typer

from headwater.cli.options import AsJson, FileOption, declared_store, verbs
from headwater.cli.output import note, print_json, print_table
from headwater.cli.running import run
from headwater.define import FeatureDef
from headwater.durations import format_duration
from headwater.store import FeatureStore
from headwater.values import FeatureValue

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

    async def read(store: FeatureStore) -> tuple[dict[str, FeatureValue], list[str]]:
        rows = await store.read([name], entity_ids)
        values = {i: row[name] for i, row in zip(entity_ids, rows, strict=True)}
        return values, await _troubles(store) if _absent(values) else []

    values, troubles = run(store, read)
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
    print_table(
        (store.registry.feature(name).entity.id_field, name, "source", "age", "as of"), rows
    )
    if absent := _absent(values):
        reason = "; ".join(troubles) or _why_absent(store.registry.feature(name))
        note(f"\n{', '.join(absent)}: {reason}")


@app.command("list")
def list_(*, file: FileOption = None, as_json: AsJson = False) -> None:
    """List the features of a file and how each is recomputed."""
    features = declared_store(file).registry.features.values()
    if as_json:
        print_json([_described(feature) for feature in features])
        return
    rows = [
        (f.name, f.entity.name, f.codec.expected, f.mode, _recomputed(f), f.description[:80])
        for f in features
    ]
    print_table(("feature", "entity", "type", "mode", "recomputed", "description"), rows)


def _described(feature: FeatureDef) -> dict[str, object]:
    return {
        "name": feature.name,
        "entity": feature.entity.name,
        "type": feature.codec.expected,
        "mode": feature.mode,
        "triggers": feature.triggers,
        "refresh_ms": int(feature.refresh.total_seconds() * 1000) if feature.refresh else None,
        "needs": feature.template.references if feature.template else (),
        "sql": feature.sql,
        "description": feature.description,
        "declared_at": str(feature.location),
    }


def _age(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else format_duration(milliseconds)


def _recomputed(feature: FeatureDef) -> str:
    if feature.triggers:
        return f"on {', '.join(feature.triggers)}"
    if feature.refresh:
        return f"every {format_duration(int(feature.refresh.total_seconds() * 1000))}"
    if feature.template:
        return f"from {', '.join(feature.template.references)}, when read"
    return "when read"


def _absent(values: Mapping[str, FeatureValue]) -> list[str]:
    """Those that have no value of their own."""
    return [i for i, value in values.items() if value.source in ("missing", "default")]


async def _troubles(store: FeatureStore) -> list[str]:
    """What is wrong with the store itself, such as that its values are lost."""
    return [part.detail for part in await store.health() if part.needed and not part.ok]


def _why_absent(feature: FeatureDef) -> str:
    if feature.triggers:
        return (
            f"nothing has computed {feature.name} yet; it is computed when a worker handles "
            f"{' or '.join(feature.triggers)}; `headwater dlq list` shows what one could not handle"
        )
    if feature.refresh:
        return (
            f"no refresh has written {feature.name} yet; `headwater serve` and `headwater worker` "
            f"run one {_recomputed(feature)}"
        )
    if feature.template:
        needed = ", ".join(feature.template.references)
        return f"{feature.name} needs {needed}, and not all of them have a value"
    return f"{feature.name} was computed and is nothing"
