"""The keys file: what is written is read again, and mistakes are named."""

from __future__ import annotations

import stat
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headwater.access.key_format import check_strength, generate_api_key, hash_of
from headwater.access.keys_file import ApiKey, changing_keys, read_keys
from headwater.errors import ConfigError

HASH = hash_of("a key")
FULL = ApiKey(
    hash=HASH,
    scopes=frozenset({"read", "assemble"}),
    entities=frozenset({"User", 'Quo"ted\\'}),
    contexts=frozenset({"support"}),
    indexes=frozenset({"manuals"}),
    tenant="acme\t-é",
    ids=frozenset({"acme\t-é7"}),
    created=datetime(2026, 1, 31, tzinfo=UTC),
    expires=datetime(2027, 1, 31, 12, 30, tzinfo=UTC),
    rate_limit=2.5,
)
PLAIN = ApiKey(hash=hash_of("another"), scopes=frozenset({"admin"}))


def test_written_keys_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    with changing_keys(path) as keys:
        keys.update({"full": FULL, "plain_2": PLAIN})
    assert read_keys(path) == {"full": FULL, "plain_2": PLAIN}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_change_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    with changing_keys(path) as keys:
        keys["plain"] = PLAIN

    def fail() -> None:
        with changing_keys(path) as keys:
            keys.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert read_keys(path) == {"plain": PLAIN}


def test_concurrent_changes_are_all_kept(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"

    def add(number: int) -> None:
        with changing_keys(path) as keys:
            keys[f"k{number}"] = ApiKey(hash=hash_of(str(number)), scopes=frozenset({"read"}))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_keys(path).keys() == {f"k{number}" for number in range(8)}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[a\nb = 1", "line 1"),
        ('a = "x"', "key 'a'"),
        ("[a]\nscopes = ['read']", "hash"),
        (f"[a]\nhash = '{HASH}'\nscopes = ['reed']", "reed"),
        (f"[a]\nhash = '{HASH}'\nscopes = []", "scopes"),
        (f"[a]\nhash = '{HASH}'\nscopes = ['read']\nscope = 'read'", "scope"),
        (f"[a]\nhash = '{HASH}'\nscopes = ['read']\nexpires = 2026-01-31T00:00:00", "expires"),
        (f"[a]\nhash = '{HASH}'\nscopes = ['admin']\ntenant = 'x'", "cannot have limits"),
        (f"['a b']\nhash = '{HASH}'\nscopes = ['read']", "'a b'"),
        ("[a]\nhash = 'plain text'\nscopes = ['read']", "hash"),
        *[(f"[a]\nhash='{HASH}'\nscopes=['read']\n[b]\nhash='{HASH}'\nscopes=['read']", "same")],
    ],
)
def test_a_mistake_in_the_file_is_named(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_keys(path)
    assert problem in str(raised.value)
    assert str(path) in str(raised.value)


def test_the_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(f"\ufeff[a]\nhash = '{HASH}'\nscopes = ['read']")
    assert read_keys(path).keys() == {"a"}


def test_generated_keys_are_long_and_differ_and_show_their_name() -> None:
    one, two = generate_api_key("shop_front"), generate_api_key("shop_front")
    assert one != two
    assert one.startswith("hw_shop-front_")
    assert len(one) > 50
    check_strength(one)


@pytest.mark.parametrize(
    "key",
    [
        "short",
        "a" * 40,
        "changeme-changeme-2",
        "Your-API-Key-goes-here",
        "SECRETsecretSECRET1",
        "abab" * 9,
    ],
)
def test_keys_that_are_easy_to_guess_are_found(key: str) -> None:
    with pytest.raises(ConfigError, match="openssl rand -hex 32") as raised:
        check_strength(key)
    assert key not in str(raised.value)
