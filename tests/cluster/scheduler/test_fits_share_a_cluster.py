"""Several fits on one cluster: they wait for each other, run beside each other, and never for ever."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.cluster.scheduler.client import ask_fits
from daskkern.cluster.scheduler.lease import admitted
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.errors import ClusterError, FitCancelledError, MemoryBudgetError, SpecError
from daskkern.events import Event, FitQueued, StopRequested, silent
from daskkern.training.jobs.handle import FitHandle, find_fit, list_fits
from tests.support import ranks
from tests.support.cluster import local_cluster, wait_until
from tests.support.fit_process import running_fit
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


class Fit:
    """A gang in a thread and with a client of its own, which runs until it is cancelled."""

    def __init__(self, address: str, folder: Path, settings: GangSettings | None = None) -> None:
        self.events: list[Event] = []
        self._folder = folder
        folder.mkdir()
        self._pool = ThreadPoolExecutor(1)
        self.future = self._pool.submit(self._run, address, settings or GangSettings())
        self._pool.shutdown(wait=False)

    def _run(self, address: str, settings: GangSettings) -> list[Any]:
        with Client(address, set_as_default=False) as client:
            folder = str(self._folder)
            return run_gang(
                client,
                ranks.until_stopped,
                folder,
                name=self._folder.name,
                settings=settings,
                listener=self.events.append,
            )

    def running(self) -> int:
        return len(list(self._folder.glob("running-*"))) - len(list(self._folder.glob("done-*")))

    def wait_until_running(self, size: int) -> None:
        try:
            wait_until(lambda: self.running() == size, timeout_s=60, what=f"{self._folder.name} on {size} ranks")
        except TimeoutError as error:
            files = sorted(path.name for path in self._folder.iterdir())
            error.add_note(f"files {files}, events {self.events}, {self.future}")
            raise

    @property
    def queued(self) -> bool:
        return any(isinstance(event, FitQueued) for event in self.events)


@pytest.fixture
def start(cluster2: str, client2: Client, tmp_path: Path) -> Callable[..., Fit]:
    def begin(name: str, settings: GangSettings | None = None) -> Fit:
        return Fit(cluster2, tmp_path / name, settings)

    return begin


def cancel(client: Client, name: str, abort: bool = False) -> None:
    fit = next(status.metadata.fit for status in list_fits(client) if status.metadata.name == name and status.active)
    assert FitHandle(fit, "", "", client).cancel(abort=abort)


def state(client: Client, name: str) -> str:
    return [status.state for status in list_fits(client) if status.metadata.name == name][-1]


def test_the_second_of_two_fits_waits_and_says_for_what(client2: Client, start: Callable[..., Fit]) -> None:
    first = start("first")
    first.wait_until_running(2)
    second = start("second")
    wait_until(lambda: second.queued, what="a queued fit")
    assert second.running() == 0
    assert state(client2, "second") == "queued"
    ahead = [status for status in list_fits(client2) if status.metadata.name == "second"][-1].ahead
    assert ahead == (find_fit_named(client2, "first"),)
    cancel(client2, "first")
    assert len(first.future.result(timeout=60)) == 2
    assert sum(isinstance(event, StopRequested) for event in first.events) == 1
    second.wait_until_running(2)
    cancel(client2, "second")
    second.future.result(timeout=60)
    assert [state(client2, name) for name in ("first", "second")] == ["finished", "finished"]
    assert_nothing_left(client2)


def find_fit_named(client: Client, name: str) -> str:
    return next(status.metadata.fit for status in reversed(list_fits(client)) if status.metadata.name == name)


@pytest.mark.parametrize(
    ("settings", "size"),
    [(GangSettings(n_ranks=1), 1), (GangSettings(share_memory=1 << 20), 2)],
    ids=["other workers", "shared workers"],
)
def test_fits_that_leave_room_run_at_the_same_time(
    settings: GangSettings, size: int, client2: Client, start: Callable[..., Fit]
) -> None:
    fits = [start("one", settings), start("two", settings)]
    for fit in fits:
        fit.wait_until_running(size)
    for name in ("one", "two"):
        cancel(client2, name)
    for fit in fits:
        assert len(fit.future.result(timeout=60)) == size
        assert not fit.queued
    assert_nothing_left(client2)


def test_a_fit_that_waits_can_be_cancelled(client2: Client, start: Callable[..., Fit]) -> None:
    first = start("holds")
    first.wait_until_running(2)
    second = start("waits")
    wait_until(lambda: second.queued, what="a queued fit")
    cancel(client2, "waits")
    with pytest.raises(FitCancelledError, match="was cancelled before it had its workers"):
        second.future.result(timeout=60)
    assert state(client2, "waits") == "cancelled"
    cancel(client2, "holds", abort=True)
    with pytest.raises(FitCancelledError, match="was cancelled; nothing was written"):
        first.future.result(timeout=60)
    assert state(client2, "holds") == "cancelled"
    assert_nothing_left(client2)


@pytest.mark.long
def test_a_client_that_dies_gives_its_place_back(client2: Client, cluster2: str, tmp_path: Path) -> None:
    with running_fit(cluster2, tmp_path) as child:
        child.kill()
        child.communicate(timeout=60)
    assert run_gang(client2, ranks.many_steps, 5, name="next") == [1000.0] * 2
    wait_until(lambda: state(client2, "child") == "lost", what="the end of the dead client's fit")


def test_a_client_that_dies_in_the_queue_holds_nobody_up(client2: Client, cluster2: str) -> None:
    request, metadata = {"n_ranks": None, "allowed": None, "memory": None}, {"fit": "0" * 12, "name": "leaves"}
    with (
        Client(cluster2, set_as_default=False) as leaves,
        admitted(client2, new_metadata("holds"), GangSettings(), silent),
    ):
        assert ask_fits(leaves, "ask", card=metadata, wish=request, asker=leaves.id)["ahead"]
    wait_until(lambda: state(client2, "leaves") == "lost", what="the end of its wish")
    assert run_gang(client2, ranks.many_steps, 5, name="next") == [1000.0] * 2


def test_ordinary_work_goes_on_beside_fits(client2: Client, start: Callable[..., Fit]) -> None:
    fit = start("beside")
    fit.wait_until_running(2)
    assert client2.gather(client2.map(lambda x: x + 1, range(20), pure=False), direct=False) == list(range(1, 21))
    cancel(client2, "beside")
    fit.future.result(timeout=60)


@pytest.mark.repeated
def test_many_fits_of_many_clients_all_end() -> None:
    """25 gangs of any size, submitted at once by 5 clients to 4 workers."""

    def one(client: Client, number: int) -> list[float]:
        settings = GangSettings(n_ranks=(None, 1, 2, 3, 4)[number % 5])
        return run_gang(client, ranks.many_steps, 5, name=f"fit_{number}", settings=settings)

    with local_cluster(4) as client, ThreadPoolExecutor(25) as pool:
        clients = [Client(client.scheduler.address, set_as_default=False) for _ in range(5)]
        try:
            found = list(pool.map(one, clients * 5, range(25), timeout=100))
        finally:
            for other in clients:
                other.close()
        assert [len(result) for result in found] == [(None, 1, 2, 3, 4)[number % 5] or 4 for number in range(25)]
        assert {status.state for status in list_fits(client)} == {"finished"}
        assert_nothing_left(client)


def test_too_few_workers_are_waited_for_and_then_told(client2: Client) -> None:
    events: list[Event] = []
    with (
        pytest.raises(ClusterError, match=r"1 more workers are needed for fit 'large', and none came in 0\.5 s"),
        admitted(client2, new_metadata("large"), GangSettings(n_ranks=3, idle_s=0.5), events.append),
    ):
        pass
    assert events == [FitQueued("waiting for 1 more worker to join the cluster")]
    assert state(client2, "large") == "failed"


def test_workers_of_fits_are_not_closed_when_a_cluster_shrinks(client2: Client) -> None:
    def closing(dask_scheduler: Any) -> list[str]:
        return list(dask_scheduler.workers_to_close(n=2))

    assert len(client2.run_on_scheduler(closing)) == 2
    with admitted(client2, new_metadata("busy"), GangSettings(n_ranks=1), silent) as lease:
        assert set(client2.run_on_scheduler(closing)).isdisjoint(lease.addresses)


def test_memory_that_no_worker_has_is_refused() -> None:
    with local_cluster(1, memory_limit="1GB") as client, pytest.raises(MemoryBudgetError, match="declare less with"):
        run_gang(client, ranks.many_steps, 5, name="huge", settings=GangSettings(share_memory=2 * 10**9))


def test_nonsense_is_refused() -> None:
    with pytest.raises(SpecError, match="got share_memory=0; expected"):
        replace(GangSettings(), share_memory=0)


def test_a_fit_is_named_by_its_beginning(client2: Client) -> None:
    run_gang(client2, ranks.many_steps, 5, name="found")
    fit = find_fit_named(client2, "found")
    assert find_fit(client2, fit[:10]).metadata.fit == fit
    with pytest.raises(ClusterError, match="no fit 'zzz' is known at tcp://"):
        find_fit(client2, "zzz")
    with pytest.raises(ClusterError, match="several fits match"):
        find_fit(client2, "")


def test_threads_of_one_client_wait_for_each_other(client2: Client) -> None:
    found: dict[int, Any] = {}

    def one(number: int) -> None:
        found[number] = run_gang(client2, ranks.many_steps, 20, name=f"thread_{number}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    assert found == {number: [1000.0] * 2 for number in range(3)}


@pytest.mark.long
def test_an_adaptive_cluster_starts_workers_for_fits_that_wait() -> None:
    with local_cluster(0) as client:
        client.cluster.adapt(minimum=0, maximum=2, interval="200ms")
        for n_ranks in (None, 2):
            found = run_gang(client, ranks.many_steps, 5, name="adaptive", settings=GangSettings(n_ranks=n_ranks))
            assert len(found) in ((1, 2) if n_ranks is None else (n_ranks,))  # a second worker may join in time
        wait_until(lambda: not client.scheduler_info(n_workers=-1)["workers"], what="the end of idle workers")
