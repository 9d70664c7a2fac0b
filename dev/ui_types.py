"""Write types and routes of TypeScript client and web UI (``python -m dev.ui_types``).

They are sorted, so that routes which two branches add rarely meet. Where they do, take either
version and run it again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from dev.ui_build import MODULES, ROOT, UI, UiBuildError, install
from headwater import FeatureStore
from headwater.http.app import create_app
from headwater.http.routing.openapi import document
from headwater.settings.schema import Settings

CLIENT = ROOT / "clients" / "typescript" / "src"
TYPES = CLIENT / "schema.d.ts"
ROUTES = CLIENT / "routes.ts"
# Every route fails with the same body, which `ui/src/api/problems.ts` knows.
_SCHEMA = "#/components/schemas/"
_LEFT_OUT = {"examples", "example", "links", "security", "tags", "headers"}


def described_api() -> dict[str, Any]:
    """Return the OpenAPI document."""
    routes = create_app(FeatureStore(settings=Settings())).typed_routes
    described: dict[str, Any] = msgspec.to_builtins(document([*routes]))
    return described


def generated_routes(described: dict[str, Any]) -> str:
    """Return the method and path of each operation."""
    lines = sorted(
        f'  {operation["operationId"]}: ["{method.upper()}", "{path}"],'
        for path, operations in described["paths"].items()
        for method, operation in operations.items()
    )
    return "\n".join(
        [
            'import type { operations } from "./schema.js";',
            "",
            "/** The name of a route, as in the OpenAPI document. */",
            "export type Operation = keyof operations;",
            "",
            "export const routes: Readonly<Record<Operation, readonly [string, string]>> = {",
            *lines,
            "};",
            "",
        ]
    )


def generated(described: dict[str, Any]) -> str:
    """Return the types of all requests and successful responses."""
    program = MODULES / "openapi-typescript" / "bin" / "cli.js"
    run = subprocess.run(
        [install().executable, program, "--alphabetize", "--empty-objects-unknown"],
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
    described["components"] = {"schemas": _typed(described["components"]["schemas"])}
    _leave_out_defaults(described)
    return _reduced(described, inside_properties=False)


def _typed(schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schemas, where any JSON is unknown: TypeScript has no such type in a type."""
    return {
        name: {} if "anyOf" in each and name in _referred(each) else each
        for name, each in schemas.items()
    }


def _leave_out_defaults(described: dict[str, Any]) -> None:
    """Let requests leave out what has a default; responses always have it.

    A schema of both gets a copy for requests.
    """
    schemas = described["components"]["schemas"]
    operations = [each for path in described["paths"].values() for each in path.values()]
    asked = [each["requestBody"] for each in operations if "requestBody" in each]
    answered = _reached([each["responses"] for each in operations], schemas)
    given = _reached(asked, schemas)
    names = {name: f"{name}Given" if name in answered else name for name in given}
    schemas |= {names[name]: _as_given(schemas[name], names) for name in given}
    for each in asked:
        each |= _as_given(each, names)


def _as_given(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {
            key: f"{_SCHEMA}{names[each.removeprefix(_SCHEMA)]}"
            if key == "$ref"
            else _as_given(each, names)
            for key, each in value.items()
            if key != "default"
        }
    return [_as_given(each, names) for each in value] if isinstance(value, list) else value


def _reached(value: Any, schemas: Mapping[str, Any]) -> set[str]:
    """Return the names of the schemas that a part of the document refers to, at any depth."""
    reached: set[str] = set()
    new = _referred(value)
    while new:
        reached |= new
        new = set().union(*(_referred(schemas[name]) for name in new)) - reached
    return reached


def _referred(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].removeprefix(_SCHEMA)} if "$ref" in value else set[str]()
        return own.union(*map(_referred, value.values()))
    return set().union(*map(_referred, value)) if isinstance(value, list) else set()


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
        api = described_api()
        ROUTES.write_text(generated_routes(api))
        TYPES.write_text(generated(api))
    except UiBuildError as error:
        sys.exit(str(error))
