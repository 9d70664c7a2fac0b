"""The client of a Headwater server: `AsyncClient`, and `Client` for code without an event loop.

A client has the verbs of a store, with the same arguments, results and errors, so code that takes
a store also takes a client. ``server`` sends requests, retries and decodes; the other modules have
the verbs by subject; ``publisher`` sends many events in batches.

To add a verb:

1. Put the Structs of its bodies into ``headwater.model``, and the route into ``headwater.http``.
2. Write the verb in the module of its subject, with the name and the arguments of the store's::

       async def lag(self) -> list[ConsumerLag]:
           \"\"\"Return for each partition its worker and its waiting events.\"\"\"
           return (await self._server.get(LagList, "/v1/lag")).partitions

   ``get`` and ``ask`` read, ``put`` and ``delete`` may be repeated, and ``post`` is sent again only
   if the server cannot have begun it.
3. Add its blocking form to the class in ``blocking_client``: ``lag = blocking(AdminCalls.lag)``.
4. Let the command use ``bare_or_remote`` or ``declared_or_remote`` in place of ``bare_store`` or
   ``declared_store``; then it accepts ``--url``.

A new group of verbs is a class with the attribute ``_server``, an attribute of `AsyncClient`, and
its blocking form. A test compares the names and arguments with those of the store.
"""

from headwater.client.async_client import AsyncClient
from headwater.client.blocking_client import Client
from headwater.client.errors import FailedEvent, PublishFailedError
from headwater.client.publisher import Publisher

__all__ = ["AsyncClient", "Client", "FailedEvent", "PublishFailedError", "Publisher"]
