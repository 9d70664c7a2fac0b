"""`make reference`: write the generated tables into the pages."""

from __future__ import annotations

import sys

from dev.reference.pages import ROOT, generate
from dev.reference.tables import IncompleteReferenceError

if __name__ == "__main__":
    try:
        pages = generate()
    except IncompleteReferenceError as error:
        sys.exit(f"error: {error}")
    for page, text in pages.items():
        if page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {page.relative_to(ROOT)}\n")
