"""Without its framework, an integration names the extra to install."""

import subprocess
import sys

import pytest

WITHOUT = """
import sys
sys.modules[{package!r}] = None
from headwater.errors import MissingExtraError
try:
    import headwater.integrations.{module}
except MissingExtraError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "package"),
    [
        ("langchain", "langchain_core"),
        ("langgraph", "langgraph.store.base"),
        ("llamaindex", "llama_index"),
        ("openai_agents", "agents"),
        ("pydantic_ai", "pydantic_ai"),
    ],
)
def test_a_missing_framework_is_named_with_the_extra_to_install(module: str, package: str) -> None:
    code = WITHOUT.format(module=module, package=package)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    extra = module.replace("_", "-")
    assert f"needs the extra {extra!r}" in done.stdout
    assert f"pip install 'headwater[{extra}]'" in done.stdout
