"""The former code of a cohort, loaded beside the present code in one process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater import FeatureStore
from headwater.contexts.evaluation.cohort import Cohort
from headwater.declarations.definitions import code_of, definition_of
from headwater.declarations.runtime import runtime_of
from headwater.errors import FeaturesFileError
from headwater.model.evaluations import CohortHeader, CohortSeal
from headwater.store.base_code import KeptCode, kept_code, load_base
from headwater.store.loader import load_store
from tests.contexts.evaluation.test_cohorts import NOON

FEATURES = """
from headwater import FeatureStore, entity, feature
from {helper} import greeting

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User)
def hello(user_id: str) -> str:
    return greeting() + user_id

@feature(entity=User)
def same(user_id: str) -> str:
    return user_id

@feature(entity=User)
def later(user_id: str) -> str:
    from {helper} import farewell
    return farewell()
"""
HELPER = """
from {words} import FAREWELL, unchanged

def greeting() -> str:
    return "{greeting} " + unchanged()

def farewell() -> str:
    import {words} as words
    return words.FAREWELL
"""
WORDS = """
FAREWELL = "bye {greeting}"

def unchanged() -> str:
    return "dear "
"""
Project = Callable[[str], Path]


@pytest.fixture(autouse=True)
def _no_modules_left() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture(params=["files", "package", "relative", "namespace"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """Return a function that writes the user's files, in different layouts."""
    layout = request.param
    folder = tmp_path if layout in ("files", "namespace") else tmp_path / "shop"
    helper, words = {
        "files": ("helper", "words"),
        "package": ("shop.helper", "shop.words"),
        "relative": (".helper", ".words"),
        "namespace": ("lib.helper", "lib.words"),
    }[layout]

    def write(greeting: str) -> Path:
        inner = tmp_path / "lib" if layout == "namespace" else folder
        inner.mkdir(exist_ok=True)
        if layout in ("package", "relative"):
            (folder / "__init__.py").write_text("")
        as_import = "import {words} as words", f"from . import {words[1:]} as words"
        text = HELPER.replace(*as_import) if layout == "relative" else HELPER
        (folder / "features.py").write_text(FEATURES.format(helper=helper))
        (inner / "helper.py").write_text(text.format(greeting=greeting, words=words))
        (inner / "words.py").write_text(WORDS.format(greeting=greeting))
        return folder / "features.py"

    return write


def cohort_of(kept: KeptCode, folder: Path) -> Cohort:
    header = CohortHeader(
        name="old", created_at=NOON, chosen={}, features=kept.features, code=kept.code
    )
    seal = CohortSeal(count=0, cohort_hash="sha256:0")
    return Cohort(str(folder / "evals" / "old.cohort"), header, seal)


def called(store: FeatureStore, name: str) -> str:
    text: str = function(store, name)("ada")
    return text


def function(store: FeatureStore, name: str) -> Callable[[str], str]:
    made = runtime_of(store).registry.features[name].function
    assert made is not None
    return made


@pytest.fixture
def old(project: Project, tmp_path: Path) -> Cohort:
    """Return a cohort with the code that said hello, in place of which there is other code now."""
    file = project("hello")
    store = load_store(file)
    cohort = cohort_of(kept_code(file), tmp_path)
    assert called(store, "hello") == "hello dear ada"
    for name in [name for name in sys.modules if name.partition(".")[0] in ("shop", "lib")]:
        del sys.modules[name]
    for name in ("helper", "words", "features", "headwater_features_features"):
        sys.modules.pop(name, None)
    project("servus")
    return cohort


@pytest.mark.parametrize("order", ["base first", "base second"])
def test_both_codes_run_in_one_process_whichever_is_loaded_first(
    old: Cohort, tmp_path: Path, order: str
) -> None:
    file = next(path for path in tmp_path.rglob("features.py"))
    if order == "base first":
        base, new = load_base(old), load_store(file)
    else:
        new, base = load_store(file), load_base(old)
    assert (called(base, "hello"), called(new, "hello")) == ("hello dear ada", "servus dear ada")
    assert (called(base, "later"), called(new, "later")) == ("bye hello", "bye servus")


def test_unchanged_features_have_the_same_definition_in_both(old: Cohort, tmp_path: Path) -> None:
    new, base = load_store(next(tmp_path.rglob("features.py"))), load_base(old)
    features = [runtime_of(store).registry.features for store in (base, new)]
    assert definition_of(features[0]["same"]) == definition_of(features[1]["same"])
    assert definition_of(features[0]["hello"]) != definition_of(features[1]["hello"])
    assert code_of(function(base, "later")) == code_of(function(new, "later"))


def test_the_source_of_both_codes_is_found(old: Cohort, tmp_path: Path) -> None:
    new, base = load_store(next(tmp_path.rglob("features.py"))), load_base(old)
    greetings = [
        vars(inspect.getmodule(function(each, "hello")))["greeting"] for each in (base, new)
    ]
    assert ["hello" in inspect.getsource(each) for each in greetings] == [True, False]
    assert inspect.getsource(function(base, "same")) == inspect.getsource(function(new, "same"))


def test_the_same_code_kept_and_loaded_again_has_the_same_definitions(
    project: Project, tmp_path: Path
) -> None:
    file = project("hello")
    new = load_store(file)
    base = load_base(cohort_of(kept_code(file), tmp_path))
    for name, feature in runtime_of(new).registry.features.items():
        assert definition_of(feature) == definition_of(runtime_of(base).registry.features[name])


def test_a_features_file_elsewhere_is_the_base(project: Project, tmp_path: Path) -> None:
    file = project("hello")
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-old")
    tmp_path.rename(elsewhere)
    tmp_path.mkdir()
    project("servus")
    new, base = load_store(file), load_base(elsewhere / file.relative_to(tmp_path))
    assert (called(base, "hello"), called(new, "hello")) == ("hello dear ada", "servus dear ada")
    assert (called(base, "later"), called(new, "later")) == ("bye hello", "bye servus")


def test_no_installed_package_and_no_data_is_kept(project: Project, tmp_path: Path) -> None:
    file = project("hello")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "prompt.txt").write_text("")
    load_store(file)
    names = {Path(path).name for path in kept_code(file).code}
    assert names - {"__init__.py"} == {"features.py", "helper.py", "words.py"}


def test_code_that_needs_a_data_file_names_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "features.py"
    file.write_text(
        "from pathlib import Path\n"
        "from headwater import FeatureStore\n"
        "store = FeatureStore()\n"
        "PROMPT = Path(__file__).with_name('prompt.txt').read_text()\n"
    )
    (tmp_path / "prompt.txt").write_text("Be kind.")
    load_store(file)
    cohort = cohort_of(kept_code(file), tmp_path)
    before = set(sys.modules)
    with pytest.raises(FeaturesFileError, match=r"without data files: pass --base PATH") as failed:
        load_base(cohort)
    assert failed.value.location is not None
    assert failed.value.location.line == 4
    assert not [name for name in set(sys.modules) - before if name.startswith("headwater_base_")]
    assert runtime_of(load_base(file)).registry.features == {}


def test_a_cohort_without_code_names_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(FeaturesFileError, match=r"has no code.*pass --base PATH"):
        load_base(cohort_of(KeptCode("", {}), tmp_path))
