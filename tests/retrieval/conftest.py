"""The tests of retrieval use the entity of the tests of contexts."""

from tests.contexts.conftest import user as user
