"""`headwater dlq`: the events that features could not handle."""

from collections.abc import Sequence
from typing import Annotated

import typer

from headwater.cli.options import AsJson, StoreOption, bare_store, verbs
from headwater.cli.output import on_terminal, print_json, print_table, shown
from headwater.cli.running import run
from headwater.durations import format_duration
from headwater.errors import UnknownDeadLetterError
from headwater.ports import DeadLetter
from headwater.store import FeatureStore
from headwater.values import to_age_ms

app = verbs("Look at dead letters, run them again or discard them.")

ALL = 1_000_000_000

Feature = Annotated[str | None, typer.Option(help="Only those of this feature.")]
EventType = Annotated[str | None, typer.Option(help="Only those of this event type.")]
Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", show_default=False, help="Which ones.")
]
Every = Annotated[bool, typer.Option("--all", help="All of them, or all that the options select.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
