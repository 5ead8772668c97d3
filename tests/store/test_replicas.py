"""Which replicas are alive."""

import pytest

from turnbridge.store.sql_store import SqlStore

pytestmark = pytest.mark.anyio


async def test_replicas_are_counted_while_their_leases_last(store: SqlStore) -> None:
    assert await store.replica_alive("one", 60) == 1
    assert await store.replica_alive("two", 60) == 2
    assert await store.replica_alive("one", 60) == 2
    # A lease that has lapsed at once is that of a replica that was killed.
    await store.replica_alive("two", -1)
    assert await store.replica_alive("one", 60) == 1
    await store.replica_alive("two", 60)
    await store.replica_gone("one")
    assert await store.replica_alive("two", 60) == 1
