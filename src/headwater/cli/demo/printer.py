"""What the demo tells: printed for a person while it happens, kept for a machine."""

import textwrap
from pathlib import Path

import msgspec
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

_INDENT = "   "


class RecordedCall(msgspec.Struct, frozen=True):
    """A request that was made and its answer."""

    method: str
    path: str
    body: str
    status: int
    answer: object


class Shift(msgspec.Struct, frozen=True):
    """A value before and after."""

    feature: str
    entity_id: str
    before: object
    after: object


class Command(msgspec.Struct, frozen=True):
    """A command and the lines that it said."""

    command: str
    output: tuple[str, ...]


class Step(msgspec.Struct, frozen=True):
    """One part of the tour."""

    title: str
    calls: list[RecordedCall] = []
    changes: list[Shift] = []
    commands: list[Command] = []


class Story:
    """Tells each thing as it happens, in colour on a terminal and plainly elsewhere."""

    def __init__(self, *, silent: bool) -> None:
        self.steps: list[Step] = []
        self._console = Console(highlight=False, soft_wrap=True, quiet=silent)

    def begin(self, url: str, folder: Path) -> None:
        self._line(
            ("Headwater", "bold cyan"),
            " keeps features fresh with events, and proves what models saw.",
        )
        self._line("A small shop is being served from a temporary folder, by")
        self._line((f"  cd {folder} && headwater serve features.py", "green"))
        self._line("at ", (url, "underline"), ". Everything below is asked of that server.")

    def step(self, title: str, explanation: str) -> None:
        self.steps.append(Step(title))
        self._console.print()
        self._line((f"{len(self.steps)}  {title}", "bold cyan"))
        for line in textwrap.wrap(explanation, 92):
            self._line(_INDENT + line)

    def code(self, source: str) -> None:
        text = Text(source)
        if self._console.is_terminal:
            text = Syntax(source, "python", theme="ansi_dark").highlight(source)
        self._console.print()
        for line in text.split():
            self._console.print(Text("     ") + line)
        self._console.print()

    def call(self, call: RecordedCall, result: str) -> None:
        """Shows a request and what matters of its answer."""
        self.steps[-1].calls.append(call)
        body = [(f" {call.body}", "dim")] if call.body else []
        self._line(
            _INDENT,
            (f"{call.method:<4}", "magenta"),
            " ",
            call.path,
            *body,
            ("  ⇒ ", "dim"),
            result,
        )

    def change(self, change: Shift, remark: str) -> None:
        self.steps[-1].changes.append(change)
        self._line(
            _INDENT,
            (f"{change.feature} of {change.entity_id}: ", "bold"),
            f"{show(change.before)} → ",
            (show(change.after), "bold green"),
            (f"   {remark}", "dim"),
        )

    def quote(self, text: str) -> None:
        """Shows a text as it was given to somebody."""
        for line in text.splitlines():
            self._line(_INDENT, ("│ ", "dim"), line)

    def facts(self, *facts: tuple[str, str]) -> None:
        """Shows what is known of something, each with its name."""
        for name, fact in facts:
            self._line(_INDENT, (f"{name:<10}", "bold"), fact)

    def command(self, command: str, *output: str) -> None:
        """Shows a command and what it says."""
        self.steps[-1].commands.append(Command(command, output))
        self._line(_INDENT, ("$ ", "dim"), (command, "green"))
        for line in output:
            self._line(_INDENT, "  ", line)

    def tell_what_next(self, shipped: Path) -> None:
        self._console.print()
        self._line(("Next", "bold cyan"), "   the server has stopped and its folder is gone; try")
        self._commands(
            ("headwater demo --keep", "the same, and it stays for you to play with"),
            (f"cp {shipped}/features.py {shipped}/orders.csv .", "the shop's files, to change"),
            ("headwater serve features.py --reload", "serve them, anew at every change"),
            ("headwater events publish purchase ada amount=12.5", "from another terminal"),
            ("headwater features get total_spend ada", "the value, its age and its origin"),
            (
                "headwater context list",
                "what models were given; `context show ID` tells all of one",
            ),
            ("headwater graph features.py", "what depends on what"),
        )

    def tell_how_to_go_on(self, url: str, folder: Path) -> None:
        body = """'{"entity_id": "ada", "payload": {"amount": 12.5}}'"""
        self._console.print()
        self._line(("It goes on serving", "bold cyan"), " at ", (url, "underline"))
        self._line(f"   Ctrl-C stops it; the folder {folder} stays. In another terminal, try")
        self._commands(
            (f"curl '{url}/v1/features/blurb?entity_id=ada'", ""),
            (f"curl {url}/ingest/purchase -H 'Content-Type: application/json' -d {body}", ""),
            (f"cd {folder}", ""),
            ("headwater features list", ""),
            ("headwater features get total_spend ada grace", ""),
            ("headwater events publish refund ada amount=5", ""),
            ("headwater worker features.py", "one more process shares the work"),
            ("headwater dlq list", ""),
            ("headwater context list", ""),
        )

    def end(self) -> None:
        self._console.print()
        self._line("The server finishes what it has begun, and stops.")

    def _commands(self, *commands: tuple[str, str]) -> None:
        for command, purpose in commands:
            remark = [(f"   # {purpose}", "dim")] if purpose else []
            self._line(_INDENT, (command, "green"), *remark)

    def _line(self, *parts: str | tuple[str, str]) -> None:
        self._console.print(Text.assemble(*parts))


def show(value: object) -> str:
    """A value as the demo prints it."""
    return msgspec.json.encode(value).decode()
