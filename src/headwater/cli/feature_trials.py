"""What `headwater features test` runs and prints: one function, of which nothing is stored."""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from headwater.cli.arguments import parse_values
from headwater.cli.commands import CommandCall, is_missing, run
from headwater.cli.output import note, print_facts, print_table
from headwater.declarations.runtime import runtime_of
from headwater.errors import FeatureFailedError, InvalidInputError
from headwater.features.user_calls import FailureTexts, own_error
from headwater.model.features import FeatureTrial
from headwater.store.feature_store import FeatureStore


class Trial:
    """One run of a feature's function, with the arguments of the command."""

    def __init__(
        self, name: str, entity_id: str, given: Mapping[str, Any], stored: str | None
    ) -> None:
        self._name, self._entity_id = name, entity_id
        self._given, self._stored = given, stored

    def run(self, call: CommandCall) -> FeatureTrial:
        """Run it; where there is no store yet, on an empty one that is removed afterwards."""
        # The function may print; stdout is for the result.
        with redirect_stdout(sys.stderr):
            if not is_missing(call.local):
                return run(call.local, self._test)
            with TemporaryDirectory(prefix="headwater-") as home:
                note("There is no store yet; this runs on an empty one.")
                return asyncio.run(self._test_in(call.local, home))

    async def _test_in(self, store: FeatureStore, home: str) -> FeatureTrial:
        runtime = runtime_of(store)
        await runtime.rebind(store.settings.replace(home=home), runtime.clock)
        async with store:
            return await self._test(store)

    async def _test(self, store: FeatureStore) -> FeatureTrial:
        given = dict(self._given)
        if self._stored is not None:
            logged = await store.bus.list(event_id=self._stored, entity_id=self._entity_id)
            if not logged:
                raise InvalidInputError(
                    f"{self._entity_id!r} has no event with the id {self._stored!r}; see "
                    f"`headwater events list --entity-id {self._entity_id}`"
                )
            event = logged[0].event
            given |= {
                "payload": event.payload,
                "event_type": given["event_type"] or event.event_type,
                "timestamp": given["timestamp"] or event.timestamp,
                "event_id": event.event_id,
            }
        return await store.test_feature(self._name, self._entity_id, **given)


def read_payload(text: str | None) -> dict[str, Any] | None:
    """Return the payload of ``--event``: JSON, or the file after an ``@``."""
    if text is None:
        return None
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"cannot read {text[1:]}: {error}") from error
    if not text.lstrip().startswith("{"):
        raise typer.BadParameter("--event is one JSON object, such as '{\"amount\": 5}', or @FILE")
    return parse_values([text], "payload")


def print_trial(trial: FeatureTrial) -> None:
    """Print the result of a run, and what it would write and publish."""
    facts: dict[str, object] = {"value": trial.value, "took": f"{trial.took_ms:.1f} ms"}
    if trial.event is not None:
        facts["event"] = f"{trial.event.event_type} {trial.event.event_id}"
    print_facts(facts)
    for title, columns, rows in (
        (
            "Would write",
            ("feature", "entity id", "value", "as of", "kept"),
            [
                (w.feature, w.entity_id, w.value, w.as_of, "online" if w.online else "history")
                for w in trial.writes
            ],
        ),
        ("Windows", ("feature", "value"), list(trial.windows.items())),
        (
            "Would index",
            ("index", "document", "text"),
            [
                (d.index, d.document, "removed" if d.text is None else d.text)
                for d in trial.documents
            ],
        ),
        (
            "Would publish",
            ("event type", "entity id", "payload"),
            [(e.event_type, e.entity_id, e.payload) for e in trial.published],
        ),
    ):
        if rows:
            typer.echo(f"\n{title}")
            print_table(columns, rows)
    note("\nNothing was stored or published.")


def failure_of(name: str, error: FeatureFailedError) -> dict[str, str]:
    """Return the message and the traceback of a function that failed, from user's code on."""
    own, texts = own_error(name, error), FailureTexts(private=False)
    return {"error": texts.message(own), "traceback": texts.traceback(own).rstrip()}
