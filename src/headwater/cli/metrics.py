"""`headwater metrics`: print the Grafana dashboard and the Prometheus alert rules."""

from importlib.resources import files
from typing import Annotated

import typer
import yaml

from headwater.cli.options import command_group

app = command_group("Print a Grafana dashboard and Prometheus alert rules.")

FILES = files("headwater.telemetry")


@app.callback()
def metrics() -> None:
    """Print a Grafana dashboard and Prometheus alert rules."""


@app.command()
def dashboard() -> None:
    """Print the Grafana dashboard as JSON, for its import page."""
    typer.echo(FILES.joinpath("dashboard.json").read_text(), nl=False)


@app.command()
def alerts(
    *,
    docs_url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="Address of the folder docs, for the links of the alerts."
        ),
    ] = "docs",
) -> None:
    """Print the Prometheus alert rules as YAML, for `rule_files`."""
    rules = yaml.safe_load(FILES.joinpath("alerts.yml").read_text())
    for rule in rules["groups"][0]["rules"]:
        path = rule["annotations"]["runbook_url"].removeprefix("docs")
        rule["annotations"]["runbook_url"] = docs_url.rstrip("/") + path
    typer.echo(yaml.safe_dump(rules, sort_keys=False, width=1_000), nl=False)
