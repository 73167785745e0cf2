"""Workers, clients and schedulers die; fits end with a sentence, within seconds, and clusters stay usable."""

import signal
import time
from pathlib import Path

import pytest
from distributed import Client

from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.errors import ClusterError
from tests.support import ranks
from tests.support.cluster import local_cluster, wait_until
from tests.support.fit_process import running_fit
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(90)]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_a_killed_worker_ends_the_fit_and_leaves_the_cluster_usable(victim: int) -> None:
    with local_cluster(3) as client:
        started = time.monotonic()
        with pytest.raises(ClusterError, match=rf"\(rank {victim}\) left the cluster|supervised fit 'lost' left"):
            run_gang(client, ranks.dies, victim, name="lost", settings=GangSettings(retries=0))
        assert time.monotonic() - started < 60
        client.wait_for_workers(3, timeout=30)  # the nanny's replacement
        assert run_gang(client, ranks.many_steps, 20, name="again") == [1000.0] * 3
        assert_nothing_left(client)


@pytest.mark.long
def test_a_retired_worker_ends_the_fit(tmp_path: Path) -> None:
    with local_cluster(2) as client:
        address = list(client.run(lambda: None))[1]

        def retire(event: object) -> None:
            client.retire_workers([address])

        with pytest.raises(ClusterError, match="left the cluster"):
            run_gang(client, ranks.emits, 100_000, name="retired", settings=GangSettings(retries=0), listener=retire)


@pytest.mark.long
def test_killing_the_client_ends_its_ranks(client2: Client, cluster2: str, tmp_path: Path) -> None:
    with running_fit(cluster2, tmp_path) as child:
        child.kill()
        child.communicate(timeout=60)
    wait_until(lambda: len(list(tmp_path.glob("done-*"))) == 2, what="the end of both ranks")
    assert_nothing_left(client2)


@pytest.mark.repeated
def test_ctrl_c_returns_what_the_ranks_have(client2: Client, cluster2: str, tmp_path: Path) -> None:
    with running_fit(cluster2, tmp_path) as child:
        child.send_signal(signal.SIGINT)
        output, _ = child.communicate(timeout=60)
    assert child.returncode == 0, output
    steps = [int(word) for word in output.strip(" []\n").split(",")]
    assert steps[0] == steps[1] > 0
    assert_nothing_left(client2)


def test_a_closed_client_is_told_at_once() -> None:
    with local_cluster(1) as client:
        pass
    with pytest.raises(ClusterError, match="the client is closed"):
        run_gang(client, ranks.own_payload, None, name="closed")


def test_a_cluster_without_workers_is_told_how_to_get_some() -> None:
    with local_cluster(0) as client, pytest.raises(ClusterError, match="has no workers; start some with 'dask worker"):
        run_gang(client, ranks.own_payload, None, name="empty", settings=GangSettings(rejoin_s=0.5))
