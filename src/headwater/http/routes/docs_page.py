"""The OpenAPI document as a page of HTML, without scripts and without other hosts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from headwater.model.problems import MEDIA_TYPE, TYPE_PREFIX

_Described = Mapping[str, Any]
_FIRST_PROBLEM = 400
_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "pattern {}",
    "format": "{}",
}


def page_of(document: _Described) -> str:
    """Return the page: routes by tag, with parameters, bodies, an example and problems."""
    by_tag: dict[str, list[str]] = {tag["name"]: [] for tag in document["tags"]}
    menu: dict[str, list[str]] = {name: [] for name in by_tag}
    for path, method, operation in _operations(document):
        (tag,) = operation["tags"]
        by_tag[tag].append(_operation(path, method, operation, document))
        menu[tag].append(
            f'<li><a href="#{operation["operationId"]}">{_method(method)} {escape(path)}</a></li>'
        )
    described = {tag["name"]: tag["description"] for tag in document["tags"]}
    entries = "".join(
        f"<li><b>{escape(tag)}</b><ul>{''.join(links)}</ul></li>" for tag, links in menu.items()
    )
    sections = "".join(
        f'<section><h2 id="tag-{escape(tag)}">{escape(tag)}</h2><p>{_text(described[tag])}</p>'
        f"{''.join(parts)}</section>"
        for tag, parts in by_tag.items()
    )
    info = document["info"]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(info['title'])} HTTP API</title>"
        '<link rel="stylesheet" href="docs.css"></head><body>'
        f'<nav aria-label="Routes"><ul>{entries}</ul></nav>'
        f"<main><h1>{escape(info['title'])} HTTP API</h1><p>{_text(info['description'])}</p>"
        f'<p>The same as data: <a href="openapi.json">openapi.json</a>, with a key.</p>'
        "<p>In the examples, <code>$URL</code> is the address of this page without "
        "<code>/docs</code>, and <code>$KEY</code> is an API key.</p>"
        f"{sections}</main></body></html>"
    )


def _operations(document: _Described) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _operation(path: str, method: str, operation: _Described, document: _Described) -> str:
    name = operation["operationId"]
    details = operation.get("description", "")
    return (
        f'<article id="{name}"><h3><a href="#{name}">{_method(method)} <code>{escape(path)}</code>'
        f"</a></h3><p>{_text(operation['summary'])} {_text(details)}</p>"
        f"<p class=scope>Scope: <b>{escape(operation['x-scope'])}</b></p>"
        f"{_parameters(operation, document)}{_body(operation, document)}"
        f"<h4>Example</h4><pre>{escape(_curl(path, method, operation))}</pre>"
        f"{_responses(operation, document)}</article>"
    )


def _parameters(operation: _Described, document: _Described) -> str:
    rows = "".join(
        _row(
            each["name"], each["in"], each["required"], each.get("description", ""), each["schema"]
        )
        for each in operation["parameters"]
    )
    return f"<h4>Parameters</h4>{_table('in', rows)}" if rows else ""


def _body(operation: _Described, document: _Described) -> str:
    if "requestBody" not in operation:
        return ""
    content = operation["requestBody"]["content"]
    schema = _resolved(next(iter(content.values()))["schema"], document)
    schema = _resolved(schema.get("items", schema), document)
    required = schema.get("required", ())
    rows = "".join(
        _row(name, "body", name in required, _described(field), field)
        for name, field in schema.get("properties", {}).items()
    )
    table = _table("in", rows) if rows else ""
    return f"<h4>Body: {escape(', '.join(content))}</h4>{table}"


def _table(place: str, rows: str) -> str:
    return (
        f"<div class=wide><table><thead><tr><th>name<th>{place}<th>type<th>meaning</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _row(name: str, place: str, is_required: bool, text: str, schema: _Described) -> str:  # noqa: FBT001 - a column
    need = "required" if is_required else ""
    return (
        f"<tr><td><code>{escape(name)}</code> <em>{need}</em><td>{place}<td>{_type(schema)}"
        f"<td>{_text(text)}{_shown_example(schema)}</tr>"
    )


def _described(field: _Described) -> str:
    return next((each["description"] for each in _forms(field) if "description" in each), "")


def _forms(field: _Described) -> list[Any]:
    return [field, *field.get("anyOf", ())]


def _type(schema: _Described) -> str:
    names: list[str] = []
    limits: list[str] = []
    for each in _forms(schema):
        if "enum" in each:
            names += [json.dumps(value) for value in each["enum"]]
        elif "type" in each:
            names.append(str(each["type"]))
        limits += [_limit(text, each[key]) for key, text in _LIMITS.items() if key in each]
    shown = f"<code>{escape(' | '.join(names) or 'any')}</code>"
    default = schema.get("default")
    if default is not None:
        limits.append(f"default {json.dumps(default)}")
    return shown + (f"<small>{escape(', '.join(limits))}</small>" if limits else "")


def _shown_example(schema: _Described) -> str:
    found = next((each["examples"][0] for each in _forms(schema) if "examples" in each), None)
    if found is None:
        return ""
    text = found if isinstance(found, str) else json.dumps(found)
    return f" <small>Example: <code>{escape(text)}</code></small>"


def _limit(text: str, limit: object) -> str:
    return text.format(limit).removesuffix("s" if limit == 1 else "")


def _curl(path: str, method: str, operation: _Described) -> str:
    query = []
    for each in operation["parameters"]:
        value = str(each["schema"].get("examples", [""])[0])
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", value)
        elif each["in"] == "query" and each["required"]:
            query.append(f"{each['name']}={value}")
    url = f"$URL{path}{'?' if query else ''}{'&'.join(query)}"
    words = ["curl", f'"{url}"'] if method in ("get", "post") else [
        "curl", "-X", method.upper(), f'"{url}"'
    ]  # fmt: skip
    if operation["security"]:
        words.append('-H "X-API-Key: $KEY"')
    if "requestBody" in operation:
        media_type, content = next(iter(operation["requestBody"]["content"].items()))
        words.append(f"\\\n  -H 'Content-Type: {media_type}'")
        words.append(f"\\\n  {_data(content)}")
    return " ".join(words)


def _responses(operation: _Described, document: _Described) -> str:
    rows = ""
    for status, response in operation["responses"].items():
        content = response.get("content", {})
        problem = content.get(MEDIA_TYPE) if int(status) >= _FIRST_PROBLEM else None
        if problem is None:
            names = [_schema_name(each["schema"]) for each in content.values()]
            text = f"{escape(response['description'])} {escape(', '.join(filter(None, names)))}"
        else:
            types = problem["schema"]["properties"]["type"]["enum"]
            text = ", ".join(
                f"<code>{escape(each.removeprefix(TYPE_PREFIX))}</code>" for each in types
            )
        rows += f"<tr><td>{status}<td>{text}</tr>"
    return (
        "<details><summary>Responses and problem types</summary><table><thead><tr><th>status"
        f"<th>body</tr></thead><tbody>{rows}</tbody></table></details>"
    )


def _schema_name(schema: _Described) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _resolved(schema: _Described, document: _Described) -> Any:
    name = _schema_name(schema)
    return document["components"]["schemas"][name] if name else schema


def _method(method: str) -> str:
    return f'<span class="{method}">{method.upper()}</span>'


def _text(text: str) -> str:
    """Return prose as HTML; text between backticks is code."""
    parts = escape(text.replace("``", "`")).split("`")
    return "".join(f"<code>{part}</code>" if n % 2 else part for n, part in enumerate(parts))


def _data(content: _Described) -> str:
    """Return the option of curl for a body: an example, or a file."""
    if content["schema"].get("format") == "binary":
        return "--data-binary @FILE"
    return f"-d '{json.dumps(content['example'], ensure_ascii=False)}'"
