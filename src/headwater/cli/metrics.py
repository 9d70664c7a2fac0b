"""`headwater metrics`: print the Grafana dashboard and the Prometheus alert rules."""

from typing import Annotated

import typer
import yaml

from headwater.cli.options import command_group
from headwater.cli.output import print_json
from headwater.telemetry.alerts import alert_rules
from headwater.telemetry.dashboard import dashboard as grafana_dashboard

app = command_group("Print a Grafana dashboard and Prometheus alert rules.")


@app.callback()
def metrics() -> None:
    """Print a Grafana dashboard and Prometheus alert rules."""


@app.command()
def dashboard() -> None:
    """Print the Grafana dashboard as JSON, for its import page."""
    print_json(grafana_dashboard())


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
    typer.echo(yaml.safe_dump(alert_rules(docs_url), sort_keys=False, width=1_000), nl=False)
