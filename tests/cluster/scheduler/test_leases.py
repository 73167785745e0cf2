"""A fit that waits for workers gets others where those that it was granted have gone and do not come back."""

from dataclasses import asdict

import pytest

from daskkern.cluster.connect.membership import live_workers
from daskkern.cluster.gang.hanging_workers import equip
from daskkern.cluster.gang.settings import GangSettings
from daskkern.cluster.scheduler.client import ask_fits, install_fits
from daskkern.cluster.scheduler.lease import Lease, admitted, renewed
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.errors import MemoryBudgetError
from daskkern.events import Event, FitQueued, StageFinished, silent
from daskkern.training.run.lease_retries import steadily
from tests.support.cluster import one_process_cluster, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(60)]


@pytest.mark.long
def test_workers_of_other_names_replace_those_that_were_granted_and_have_gone() -> None:
    settings = GangSettings(n_ranks=1, rejoin_s=1.0, idle_s=6.0)
    metadata = new_metadata("waits").submitted_with(0, "me")
    wish = {"n_ranks": 1, "allowed": None, "memory": None}
    with one_process_cluster(2) as client:
        install_fits(client)
        equip(client, settings.silence_s)
        granted = ask_fits(client, "ask", card=asdict(metadata), wish=wish, asker=client.id)["members"]
        client.retire_workers(list(granted))
        wait_until(lambda: len(live_workers(client)) == 1, what="the end of the worker")
        with admitted(client, metadata, settings, silent) as lease:
            assert lease.addresses == tuple(live_workers(client))


@pytest.mark.long
def test_workers_of_other_names_replace_those_that_a_fit_has_lost_before_its_start() -> None:
    settings = GangSettings(n_ranks=1, rejoin_s=1.0, idle_s=6.0)
    metadata = new_metadata("loses").submitted_with(0, "me")
    with one_process_cluster(2) as client, admitted(client, metadata, settings, silent) as lease:
        client.retire_workers(list(lease.addresses))
        wait_until(lambda: len(live_workers(client)) == 1, what="the end of the worker")
        assert renewed(client, lease, settings, silent).addresses == tuple(live_workers(client))


@pytest.mark.long
def test_a_fit_says_which_worker_is_too_small_before_it_waits_for_another() -> None:
    settings, wish = GangSettings(n_ranks=1), {"n_ranks": 1, "allowed": None, "memory": None}
    metadata, other = new_metadata("large"), new_metadata("other").submitted_with(0, "me")
    events = list[Event]()
    with one_process_cluster(2) as client, admitted(client, metadata, settings, silent) as lease:
        (small,) = lease.addresses
        ask_fits(client, "ask", card=asdict(other), wish=wish, asker=client.id)

        def stage(lease: Lease) -> str:
            if small in lease.addresses:
                raise MemoryBudgetError("too much", too_small={small: f"worker {small} has too little memory"})
            return "done"

        def listen(event: Event) -> None:
            events.append(event)
            if isinstance(event, FitQueued):
                ask_fits(client, "ended", fit=other.fit, state="", asker=client.id)

        found, result = steadily(client, settings, lease, stage, listen)
        assert result == "done"
        assert small not in found.addresses
    assert [type(event) for event in events] == [StageFinished, FitQueued]
