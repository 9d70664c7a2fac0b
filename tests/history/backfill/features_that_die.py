"""A features file whose handler kills its process at some events, once at each."""

import os
import signal
from pathlib import Path

from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()


@entity(store)
class User:
    user_id: str


@feature(entity=User, trigger="buy")
def total(user_id: str, event: ServiceEvent) -> int:
    marker = event.payload.get("dies")
    if marker is not None and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return int(store.sync.get_feature("total", user_id) or 0) + int(event.payload["number"])
