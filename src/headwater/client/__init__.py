"""The client of a Headwater server: `AsyncClient`, and `Client` for code without an event loop.

A client has the verbs of a store, with the same arguments, results and errors, so code that takes
a store also takes a client. ``server`` sends requests, retries and decodes; the other modules have
the verbs by subject; ``publisher`` sends many events in batches.

The verbs in ``headwater.store.verbs`` are declared once: the store runs them, and a client sends
them. A verb that takes more than one request has a body here, under the signature of the store's
(``sending``).
"""

from headwater.client.async_client import AsyncClient
from headwater.client.blocking_client import Client
from headwater.client.publisher import FailedEvent, Publisher, PublishFailedError

__all__ = ["AsyncClient", "Client", "FailedEvent", "PublishFailedError", "Publisher"]
