"""The front matter of Markdown files: YAML between lines of three hyphens."""

from __future__ import annotations

import re
from datetime import date
from typing import Any, NamedTuple

import yaml

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class FrontMatterError(ValueError):
    """Front matter that is not YAML; ``line`` is the line of the file."""

    def __init__(self, line: int, problem: str) -> None:
        self.line = line
        super().__init__(problem)


class FileText(NamedTuple):
    """The text of a file, and its metadata."""

    text: str
    metadata: dict[str, Any]


class _Loader(yaml.SafeLoader):
    """A loader without aliases: a few lines of them may stand for gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.get_mark()
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", mark)
        return super().compose_node(parent, index)


def split_front_matter(content: str) -> FileText:
    """Separate the front matter of a file from its text.

    Raises:
        FrontMatterError: It is not YAML.
    """
    match = _FRONT_MATTER.match(content)
    if match is None:
        return FileText(content, {})
    try:
        metadata = yaml.load(match.group(1), _Loader)
    except yaml.MarkedYAMLError as error:
        line = 2 + (error.problem_mark.line if error.problem_mark else 0)
        raise FrontMatterError(line, error.problem or str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise FrontMatterError(1, " ".join(str(error).split())) from error
    if not isinstance(metadata, dict):
        # Lines between two thematic breaks are a part of the text.
        return FileText(content[match.end() :] if metadata is None else content, {})
    return FileText(content[match.end() :], {str(k): _plain(v) for k, v in metadata.items()})


def _plain(value: Any) -> Any:
    """Return a value of YAML with times as text."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, list | set):
        return [_plain(element) for element in value]
    if isinstance(value, dict):
        return {str(key): _plain(element) for key, element in value.items()}
    return value
