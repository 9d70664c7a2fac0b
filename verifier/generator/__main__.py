"""Writes the files, and removes vectors that are no longer made."""

from __future__ import annotations

from verifier.generator.files import FOLDER, files

made = files()
for old in (FOLDER / "vectors" / "records").glob("*.json"):
    if f"vectors/records/{old.name}" not in made:
        old.unlink()
for path, text in made.items():
    file = FOLDER / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", newline="\n")
