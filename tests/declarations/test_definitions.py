"""The identity of a handler: what changes its hash, and what does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.definitions import definition_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.store.loader import load_store

FILE = """
from headwater import FeatureStore, ServiceEvent, entity, feature
from rates import rate_of
import helpers

store = FeatureStore()
PRICES = {"a": 1, "b": 2}
UNRELATED = 1


def unrelated() -> int:
    return 1


def price(event: ServiceEvent) -> int:
    return PRICES[event.payload["kind"]]


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="buy", default=0)
async def total(user_id: str, event: ServiceEvent) -> int:
    before = await store.get_feature("total", user_id)
    return before + price(event) * rate_of(event) + helpers.extra(1)
"""
RATES = """
BASE = 2


def rate_of(event: object) -> int:
    return BASE
"""
HELPERS = """
def extra(number: int) -> int:
    return number


def other(number: int) -> int:
    return number
"""


def feature_of(store: FeatureStore, name: str = "total") -> FeatureDef:
    return runtime_of(store).registry.feature(name)


def written(folder: Path, file: str = FILE, rates: str = RATES, helpers: str = HELPERS) -> Path:
    folder.mkdir()
    (folder / "rates.py").write_text(rates)
    (folder / "helpers.py").write_text(helpers)
    (folder / "features.py").write_text(file)
    return folder / "features.py"


def in_another_process(file: Path, name: str = "total") -> str:
    """Return the hash that a process of its own has, with other hashes of texts."""
    code = (
        "import sys; from headwater.store.loader import load_store\n"
        "from headwater.declarations.runtime import runtime_of\n"
        "from headwater.declarations.definitions import definition_of\n"
        f"print(definition_of(runtime_of(load_store(sys.argv[1])).registry.feature({name!r})))"
    )
    found = subprocess.run([sys.executable, "-c", code, file], capture_output=True, check=True)
    return found.stdout.decode().strip()


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> str:
    return in_another_process(written(tmp_path_factory.mktemp("original") / "a"))


@pytest.mark.parametrize(
    "file",
    [
        FILE,
        "# a comment\n\n\n" + FILE,
        FILE.replace("    before = ", '    """Describe it."""\n    # why\n    before = '),
        FILE.replace("UNRELATED = 1", "UNRELATED = 2").replace("return 1", "return 2"),
        FILE.replace("price(event) * rate_of(event)", "(price( event )*rate_of(event))"),
        FILE.replace('trigger="buy", default=0', 'trigger="buy", default=0, max_retries=9'),
    ],
)
def test_the_hash_of_a_handler_is_the_same_wherever_and_however_it_is_written(
    file: str, tmp_path: Path, original: str
) -> None:
    helpers = HELPERS.replace("def other", "# other\ndef other")
    assert in_another_process(written(tmp_path / "b", file, helpers=helpers)) == original


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return before + ", "return before - "),
        ('"b": 2', '"b": 3'),
        ('event.payload["kind"]]', 'event.payload["sort"]]'),
        ("default=0", "default=1"),
        ('trigger="buy"', 'trigger=["buy", "sell"]'),
        ("-> int:\n    before", "-> float:\n    before"),
        ("BASE = 2", "BASE = 3"),
        ("int:\n    return number\n\n\ndef other", "int:\n    return 2 * number\n\n\ndef other"),
    ],
)
def test_a_change_of_the_function_or_of_what_it_reaches_is_another_definition(
    before: str, after: str, tmp_path: Path, original: str
) -> None:
    texts = [each.replace(before, after) for each in (FILE, RATES, HELPERS)]
    assert texts != [FILE, RATES, HELPERS]
    assert in_another_process(written(tmp_path / "b", *texts)) != original


def test_a_function_that_claims_the_module_of_its_importer_has_a_definition(
    tmp_path: Path, original: str
) -> None:
    file = written(tmp_path / "b", rates="from helpers import rate_of\n")
    (tmp_path / "b" / "helpers.py").write_text(HELPERS + RATES + '\nrate_of.__module__ = "rates"\n')
    assert in_another_process(file) not in ("", original)


def test_a_file_that_is_replaced_while_the_process_runs_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "features.py"
    text = FILE.replace("from rates import rate_of\nimport helpers\n", "")
    text = text.replace(" * rate_of(event) + helpers.extra(1)", "")
    file.write_text(text)
    store = load_store(file)
    file.write_text(text.replace("before +", "before -"))
    assert definition_of(feature_of(store)) == in_another_process(_copy(tmp_path, text))
    assert definition_of(feature_of(store)) != in_another_process(file)


def _copy(folder: Path, text: str) -> Path:
    (folder / "copied.py").write_text(text)
    return folder / "copied.py"


def made_with(rate: float, default: int = 0) -> FeatureStore:
    store = FeatureStore()

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=default)
    def total(user_id: str, event: ServiceEvent) -> float:
        return rate

    return store


def test_constants_of_an_enclosing_function_count() -> None:
    hashes = [definition_of(feature_of(made_with(rate))) for rate in (1.0, 1.0, 2.0)]
    assert hashes[0] == hashes[1] != hashes[2]


def compiled(expression: str) -> Callable[[str, ServiceEvent], int]:
    scope: dict[str, Callable[[str, ServiceEvent], int]] = {}
    lines = ["def total(user_id: str, event: object) -> int:", f"    return {expression}"]
    exec("\n".join(lines), scope)
    return scope["total"]


def test_a_function_without_source_is_known_by_its_instructions() -> None:
    hashes = []
    for expression in ("1 if event in {'a', 'b'} else 2", "1 if event in {'b', 'a'} else 2", "3"):
        store = FeatureStore()

        @entity(store)
        class User:
            user_id: str

        feature(entity=User, trigger="buy")(compiled(expression))
        hashes.append(definition_of(feature_of(store)))
    assert hashes[0] == hashes[1] != hashes[2]
