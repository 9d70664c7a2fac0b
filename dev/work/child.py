"""The process that counts: it runs each operation in the store that its settings name."""

import json
import sys

from dev.work.counting import CallCounter, Counts, count
from dev.work.declarations import store
from dev.work.operations import operations, prepare
from headwater.cli.processes import long_runner


async def counted(headers: dict[str, str], counter: CallCounter) -> dict[str, Counts]:
    await prepare()
    work = {name: await count(each, counter) for name, each in operations(headers).items()}
    await store.close()
    return work


if __name__ == "__main__":
    counter = CallCounter()
    counter.install()  # before the store starts a thread
    with long_runner() as runner:
        sys.stdout.write(json.dumps(runner.run(counted(json.loads(sys.argv[1]), counter))))
