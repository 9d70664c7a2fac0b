"""Values that belong to an event loop."""

import asyncio
from threading import Thread

from headwater.core.by_loop import ByLoop


class Closed:
    """Collects the values that were closed, each with whether that was in its own loop."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self.loops: dict[str, asyncio.AbstractEventLoop] = {}

    async def close(self, value: str) -> None:
        assert asyncio.get_running_loop() is self.loops[value]
        self.values.append(value)


def test_a_value_is_closed_with_its_event_loop_at_the_latest() -> None:
    closed = Closed()
    kept = ByLoop(closed.close)

    async def use() -> None:
        closed.loops["first"] = asyncio.get_running_loop()
        assert await kept.keep("first") == kept.current() == "first"

    asyncio.run(use())
    assert closed.values == ["first"]
    assert kept.current() is None


def test_values_of_running_loops_are_closed_in_their_own_loop() -> None:
    closed = Closed()
    kept = ByLoop(closed.close)
    other = asyncio.new_event_loop()
    thread = Thread(target=other.run_forever)
    thread.start()
    closed.loops["theirs"] = other
    asyncio.run_coroutine_threadsafe(kept.keep("theirs"), other).result()

    async def use() -> None:
        closed.loops["ours"] = asyncio.get_running_loop()
        await kept.keep("ours")
        assert kept.current() == "ours"
        await kept.close(asyncio.get_running_loop())
        assert closed.values == ["ours"]
        await kept.close()

    asyncio.run(use())
    other.call_soon_threadsafe(other.stop)
    thread.join()
    other.close()
    assert closed.values == ["ours", "theirs"]
