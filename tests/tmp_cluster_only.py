from headwater.backends.redis.environment import open_redis
from headwater.clock import SystemClock
from headwater.ports import Backends
from headwater.testing.conformance import *
from headwater.testing.conformance.suite import Suite
import pytest
class P(Suite):
    @pytest.fixture
    async def connect(self, curl):
        import uuid; settings = Settings().with_(redis={"url":curl,"prefix":uuid.uuid4().hex}, partitions=4, worker={"lease_ttl": 0.5})
        opened=[]
        async def opening():
            e=await open_redis(settings, SystemClock())
            opened.append(e)
            return Backends(e.bus,e.roster,e.dead_letters,e.online,None,e)
        yield opening
        for b in opened: await b.close()
class TestB(P, BusConformance): pass
class TestR(P, RosterConformance): pass
class TestD(P, DeadLettersConformance): pass
class TestO(P, OnlineStoreConformance): pass
from headwater.settings import Settings
from tests.cluster import cluster
@pytest.fixture(scope="session")
def curl():
    with cluster() as u: yield u
