"""Values of a cluster by their keys: copied from a worker that has them, or named as lost."""

from typing import Any

import pytest
from distributed import Client

from daskkern.errors import ClusterError
from daskkern.training.feeding.cluster_blocks import RemoteValue

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_they_are_fetched_from_another_worker_and_lost_when_the_scheduler_has_forgotten_them(client2: Client) -> None:
    first, second = sorted(client2.scheduler_info()["workers"])
    future = client2.scatter({"rows": 7}, workers=[first], hash=False)["rows"]
    assert client2.submit(_fetch, str(future.key), workers=[second], pure=False).result() == 7
    with pytest.raises(ClusterError, match=r"those that had it are gone; fit again, or put the rows into a store"):
        client2.submit(_fetch, "rows-of-a-lost-worker", workers=[second], pure=False).result()


def _fetch(key: str) -> Any:
    return RemoteValue(key, again_s=0.5).fetch()
