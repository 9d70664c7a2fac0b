"""Write the generated files, and remove obsolete vectors."""

from __future__ import annotations

from verifier.generator.files import FOLDER, files

generated = files()
for old in (FOLDER / "vectors" / "records").glob("*.json"):
    if f"vectors/records/{old.name}" not in generated:
        old.unlink()
for path, text in generated.items():
    file = FOLDER / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8", newline="\n")
