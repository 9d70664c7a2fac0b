"""The least rights of the user of a store in Redis, as commands of its operator."""

from __future__ import annotations

import re

from headwater.backends.redis.address import parse_url
from headwater.errors import ConfigError
from headwater.settings.schema import Settings

COMMANDS = (
    *("client|setname", "cluster|slots", "asking", "ping", "info", "time", "scan", "dbsize"),
    *("memory|usage", "script|load", "eval", "evalsha", "multi", "exec", "publish", "subscribe"),
    *("get", "set", "mget", "mset", "incr", "del", "unlink", "exists", "pexpire", "pttl"),
    *("hdel", "hexists", "hget", "hincrby", "hkeys", "hlen", "hmget", "hset", "hsetnx", "hvals"),
    *("xadd", "xdel", "xlen", "xrange", "xrevrange", "xsetid", "xtrim"),
    *("xgroup|create", "xgroup|destroy", "xgroup|setid", "xinfo|groups", "xinfo|stream"),
    *("zadd", "zcard", "zrange", "zrangebylex", "zrangebyscore", "zrem"),
    *("zremrangebyscore", "zscore"),
)
"""What every store sends; AUTH and HELLO need no right."""

WITH_KAFKA = ("zremrangebyrank",)
WITH_A_DATABASE = ("select",)
_GLOB = re.compile(r"[*?\[\]\\]")
_NO_WORD = re.compile(r"[\s\"'\x00-\x1f\x7f]")
SENTINEL = (
    *("client|setname", "ping", "subscribe"),
    *("sentinel|get-master-addr-by-name", "sentinel|master"),
)


def grants(settings: Settings) -> str:
    """Return the commands that create a user with the rights of the store, and no others."""
    address = parse_url(settings.redis.url)[0]
    user = _word("the user of redis.url", address.username or "headwater")
    commands = [
        *COMMANDS,
        *(WITH_KAFKA if settings.bus.url else ()),
        *(WITH_A_DATABASE if address.database else ()),
    ]
    lines = [
        "# Redis: for the user of redis.url, on every server; ACL SAVE, or the file that servers",
        "# start with, keeps it. Add +config|get to let `doctor` and /readyz see appendfsync.",
        " ".join(["ACL SETUSER", user, *_rules(settings.redis.prefix, commands)]),
    ]
    if address.master:
        own = settings.redis.sentinel.username or "headwater"
        own = _word("redis.sentinel.username", own)
        lines += [
            "# Sentinel: for the user of redis.sentinel.username, on every Sentinel.",
            f"ACL SETUSER {own} on >PASSWORD resetchannels -@all {_added(SENTINEL)} "
            "&+switch-master",
        ]
    return "\n".join(lines)


def _rules(prefix: str, commands: list[str]) -> list[str]:
    prefix = _GLOB.sub(r"\\\g<0>", _word("redis.prefix", prefix))
    # Keys of several partitions have their hash tag first.
    patterns = [f"~{prefix}:*", f"~{{{prefix}:*", f"&{prefix}:*"]
    return ["on", ">PASSWORD", "resetkeys", "resetchannels", "-@all", _added(commands), *patterns]


def _word(meaning: str, text: str) -> str:
    """Return a part of a rule; raise ConfigError if it would be several, or have no end."""
    if _NO_WORD.search(text):
        raise ConfigError(
            f"{meaning} is {text!r}: rules of Redis have no spaces, quotes or control characters; "
            "choose another name"
        )
    return text


def _added(commands: tuple[str, ...] | list[str]) -> str:
    return " ".join(f"+{command}" for command in commands)
