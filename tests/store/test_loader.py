"""Loading a features file: what it may do, and how its mistakes are told."""

import sys
from pathlib import Path

import pytest

from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    ConfigError,
    CycleError,
    FeaturesFileError,
    HeadwaterError,
    UnknownReferenceError,
)
from headwater.store.loader import load_store

HEAD = """from headwater import FeatureStore, entity, feature
store = FeatureStore()
@entity(store)
class User:
    user_id: str
"""


def refused(file: Path, text: str, kind: type[HeadwaterError] = FeaturesFileError) -> str:
    file.write_text(text)
    with pytest.raises(kind) as error:
        load_store(file)
    return str(error.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop_features.py"


def test_a_file_gives_its_store_with_everything_declared(file: Path) -> None:
    file.write_text(HEAD + "@feature(entity=User)\ndef size(user_id: str) -> int: ...\n")
    assert list(runtime_of(load_store(file)).registry.features) == ["size"]


def test_a_file_can_import_what_lies_beside_it_and_be_imported_back(file: Path) -> None:
    beside = file.with_name("beside_the_shop.py")
    beside.write_text("from shop_features import User, feature\n@feature(entity=User)\n")
    beside.write_text(beside.read_text() + "def size(user_id: str) -> int: ...\n")
    file.write_text(HEAD + "import beside_the_shop\n")
    path = list(sys.path)
    assert list(runtime_of(load_store(str(file))).registry.features) == ["size"]
    assert sys.path == path


def test_two_names_of_one_store_are_one_store(file: Path) -> None:
    file.write_text("from headwater import FeatureStore\nstore = also = FeatureStore()\n")
    assert runtime_of(load_store(file)).registry.features == {}


def test_a_file_named_like_a_module_hides_it_from_nobody(tmp_path: Path) -> None:
    file = tmp_path / "typing.py"
    file.write_text(HEAD)
    load_store(file)
    assert sys.modules["typing"].__file__ != str(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        FeaturesFileError, match=r"no features file .*absent.py.*HEADWATER_FEATURES"
    ):
        load_store(tmp_path / "absent.py")
    with pytest.raises(FeaturesFileError, match="no features file"):
        load_store(tmp_path)


def test_a_file_without_a_store_says_what_to_write(file: Path) -> None:
    assert "write `store = FeatureStore()`" in refused(file, "x = 1\n")


def test_several_stores_are_refused_by_name(file: Path) -> None:
    text = "from headwater import FeatureStore\na = FeatureStore()\nb = FeatureStore()\n"
    assert "several stores (a, b)" in refused(file, text)


def test_an_exception_is_told_with_file_and_line(file: Path) -> None:
    assert refused(file, HEAD + "\n\n1 / 0\n") == f"{file}:8: ZeroDivisionError: division by zero"
    assert file.stem not in sys.modules


def test_an_exception_in_a_file_beside_it_is_told_there(file: Path) -> None:
    beside = file.with_name("beside_that_fails.py")
    beside.write_text("\nundefined\n")
    assert refused(file, "import beside_that_fails\n").startswith(f"{beside}:2: NameError")


def test_a_syntax_error_is_told_with_file_and_line(file: Path) -> None:
    assert refused(file, "x = 1\ndef broken(:\n").startswith(f"{file}:2: SyntaxError: ")


def test_a_file_that_ends_the_program_says_where(file: Path) -> None:
    told = refused(file, HEAD + "raise SystemExit(3)\n")
    assert told.startswith(f"{file}:6: ")
    assert "if __name__ == '__main__':" in told


def test_a_declaration_that_knows_no_place_gets_one(file: Path) -> None:
    assert refused(file, HEAD + "store.source('a b', 'x.csv')\n").startswith(f"{file}:6: source")


def test_a_wrong_setting_stays_what_it_is(file: Path) -> None:
    told = refused(file, HEAD + "store.settings.replace(partitions=0)\n", ConfigError)
    assert told.startswith("partitions: 0 is not allowed")


def test_a_reference_to_nothing_is_refused_when_the_file_is_loaded(file: Path) -> None:
    text = HEAD + "@feature(entity=User, template='{siez}')\ndef a(user_id: str) -> str: ...\n"
    text += "@feature(entity=User)\ndef size(user_id: str) -> int: ...\n"
    told = refused(file, text, UnknownReferenceError)
    assert told.startswith(f"{file}:6: ")
    assert "did you mean 'size'?" in told


def test_a_circle_is_refused_when_the_file_is_loaded(file: Path) -> None:
    text = HEAD + "@feature(entity=User, template='{b}')\ndef a(user_id: str) -> str: ...\n"
    text += "@feature(entity=User, template='{a}')\ndef b(user_id: str) -> str: ...\n"
    assert "a → b → a" in refused(file, text, CycleError)


def test_a_file_edited_within_the_same_second_is_read_again(file: Path) -> None:
    file.write_text(HEAD + "A = 1\n")
    load_store(file)
    assert "edited" in refused(file, HEAD.replace("User", "Usre") + "raise ValueError('edited')")
