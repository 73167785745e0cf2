"""Ranks whose workers may open fewer connections than they have peers: idle ones are closed, and no message is lost."""

import asyncio

import pytest

from daskkern.cluster.gang.gang import GangSettings, run_gang
from tests.support.cluster import one_process_cluster
from tests.support.ranks import many_steps


@pytest.mark.cluster
@pytest.mark.timeout(200)
def test_ranks_with_more_peers_than_connections_lose_no_message() -> None:
    steps, limit = 15, 2
    with one_process_cluster(5) as client:
        workers = list(client.cluster.workers.values())
        for worker in workers:
            worker.rpc.limit, worker.rpc.semaphore = limit, asyncio.Semaphore(limit)
        found = run_gang(client, many_steps, steps, name="pool", settings=GangSettings(elastic=False))
        assert found == [1000.0] * 5
        assert max(worker.rpc.open for worker in workers) <= limit
        assert all(worker.rpc._pending_count == 0 for worker in workers)
