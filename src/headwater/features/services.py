"""The services that the parts of an open store share."""

from __future__ import annotations

import msgspec

from headwater.core.clock import Clock
from headwater.core.thread_offload import Offload
from headwater.declarations.interceptors import Interceptor
from headwater.declarations.registry import Registry
from headwater.features.followed_catalog import FollowedCatalog
from headwater.features.user_calls import FeatureCalls, LimitedCalls
from headwater.ports import Backends
from headwater.settings.schema import Settings


class Services(msgspec.Struct, frozen=True):
    """What the parts of an open store have in common; the backends are behind the interceptors."""

    registry: Registry
    settings: Settings
    clock: Clock
    backends: Backends
    offload: Offload
    feature_calls: FeatureCalls
    context_calls: LimitedCalls
    catalog: FollowedCatalog
    interceptors: Interceptor
