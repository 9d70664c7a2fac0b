"""The text of HTML pages, with headings, lists, code and tables as Markdown writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import NamedTuple

_SKIPPED = frozenset({"script", "style", "nav", "template", "noscript", "svg", "iframe", "object"})
_BLOCKS = frozenset(
    {
        *("address", "article", "aside", "blockquote", "body", "dd"),
        *("details", "div", "dl", "dt", "fieldset", "figcaption"),
        *("figure", "footer", "form", "header", "hr", "html"),
        *("legend", "main", "p", "section", "summary", "table"),
    }
)
_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
_SPACE = re.compile(r"\s+")
_EMPTY_LINES = re.compile(r"\n{3,}")


class HtmlPage(NamedTuple):
    """The text of a page and its title."""

    text: str
    title: str


def html_page(content: str) -> HtmlPage:
    """Return the text of an HTML page, without scripts, styles and navigation."""
    parser = _TextParser()
    parser.feed(content)
    parser.close()
    return parser.page()


class _TextParser(HTMLParser):
    """Collects the text of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._title: list[str] = []
        self._skipped: list[str] = []
        self._lists: list[int] = []  # number of the last item; negative in lists without numbers
        self._is_title = self._is_code = self._is_cell = False
        self._cells = 0

    def page(self) -> HtmlPage:
        lines = "".join(self._parts).split("\n")
        text = _EMPTY_LINES.sub("\n\n", "\n".join(line.rstrip() for line in lines)).strip("\n")
        return HtmlPage(text, _SPACE.sub(" ", "".join(self._title)).strip())

    # The parser calls these.

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED:
            self._skipped.append(tag)
        elif self._skipped:
            return
        elif tag in _HEADINGS:
            self._break(2)
            self._write(_HEADINGS[tag] + " ")
        elif tag in _BLOCKS:
            self._break(2)
        elif tag == "img":
            self.handle_data(dict(attrs).get("alt") or "")
        elif start := _STARTS.get(tag):
            start(self)

    def handle_endtag(self, tag: str) -> None:
        if tag in _SKIPPED:
            if tag in self._skipped:
                del self._skipped[self._skipped.index(tag) :]
        elif self._skipped:
            return
        elif tag in _BLOCKS or tag in _HEADINGS:
            self._break(2)
        elif end := _ENDS.get(tag):
            end(self)

    def handle_data(self, data: str) -> None:
        if self._skipped:
            return
        if self._is_title:
            self._title.append(data)
        elif self._is_code:
            self._write(data)
        else:
            text = _SPACE.sub(" ", data)
            self._write(text.lstrip() if self._ends_with((" ", "\n")) else text)

    # Elements

    def start_title(self) -> None:
        self._is_title = True

    def end_title(self) -> None:
        self._is_title = False

    def start_pre(self) -> None:
        self._break(2)
        self._write("```\n")
        self._is_code = True

    def end_pre(self) -> None:
        if self._is_code:
            self._is_code = False
            self._break(1)
            self._write("```")
            self._break(2)

    def mark_code(self) -> None:
        if not self._is_code:
            self._write("`")

    def start_list(self) -> None:
        self._break(1 if self._lists else 2)
        self._lists.append(-1)

    def start_numbers(self) -> None:
        self.start_list()
        self._lists[-1] = 0

    def end_list(self) -> None:
        if self._lists:
            self._lists.pop()
        self._break(1 if self._lists else 2)

    def start_item(self) -> None:
        self._break(1)
        indent = "  " * (len(self._lists) - 1)
        if self._lists and self._lists[-1] >= 0:
            self._lists[-1] += 1
            self._write(f"{indent}{self._lists[-1]}. ")
        else:
            self._write(f"{indent}- ")

    def end_line(self) -> None:
        self._break(1)

    def start_row(self) -> None:
        self._is_cell = False
        self._break(1)
        self._cells = 0

    def start_cell(self) -> None:
        self._is_cell = True
        self._write("| " if self._ends_with((" ", "\n")) else " | ")
        self._cells += 1

    def end_row(self) -> None:
        self._is_cell = False
        if self._cells:
            self._write("|" if self._ends_with((" ",)) else " |")
            self._cells = 0
        self._break(1)

    # Output

    def _write(self, text: str) -> None:
        if text:
            self._parts.append(text)

    def _ends_with(self, ends: tuple[str, ...]) -> bool:
        return not self._parts or self._parts[-1].endswith(ends)

    def _break(self, lines: int) -> None:
        """End the current line; inside a cell of a table, everything stays in one line."""
        if self._is_cell:
            self._write("" if self._ends_with((" ",)) else " ")
            return
        end = "".join(self._parts[-2:])
        present = len(end) - len(end.rstrip("\n"))
        if self._parts:
            self._write("\n" * (lines - present))


_STARTS: dict[str, Callable[[_TextParser], None]] = {
    "title": _TextParser.start_title,
    "pre": _TextParser.start_pre,
    "code": _TextParser.mark_code,
    "ul": _TextParser.start_list,
    "ol": _TextParser.start_numbers,
    "li": _TextParser.start_item,
    "br": _TextParser.end_line,
    "tr": _TextParser.start_row,
    "td": _TextParser.start_cell,
    "th": _TextParser.start_cell,
}
_ENDS: dict[str, Callable[[_TextParser], None]] = {
    "title": _TextParser.end_title,
    "pre": _TextParser.end_pre,
    "code": _TextParser.mark_code,
    "ul": _TextParser.end_list,
    "ol": _TextParser.end_list,
    "li": _TextParser.end_line,
    "tr": _TextParser.end_row,
    "table": _TextParser.end_row,
}
