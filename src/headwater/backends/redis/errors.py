"""Translation of error replies of Redis, with a remedy for each."""

from __future__ import annotations

import re

from headwater.backends.redis.address import Address
from headwater.errors import BackendError, BackendUnavailableError

_PERMISSION = "give redis.url's user the rights that `headwater doctor grants --print` shows"

# Beginnings of replies that depend on the state of the server and not on the arguments of the
# command: the same command succeeds when the server is well again.
_UNAVAILABLE = {
    "ASK": "the cluster is moving slots: see `CLUSTER INFO` there",
    "BUSY": "a script has been running for long: wait, or end it with `SCRIPT KILL` there",
    "CLUSTERDOWN": "the cluster lacks a master: see `CLUSTER INFO` there",
    "DENIED": "it is in protected mode: give it a password and name it in redis.url",
    "ERR ACL failure in script": _PERMISSION,
    "ERR Script killed by user": "an operator ended the script, which had changed nothing",
    "ERR max number of clients": "raise its maxclients, or stop clients that it does not need",
    "EXECABORT": "its state changed during a transaction, which had no effect",
    "LOADING": "it is still loading its data",
    "MASTERDOWN": "it is a replica that has lost its master",
    "MISCONF": "it cannot write to its disk: see its log",
    "MOVED": "the cluster is moving slots: see `CLUSTER INFO` there",
    "NOAUTH": "redis.url must carry its password",
    "NOPERM": _PERMISSION,
    "NOREPLICAS": "too few replicas are connected to it: see `INFO replication` there",
    "OOM": "it is out of memory: give it more, or let workers catch up",
    "READONLY": "it is a replica: redis.url must name the master",
    "TRYAGAIN": "the cluster is moving slots: see `CLUSTER INFO` there",
    "WRONGPASS": "correct the user and the password in redis.url",
}
_LACKING = "use Redis 7 or later, or Valkey, where this command is neither renamed nor disabled"
_OTHERS = {
    "(ERR )?[Uu]nknown (Redis |Valkey )?command": _LACKING,
    "WRONGTYPE": "something else writes to our keys: give one of them another redis.prefix",
}


class LostError(BackendUnavailableError):
    """The connection broke before the reply came; the command may or may not have run."""


def refused(address: Address, reply: str) -> BackendError:
    """Return the error for an error reply of a server."""
    kind = BackendUnavailableError if _remedy(reply, _UNAVAILABLE) else BackendError
    return kind(f"Redis at {address} refused: {with_remedy(reply)}")


def is_withheld(reply: str) -> bool:
    """Return whether a server has no such command, or allows it not to this user."""
    kind = reply.partition(" ")[0]
    return kind == "NOPERM" or (kind == "ERR" and _remedy(reply, _UNAVAILABLE) is None)


def with_remedy(reply: str, otherwise: str = "") -> str:
    """Return an error reply, followed by its remedy or else by another one."""
    remedy = _remedy(reply, _UNAVAILABLE | _OTHERS) or otherwise
    return f"{reply}; {remedy}" if remedy else reply


def _remedy(reply: str, remedies: dict[str, str]) -> str | None:
    for beginning, remedy in remedies.items():
        if re.match(rf"{beginning}\b", reply):
            return remedy
    return None
