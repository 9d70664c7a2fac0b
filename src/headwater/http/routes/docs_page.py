"""The OpenAPI document as a page of HTML, without scripts and without other hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import Any

_Described = Mapping[str, Any]
_NOT_LIMITS = ("anyOf", "description")
_FILE = files("headwater.http.routes").joinpath("docs.html")
_PAGE, _OPERATION = _FILE.read_text().split("<!-- the template of each route -->\n")


def page_of(document: _Described) -> str:
    """Return the page: routes by tag, with parameters, bodies, an example and problems."""
    schemas, menu, sections = document["components"]["schemas"], "", ""
    for tag in document["tags"]:
        links = articles = ""
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if operation["tags"] == [tag["name"]]:
                    shown = f'<span class="{method}">{method.upper()}</span> {escape(path)}'
                    link = f'<a href="#{operation["operationId"]}">{shown}</a>'
                    links += f"<li>{link}</li>"
                    articles += _operation(link, operation, schemas, _curl(path, method, operation))
        menu += f"<li><b>{tag['name']}</b><ul>{links}</ul></li>"
        head = f"<h2>{tag['name']}</h2><p>{_text(tag['description'])}</p>"
        sections += f"<section>{head}{articles}</section>"
    about = _text(document["info"]["description"])
    return _PAGE.format(about=about, menu=menu, sections=sections)


def _operation(link: str, operation: _Described, schemas: _Described, example: str) -> str:
    return _OPERATION.format(
        name=operation["operationId"],
        link=link,
        text=_text(f"{operation['summary']} {operation.get('description', '')}"),
        scope=operation["x-scope"],
        fields="".join(_fields(operation, schemas)),
        example=escape(example),
        responses="".join(
            f"<tr><td>{status}<td>{_text(response['description'])}</tr>"
            for status, response in operation["responses"].items()
        ),
    )


def _fields(operation: _Described, schemas: _Described) -> Iterator[str]:
    """Return a row for each parameter, and for each field of the body."""
    for parameter in operation["parameters"]:
        schema = {"description": parameter.get("description", "")} | parameter["schema"]
        yield _row(parameter["name"], parameter["in"], schema, is_required=parameter["required"])
    for _, content in _body(operation):
        schema = content["schema"].get("items", content["schema"])
        schema = schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
        for name, field in schema.get("properties", {}).items():
            yield _row(name, "body", field, is_required=name in schema.get("required", ()))


def _row(name: str, place: str, schema: _Described, *, is_required: bool) -> str:
    forms = [schema, *schema.get("anyOf", ())]
    limits = [{key: form[key] for key in form if key not in _NOT_LIMITS} for form in forms]
    kind = escape(" or ".join(json.dumps(form)[1:-1].replace('"', "") for form in limits if form))
    meaning = _text(next((form["description"] for form in forms if "description" in form), ""))
    shown = f"<code>{name}</code> <em>{'required' if is_required else ''}</em>"
    return f"<tr><td>{shown}<td>{place}<td><small>{kind}</small><td>{meaning}</tr>"


def _curl(path: str, method: str, operation: _Described) -> str:
    query = []
    for parameter in operation["parameters"]:
        name, value = parameter["name"], str(parameter["schema"].get("examples", [""])[0])
        path = path.replace(f"{{{name}}}", value)
        if parameter["in"] == "query" and parameter["required"]:
            query.append(f"{name}={value}")
    command = "curl" if method in ("get", "post") else f"curl -X {method.upper()}"
    command += f' "$URL{path}{"?" if query else ""}{"&".join(query)}"'
    if operation["security"]:
        command += ' -H "X-API-Key: $KEY"'
    for media_type, content in _body(operation):
        is_file = content["schema"].get("format") == "binary"
        data = "@FILE" if is_file else f"'{json.dumps(content['example'], ensure_ascii=False)}'"
        command += f" \\\n  -H 'Content-Type: {media_type}' \\\n  --data-binary {data}"
    return command


def _body(operation: _Described) -> list[tuple[str, Any]]:
    """Return the first media type of the body and its content, or nothing without a body."""
    return list(operation.get("requestBody", {}).get("content", {}).items())[:1]


def _text(text: str) -> str:
    """Return prose as HTML; text between backticks is code."""
    return re.sub("`+(.+?)`+", r"<code>\1</code>", escape(text))
