"""Write the TypeScript types of the API that the web UI uses (``python -m dev.ui_types``).

They are sorted, so that routes which two branches add rarely meet. Where they do, take either
version and run it again.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import msgspec

from dev.ui_build import MODULES, UI, UiBuildError, install
from headwater import FeatureStore
from headwater.http.app import create_app
from headwater.http.routing.openapi import document
from headwater.settings.schema import Settings

TYPES = UI / "src" / "api" / "schema.d.ts"
# Every route fails with the same body, which `ui/src/api/problems.ts` knows.
_LEFT_OUT = {"examples", "example", "links", "security", "tags", "headers"}


def generated() -> str:
    """Return the types of all requests and successful responses."""
    routes = create_app(FeatureStore(settings=Settings())).typed_routes
    described = msgspec.to_builtins(document([*routes]))
    program = MODULES / "openapi-typescript" / "bin" / "cli.js"
    run = subprocess.run(
        [install().executable, program, "--alphabetize"],
        input=msgspec.json.encode(_without_failures(described)),
        capture_output=True,
        check=False,
        cwd=UI,
    )
    if run.returncode:
        raise UiBuildError(f"openapi-typescript failed: {run.stderr.decode()}")
    return run.stdout.decode()


def _without_failures(described: dict[str, Any]) -> Any:
    for operations in described["paths"].values():
        for operation in operations.values():
            responses = operation["responses"]
            operation["responses"] = {
                status: answer for status, answer in responses.items() if status.startswith("2")
            }
    described["components"] = {"schemas": described["components"]["schemas"]}
    return _reduced(described, inside_properties=False)


def _reduced(value: Any, *, inside_properties: bool) -> Any:
    """Return a part of the document without parts that have no type; field names stay."""
    if isinstance(value, dict):
        return {
            key: _reduced(each, inside_properties=key in {"properties", "schemas", "paths"})
            for key, each in value.items()
            if inside_properties or key not in _LEFT_OUT
        }
    if isinstance(value, list):
        return [_reduced(each, inside_properties=False) for each in value]
    return value


if __name__ == "__main__":
    try:
        TYPES.write_text(generated())
    except UiBuildError as error:
        sys.exit(str(error))
