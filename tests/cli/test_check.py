"""`headwater check`: warnings about names that are allowed, but probably wrong."""

from pathlib import Path

from tests.cli.conftest import Run

_FEATURES = """
from headwater import Chunk, FeatureStore, Index, retriever

store = FeatureStore()
articles = Index(store, "articles")


@retriever(store, index="{name}")
def search(question: str) -> list[Chunk]: ...
"""


def test_an_index_with_almost_a_declared_name_is_a_warning(run: Run, folder: Path) -> None:
    file = folder / "searching.py"
    file.write_text(_FEATURES.format(name="artciles"))
    ran = run("check", "searching.py")
    assert ran.code == 0
    assert "searching.py:8: a retriever names the index 'artciles'" in ran.err
    assert "did you mean 'articles'?" in ran.err
    for name in ("articles", "manuals"):
        file.write_text(_FEATURES.format(name=name))
        assert run("check", "searching.py").err == ""
