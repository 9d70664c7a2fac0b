"""Missing settings and extras are reported with the remedy."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headwater import FeatureStore
from headwater.errors import ConfigError
from headwater.settings.schema import Settings

WITHOUT = """
import sys
sys.modules[{driver!r}] = None
import asyncio
from headwater import FeatureStore
from headwater.settings.schema import Settings
store = FeatureStore(settings=Settings().replace(
    env="production", redis={{"url": "redis://nowhere"}}, postgres={{"url": "postgresql://nowhere"}}
))
try:
    asyncio.run(store.open())
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize(("driver", "extra"), [("hiredis", "redis"), ("asyncpg", "postgres")])
def test_a_missing_driver_is_named_with_its_extra(driver: str, extra: str) -> None:
    code = WITHOUT.format(driver=driver)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=100
    )
    assert done.stdout.startswith(f"MissingExtraError {extra.capitalize()} needs the extra")
    assert f"pip install 'headwater[{extra}]'" in done.stdout
    assert f"from a clone `pip install '.[{extra}]'`" in done.stdout


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"env": "production"}, r"redis\.url and postgres\.url must be set"),
        ({"env": "production", "redis": {"url": "redis://x"}}, r"^postgres\.url must be set"),
        ({"postgres": {"url": "postgresql://x"}}, r"^redis\.url must be set"),
    ],
)
async def test_servers_that_are_not_named_are_asked_for(
    given: dict[str, object], missing: str
) -> None:
    with pytest.raises(ConfigError, match=missing):
        await FeatureStore(settings=Settings().replace(**given)).open()
