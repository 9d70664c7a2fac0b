"""Loading a features file, by path or as a module, and the errors that it may raise."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

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


def test_a_file_can_import_its_siblings_and_be_imported_by_them(file: Path) -> None:
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


def test_a_file_named_like_a_module_does_not_replace_it(tmp_path: Path) -> None:
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


def test_a_file_without_a_store_raises_an_error_with_the_lines_to_add(file: Path) -> None:
    assert "write `store = FeatureStore()`" in refused(file, "x = 1\n")


def test_several_stores_are_refused_by_name(file: Path) -> None:
    text = "from headwater import FeatureStore\na = FeatureStore()\nb = FeatureStore()\n"
    assert "several stores (a, b)" in refused(file, text)


def test_an_exception_is_reported_with_file_and_line(file: Path) -> None:
    assert refused(file, HEAD + "\n\n1 / 0\n") == f"{file}:8: ZeroDivisionError: division by zero"
    assert file.stem not in sys.modules


def test_an_exception_in_a_sibling_file_is_reported_with_its_place(file: Path) -> None:
    beside = file.with_name("beside_that_fails.py")
    beside.write_text("\nundefined\n")
    assert refused(file, "import beside_that_fails\n").startswith(f"{beside}:2: NameError")


def test_a_syntax_error_is_reported_with_file_and_line(file: Path) -> None:
    assert refused(file, "x = 1\ndef broken(:\n").startswith(f"{file}:2: SyntaxError: ")


def test_a_file_that_ends_the_program_says_where(file: Path) -> None:
    told = refused(file, HEAD + "raise SystemExit(3)\n")
    assert told.startswith(f"{file}:6: ")
    assert "if __name__ == '__main__':" in told


def test_a_declaration_error_without_a_place_gets_one(file: Path) -> None:
    assert refused(file, HEAD + "store.source('a b', 'x.csv')\n").startswith(f"{file}:6: source")


def test_a_wrong_setting_keeps_its_error_type(file: Path) -> None:
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


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project folder with the package ``acme``, which is the working directory."""
    package = tmp_path / "acme"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "names.py").write_text("NAME = 'size'\n")
    (tmp_path / "toplevel_helper.py").write_text("HELP = 1\n")
    text = "from .names import NAME\nimport toplevel_helper\nfrom acme import names\n" + HEAD
    text += "@feature(entity=User, name=NAME)\ndef a(user_id: str) -> int: ...\n"
    (package / "features.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    # Other tests load files with these names in the same process.
    for name in ("acme", "acme.names", "acme.features", "again", "toplevel_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.mark.parametrize("target", ["acme/features.py", "acme.features"])
@pytest.mark.usefixtures("project")
def test_a_module_of_a_package_is_loaded_under_its_dotted_name(target: str) -> None:
    path = list(sys.path)
    store = load_store(target)
    assert list(runtime_of(store).registry.features) == ["size"]
    assert sys.modules["acme.features"].store is store
    assert sys.path == path
    assert load_store(target) is store


def test_a_package_that_imports_its_features_module_loads_it_once(project: Path) -> None:
    (project / "acme" / "__init__.py").write_text("from acme.features import store\n")
    assert load_store("acme.features") is sys.modules["acme"].store


def test_a_package_may_be_the_features_module(project: Path) -> None:
    (project / "acme" / "__init__.py").write_text(HEAD + "from . import names\n")
    store = load_store("acme")
    assert load_store(project / "acme" / "__init__.py") is store


def test_a_module_next_to_the_working_directory_is_found_by_name(project: Path) -> None:
    (project / "shop_module.py").write_text(HEAD)
    load_store("shop_module")
    assert sys.modules["shop_module"].__file__ == str(project / "shop_module.py")


def test_a_namespace_package_works_by_its_dotted_name(project: Path) -> None:
    (project / "acme" / "__init__.py").unlink()
    assert list(runtime_of(load_store("acme.features")).registry.features) == ["size"]


def test_a_module_of_a_package_that_is_loaded_again_is_the_same_store(project: Path) -> None:
    assert load_store("acme.features") is load_store(project / "acme" / "features.py")


def test_a_features_file_of_another_folder_is_not_found_by_imports(project: Path) -> None:
    other = project / "other" / "shop_features.py"
    other.parent.mkdir()
    other.write_text(HEAD)
    load_store(other)
    (project / "main_features.py").write_text("import shop_features\n" + HEAD)
    with pytest.raises(FeaturesFileError, match="No module named 'shop_features'"):
        load_store(project / "main_features.py")


def test_a_file_is_loaded_again_after_a_module_that_had_its_name_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop_names.py"
    file.write_text(HEAD)
    monkeypatch.setitem(sys.modules, "shop_names", ModuleType("shop_names"))
    first = load_store(file)
    assert sys.modules["headwater_features_shop_names"].store is first
    monkeypatch.delitem(sys.modules, "shop_names")
    assert load_store(file) is sys.modules["shop_names"].store is not first


def test_a_file_that_is_loaded_under_two_names_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A module of this name that an earlier test imported would be found before the file.
    monkeypatch.delitem(sys.modules, "features", raising=False)
    package = project / "acme"
    stale = project / "stale" / "features.py"
    stale.parent.mkdir()
    stale.write_text(HEAD)
    load_store(stale)  # another file of this name does not hide the second name
    text = "import sys\nsys.path.insert(0, sys.path[0] + '/acme')\nimport again\n"
    (package / "again.py").write_text("import features\n")
    source = (package / "features.py").read_text().replace("from .names", "from acme.names")
    (package / "features.py").write_text("import toplevel_helper\n" + source)
    (project / "toplevel_helper.py").write_text(text)
    path = list(sys.path)
    with pytest.raises(FeaturesFileError) as error:
        load_store("acme.features")
    sys.path[:] = path
    assert str(error.value).startswith(f"{package / 'features.py'}:1: the file is loaded twice")
    assert "as the modules acme.features and features" in str(error.value)
    assert "import it as acme.features everywhere" in str(error.value)


def test_a_package_of_the_same_name_from_elsewhere_is_refused(project: Path) -> None:
    load_store("acme.features")
    other = project / "other" / "acme"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    (other / "features.py").write_text(HEAD)
    with pytest.raises(FeaturesFileError, match=r"'acme\.features' is already imported from"):
        load_store(other / "features.py")


@pytest.mark.parametrize("file", ["__init__.py", "names.py"])
def test_an_exception_in_the_package_is_reported_with_file_and_line(
    project: Path, file: str
) -> None:
    (project / "acme" / file).write_text("\n1 / 0\n")
    with pytest.raises(FeaturesFileError) as error:
        load_store("acme.features")
    assert str(error.value) == f"{project / 'acme' / file}:2: ZeroDivisionError: division by zero"


@pytest.mark.parametrize("target", ["acme.absent", "absent_package.features", "acme features"])
@pytest.mark.usefixtures("project")
def test_a_module_that_does_not_exist_is_named(target: str) -> None:
    with pytest.raises(FeaturesFileError, match=f"there is no features file '{target}'"):
        load_store(target)
