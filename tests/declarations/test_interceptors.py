"""The chain of interceptors around what a store does."""

from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

import pytest

from headwater.declarations.interceptors import Commit, Interceptor, Interceptors, Step
from headwater.ports import Batch, BatchOutcome, Lease

P = ParamSpec("P")
T = TypeVar("T")
OUTCOME = BatchOutcome(Batch(Lease(0, "worker", 1), [], {}), {}, {}, [], [])


class Noting(Interceptor):
    """Notes the calls that it is around, in the order in which they begin."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self._name = name
        self._notes = notes

    def commit(self, inner: Commit) -> Commit:
        async def commit(outcome: BatchOutcome) -> None:
            self._notes.append(self._name)
            await inner(outcome)

        return commit

    def call(
        self, step: Step, inner: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        async def call(*arguments: P.args, **named: P.kwargs) -> T:
            self._notes.append(f"{self._name} {step}")
            return await inner(*arguments, **named)

        return call if step == "fit" else inner


async def test_the_first_interceptor_of_a_chain_is_the_outermost() -> None:
    notes: list[str] = []

    async def commit(outcome: BatchOutcome) -> None:
        notes.append("commit")

    async def double(number: int) -> int:
        return 2 * number

    chain = Interceptors(Noting("outer", notes), Noting("inner", notes))
    await chain.commit(commit)(OUTCOME)
    assert notes == ["outer", "inner", "commit"]
    assert await chain.call("fit", double)(4) == 8
    assert notes[3:] == ["outer fit", "inner fit"]


@pytest.mark.parametrize("chain", [Interceptors(), Interceptors(Noting("one", []))])
def test_a_function_that_no_interceptor_changes_is_called_itself(chain: Interceptors) -> None:
    async def function(*_: Any, **__: Any) -> Any:
        """Do nothing."""

    assert chain.publish(function) is function
    assert chain.call("embed", function) is function
    assert chain.assemble(function) is function
    assert chain.search(function) is function
