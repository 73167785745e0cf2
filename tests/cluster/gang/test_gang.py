"""A gang runs, reports, fails with one clear sentence, and leaves nothing behind."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from distributed import Client, Worker
from distributed.core import Status

from daskkern.cluster.connect.membership import BrokenOffError, live_workers
from daskkern.cluster.gang.gang import GangSettings, PerRank, run_gang
from daskkern.cluster.gang.worker_plugin import PLUGIN_NAME, install, registry_of
from daskkern.cluster.scheduler.lease import admitted
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.errors import ClusterError, DataError, SpecError
from daskkern.events import BatchFinished, EpochFinished, Event, StageFinished
from tests.support import ranks
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_left
from tests.support.recovery.lossy_client import LossyClient

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def twice(x: int) -> int:
    return 2 * x


def test_results_come_in_rank_order(client3: Client) -> None:
    payloads = PerRank(("a", "b", "c"))
    assert run_gang(client3, ranks.own_payload, payloads, name="order") == [(0, "a"), (1, "b"), (2, "c")]
    assert_nothing_left(client3)


def profile_kept(dask_worker: Worker) -> tuple[float, int | None, int | None]:
    """How often a step of Dask's profile ends on a worker, in ms, and how many are kept."""
    cycle = dask_worker.periodic_callbacks["profile-cycle"]
    return cycle.callback_time, dask_worker.profile_history.maxlen, dask_worker.profile_keys_history.maxlen


def test_dasks_profile_of_a_rank_does_not_fill_the_memory() -> None:
    with local_cluster(1, profiled=True) as client:
        run_gang(client, ranks.own_payload, 7, name="order")
        assert set(client.run(profile_kept).values()) == {(10_000.0, 20, 20)}
        client.run(lambda dask_worker: dask_worker.cycle_profile())
        assert client.profile() is not None


def test_a_gang_may_be_smaller_than_the_cluster(client3: Client) -> None:
    addresses = list(client3.run(lambda: None))
    settings = GangSettings(n_ranks=1, workers=(addresses[2], addresses[0]))
    assert run_gang(client3, ranks.own_payload, 7, name="small", settings=settings) == [(0, 7)]


@pytest.mark.parametrize(
    ("settings", "error", "sentence"),
    [
        (GangSettings(n_ranks=5, rejoin_s=0.1), ClusterError, "got n_ranks=5 for 2 workers"),
        (GangSettings(n_ranks=0), SpecError, "at least one rank"),
        (GangSettings(workers=("tcp://10.0.0.1:1",), rejoin_s=0.1), ClusterError, "which the cluster does not have"),
    ],
)
def test_a_gang_that_cannot_be_formed(
    client2: Client, settings: GangSettings, error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error, match=sentence):
        run_gang(client2, ranks.own_payload, None, name="impossible", settings=settings)


def test_a_worker_that_is_being_restarted_is_waited_for() -> None:
    with local_cluster(2) as client:
        os.kill(next(iter(worker_pids(client).values())), signal.SIGKILL)
        wait_until(lambda: len(live_workers(client)) < 2, what="the end of a worker")
        settings = GangSettings(n_ranks=2, rejoin_s=30.0)
        assert run_gang(client, ranks.own_payload, 7, name="patient", settings=settings) == [(0, 7), (1, 7)]


def test_payloads_are_counted(client2: Client) -> None:
    with pytest.raises(SpecError, match="got 3 payloads for 2 ranks"):
        run_gang(client2, ranks.own_payload, PerRank((1, 2, 3)), name="payloads")


def test_timeouts_are_positive() -> None:
    with pytest.raises(SpecError, match="start_timeout_s=0"):
        GangSettings(start_timeout_s=0)


def test_an_error_of_ours_arrives_as_it_was_raised(client2: Client) -> None:
    with pytest.raises(DataError) as caught:
        run_gang(client2, ranks.raises_data_error, None, name="data")
    assert type(caught.value) is DataError
    assert str(caught.value) == "row 7 of X has a NaN; drop it"
    assert "in raises_data_error" in "".join(caught.value.__notes__)
    assert_nothing_left(client2)


def test_another_error_arrives_with_its_text_and_traceback(client3: Client) -> None:
    with pytest.raises(ClusterError, match=r"raises_zero_division failed on rank 2 .*ZeroDivisionError") as caught:
        run_gang(client3, ranks.raises_zero_division, None, name="zero")
    assert "return 1 // 0" in "".join(caught.value.__notes__)
    assert_nothing_left(client3)


def test_an_exit_is_an_error(client2: Client) -> None:
    with pytest.raises(ClusterError, match="SystemExit: 3"):
        run_gang(client2, ranks.exits, None, name="exits")


def test_events_of_rank_0_arrive_in_order_in_the_calling_thread(client2: Client) -> None:
    heard: list[Event] = []
    threads = set()

    def listen(event: Event) -> None:
        heard.append(event)
        threads.add(threading.get_ident())

    run_gang(client2, ranks.emits, 100, name="events", listener=listen)
    assert threads == {threading.get_ident()}
    assert heard[0] == StageFinished("landmarks", 0.5, "rank 0")
    assert [event.epoch for event in heard if isinstance(event, EpochFinished)] == [1, 2]
    batches = [(e.epoch, e.batch) for e in heard if isinstance(e, BatchFinished)]
    assert batches == sorted(batches)
    assert {(1, 1), (1, 100), (2, 100)} <= set(batches)
    assert len(batches) < 40  # of 200
    assert isinstance(heard[-1], EpochFinished)


def test_an_error_of_the_listener_ends_the_fit(client2: Client) -> None:
    def listen(event: Event) -> None:
        raise DataError(f"no place for {event}")

    with pytest.raises(DataError, match="no place"):
        run_gang(client2, ranks.emits, 10_000, name="deaf", listener=listen)
    assert_nothing_left(client2)


def test_two_gangs_at_once_both_finish(client2: Client) -> None:
    with ThreadPoolExecutor(2) as pool:
        fits = [pool.submit(run_gang, client2, ranks.many_steps, 200, name=f"fit {number}") for number in range(2)]
        assert [fit.result(timeout=30) for fit in fits] == [[1000.0, 1000.0]] * 2
    assert_nothing_left(client2)


def test_ordinary_tasks_run_beside_a_gang_on_workers_of_one_thread(client2: Client) -> None:
    with ThreadPoolExecutor(1) as pool:
        fit = pool.submit(run_gang, client2, ranks.meets_ordinary_tasks, None, name="beside")
        addresses = list(client2.run(lambda: None))
        futures = [
            client2.submit(twice, 21, key=f"ordinary-{number}", workers=[address])
            for number, address in enumerate(addresses)
        ]
        assert client2.gather(futures) == [42, 42]
        assert all(steps >= 1 for steps in fit.result(timeout=30))


def test_a_rank_uses_the_threads_of_its_worker() -> None:
    with local_cluster(1, threads_per_worker=2) as client:
        ((threads, blas),) = run_gang(client, ranks.blas_threads, None, name="threads")
        assert threads == 2
        assert blas
        assert set(blas) == {2}
        assert all(count == 1 for count in client.submit(blas_now).result())


def blas_now() -> list[int]:
    from threadpoolctl import threadpool_info

    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize("place", [0, 1])
def test_a_busy_worker_is_left_out_and_named(place: int, client2: Client) -> None:
    addresses, events = list(client2.run(lambda: None)), []
    busy = client2.submit(time.sleep, 5, workers=[addresses[place]], pure=False)
    settings = GangSettings(start_timeout_s=0.7)
    found = run_gang(client2, ranks.own_payload, None, name="busy", settings=settings, listener=events.append)
    assert found == [(0, None)]
    (told,) = [event.detail for event in events if isinstance(event, StageFinished)]
    assert told.startswith(f"worker {addresses[place]} (rank {place}) did not start in fit 'busy' within 0.7 s, busy")
    busy.result()
    assert_nothing_left(client2)


def test_a_supervisor_that_never_reached_the_scheduler_is_told(client2: Client) -> None:
    settings = GangSettings(start_timeout_s=0.7)
    with LossyClient(client2.scheduler.address, set_as_default=False) as lossy:
        lossy.loses = "update-graph"
        with pytest.raises(BrokenOffError, match=r"waits for the supervisor of fit 'lost', and .* does not know it"):
            run_gang(lossy, ranks.own_payload, None, name="lost", settings=settings)
    assert_nothing_left(client2)


@pytest.mark.long
def test_a_gang_without_any_worker_that_starts_is_told(client2: Client) -> None:
    addresses = list(client2.run(lambda: None))
    busy = client2.submit(time.sleep, 3, workers=[addresses[1]], pure=False)
    settings = GangSettings(start_timeout_s=0.7, workers=(addresses[1],))
    with pytest.raises(
        ClusterError, match=rf"worker {addresses[1]} \(rank 0\) did not start in fit .* start_timeout_s"
    ):
        run_gang(client2, ranks.own_payload, None, name="busy", settings=settings)
    busy.result()
    assert_nothing_left(client2)


def pause(client: Client, address: str, status: Status = Status.paused) -> None:
    """Have a worker without a memory limit say that its memory is full, or empty again."""

    def change(dask_worker: Worker) -> None:
        dask_worker.status = status

    client.run(change, workers=[address])
    wait_until(lambda: live_workers(client)[address]["status"] == status.name, what=f"{status.name} at the scheduler")


@pytest.mark.long
def test_a_paused_worker_is_left_out_while_others_come_and_go() -> None:
    with local_cluster(3, memory_limit=0) as client:
        pids, events = worker_pids(client), []
        paused, victim, _ = pids
        pause(client, paused)

        def listener(event: Event) -> None:
            events.append(event)
            if sum(isinstance(event, BatchFinished) for event in events) == 2 and isinstance(event, BatchFinished):
                os.kill(pids[victim], signal.SIGKILL)

        started = time.monotonic()
        found = run_gang(client, ranks.counts, 150, name="paused", listener=listener)
        assert [result[:2] for result in found] == [(2, 150.0)] * 2
        assert time.monotonic() - started < 30
        told = [event.detail for event in events if isinstance(event, StageFinished)]
        assert told == [f"worker {paused} is paused for memory and is left out"]


def test_a_worker_that_is_paused_between_admission_and_start_is_left_out() -> None:
    with local_cluster(2, memory_limit=0) as client:
        first, events = next(iter(worker_pids(client))), []
        settings = GangSettings(rejoin_s=1.0)
        with admitted(client, new_metadata("paused"), settings, events.append) as lease:
            pause(client, first)
            found = run_gang(
                client,
                ranks.own_payload,
                7,
                name="paused",
                settings=settings,
                listener=events.append,
                lease=lease,
            )
        assert found == [(0, 7)]
        told = [event.detail for event in events if isinstance(event, StageFinished)]
        assert told[-1] == f"worker {first} is paused for memory; the fit goes on without it"


def test_a_cluster_of_paused_workers_is_told() -> None:
    with local_cluster(1, memory_limit=0) as client:
        pause(client, next(iter(worker_pids(client))))
        with pytest.raises(ClusterError, match=r"all 1 workers of the cluster at .* are paused"):
            run_gang(client, ranks.own_payload, 7, name="full", settings=GangSettings(rejoin_s=0.3))


@pytest.mark.long
def test_a_worker_has_one_rank_of_a_fit_at_a_time(tmp_path: Path) -> None:
    """The last rank is deep in a product when the first dies: its worker's next rank waits for the end of that."""
    with local_cluster(2) as client:
        settings = GangSettings(rejoin_s=5.0, start_timeout_s=3.0)
        found = run_gang(client, ranks.long_product, str(tmp_path), name="product", settings=settings)
        assert set(found) == {1}


def test_the_plugin_is_installed_once(client2: Client) -> None:
    def registry_id(dask_worker: Worker) -> int:
        return id(registry_of(dask_worker))

    install(client2)
    before = client2.run(registry_id)
    install(client2)
    assert client2.run(registry_id) == before
    assert client2.run(lambda dask_worker: PLUGIN_NAME in dask_worker.plugins) == dict.fromkeys(before, True)


def test_the_dashboard_groups_the_ranks_of_a_fit(client2: Client) -> None:
    prefixes: set[str] = set()

    def listen(event: Event) -> None:
        names = client2.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
        prefixes.update(name for name in names if name.startswith("daskkern"))

    run_gang(client2, ranks.emits, 1, name="eigenpro 4", listener=listen)
    assert {"daskkern_eigenpro_4-rank", "daskkern_eigenpro_4-supervisor"} <= prefixes


class TestTheEnd:
    def test_a_stop_is_agreed_on_and_the_results_come(self, client2: Client, tmp_path: Path) -> None:
        interrupts = Interrupts(tmp_path)
        steps = run_gang(client2, ranks.until_stopped, str(tmp_path), name="stopped", listener=interrupts)
        assert time.monotonic() - interrupts.at[0] < 30  # it ends by itself, not by an abort after stop_grace_s
        assert steps[0] == steps[1] > 0
        assert_nothing_left(client2)

    def test_a_second_interrupt_aborts(self, client2: Client, tmp_path: Path) -> None:
        interrupts = Interrupts(tmp_path, times=2)
        with pytest.raises(KeyboardInterrupt):
            run_gang(client2, ranks.until_aborted, str(tmp_path), name="aborted", listener=interrupts)
        assert len(interrupts.at) == 2
        wait_until(lambda: len(list(tmp_path.glob("done-*"))) == 2, what="the end of both ranks")
        assert_nothing_left(client2)

    @pytest.mark.long
    def test_ranks_that_do_not_stop_are_left(self, client2: Client) -> None:
        settings = GangSettings(stop_grace_s=0.5)
        with pytest.raises(ClusterError, match=r"asked to stop and has not within 0\.5 s"):
            run_gang(client2, ranks.never_stops, 3.0, name="deaf", settings=settings, listener=Interrupts(None))
        assert_nothing_left(client2)


class Interrupts:
    """Ctrl-C at the client, which waits for events, `times` times, once both ranks of `folder` run."""

    def __init__(self, folder: Path | None, times: int = 1) -> None:
        self.at: list[float] = []
        self._folder, self._times = folder, times

    def __call__(self, event: Event) -> None:
        running = self._folder is None or len(list(self._folder.glob("running-*"))) == 2
        if isinstance(event, BatchFinished) and running and len(self.at) < self._times:
            self.at.append(time.monotonic())
            raise KeyboardInterrupt
