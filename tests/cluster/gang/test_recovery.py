"""Whatever happens to workers, the gang is formed anew and goes on from the last commit."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from distributed import Client

from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.errors import ClusterError, MemoryBudgetError, SpecError
from daskkern.events import BatchFinished, Event, FitResumed, StageFinished, WorkersJoined, WorkersLost
from tests.support import ranks
from tests.support.cluster import local_cluster, wait_until, worker_pids
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

QUICK = GangSettings(silence_s=3.0, rejoin_s=8.0, idle_s=20.0)
STEPS = 150


class Story:
    """Listens to a fit, and does something once at a given step."""

    def __init__(self, at: int, deed: Callable[[], object]) -> None:
        self.events: list[Event] = []
        self._at, self._deed, self._done = at, deed, False

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, BatchFinished) and event.batch >= self._at and not self._done:
            self._done = True
            threading.Thread(target=self._deed, daemon=True).start()

    def kinds(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


def addresses(client: Client) -> list[str]:
    return list(client.run(lambda: None))


def kill(*pids: int, how: int = signal.SIGKILL) -> None:
    for pid in pids:
        os.kill(pid, how)


def check_story(story: Story, size: int, found: list[tuple[int, float, list[int]]]) -> None:
    """Assert that the count is that of an undisturbed run, after one loss, and that it did not begin anew."""
    assert [result[:2] for result in found] == [(size, float(STEPS))] * size
    assert len(story.kinds(WorkersLost)) == 1
    resumed = story.kinds(FitResumed)
    assert len(resumed) == 2
    assert resumed[-1].batch >= 25
    assert resumed[-1].size == size


@pytest.mark.long
@pytest.mark.one_in(2, 1)
@pytest.mark.parametrize("victims", [(0,), (1, 2)], ids=str)
def test_killed_workers_come_back_and_the_count_goes_on(victims: tuple[int, ...]) -> None:
    with local_cluster(3) as client:
        pids = list(worker_pids(client).values())
        story = Story(30, lambda: kill(*(pids[victim] for victim in victims)))
        found = run_gang(client, ranks.counts, STEPS, name="killed", settings=QUICK, listener=story)
        check_story(story, 3, found)
        assert_nothing_left(client)


@pytest.mark.repeated
def test_all_workers_killed_at_once_begin_anew() -> None:
    with local_cluster(2) as client:
        pids = list(worker_pids(client).values())
        story = Story(30, lambda: kill(*pids))
        found = run_gang(client, ranks.counts, STEPS, name="all", settings=QUICK, listener=story)
        assert [result[:2] for result in found] == [(2, float(STEPS))] * 2
        assert_nothing_left(client)


@pytest.mark.long
def test_fewer_workers_go_on_when_none_comes_back() -> None:
    with local_cluster(3) as client:
        story = Story(30, lambda: client.retire_workers([addresses(client)[1]]))
        found = run_gang(
            client, ranks.counts, STEPS, name="retired", settings=replace(QUICK, rejoin_s=1.0), listener=story
        )
        assert [result[:2] for result in found] == [(2, float(STEPS))] * 2
        assert not story.kinds(WorkersLost)
        assert story.kinds(FitResumed)[-1].batch >= 25


@pytest.mark.repeated
@pytest.mark.one_in(2)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_worker_that_hangs_is_left_behind(victim: int) -> None:
    """With victim 0 it is the supervisor's own worker, so that another supervisor must take over."""
    with local_cluster(3) as client:
        pids = list(worker_pids(client).values())
        story = Story(30, lambda: kill(pids[victim], how=signal.SIGSTOP))
        try:
            settings = replace(QUICK, rejoin_s=1.0, elastic=False)
            found = run_gang(client, ranks.counts, STEPS, name="hung", settings=settings, listener=story)
        finally:
            with suppress(ProcessLookupError):  # its nanny has started another
                kill(pids[victim], how=signal.SIGCONT)
            with suppress(TimeoutError):  # a cluster that closes while a nanny starts one leaves it behind
                client.wait_for_workers(3, timeout=30)
        size = len(found)
        assert size in (2, 3)  # the gang re-forms before or after the nanny has restarted the worker
        assert [result[:2] for result in found] == [(size, float(STEPS))] * size
        assert story.kinds(FitResumed)[-1].batch >= 25


@pytest.mark.repeated
def test_a_worker_that_hangs_before_its_supervisor_begins_is_left_behind(tmp_path: Path) -> None:
    with local_cluster(2) as client:
        pids = tuple(worker_pids(client).values())
        payload = ranks.Hangs(pids, str(tmp_path / "hangs"))
        settings = replace(QUICK, rejoin_s=1.0, start_timeout_s=20.0)
        found = run_gang(client, ranks.own_payload, payload, name="hangs", settings=settings)
        assert (tmp_path / "hangs").exists()
        assert {value for _, value in found} == {payload}
        for pid in pids:
            with suppress(ProcessLookupError):  # its nanny has started another
                kill(pid, how=signal.SIGCONT)
        with suppress(TimeoutError):
            client.wait_for_workers(2, timeout=30)


@pytest.mark.repeated
def test_workers_that_join_are_used() -> None:
    with local_cluster(1) as client:
        story = Story(10, lambda: client.cluster.scale(2))
        found = run_gang(client, ranks.counts, 900, name="grows", settings=QUICK, listener=story)
        assert [result[:2] for result in found] == [(2, 900.0)] * 2
        assert [event.size for event in story.kinds(WorkersJoined)] == [2]
        assert not story.kinds(WorkersLost)


@pytest.mark.repeated
@pytest.mark.one_in(2)
@pytest.mark.parametrize("settings", [replace(QUICK, elastic=False), replace(QUICK, n_ranks=1)], ids=["rigid", "one"])
def test_a_gang_that_has_what_it_asked_for_stays_as_it_is(settings: GangSettings) -> None:
    with local_cluster(1) as client:
        story = Story(10, lambda: client.cluster.scale(2))
        found = run_gang(client, ranks.counts, 450, name="stays", settings=settings, listener=story)
        assert [result[0] for result in found] == [1]
        assert len(addresses(client)) == 2


@pytest.mark.repeated
def test_attempts_without_progress_are_bounded() -> None:
    with local_cluster(2) as client:
        story = Story(0, lambda: None)
        with pytest.raises(ClusterError, match="left the cluster"):
            run_gang(
                client, ranks.dies_always, None, name="hopeless", settings=replace(QUICK, retries=2), listener=story
            )
        assert [event.attempt for event in story.kinds(WorkersLost)] == [1, 2]


@pytest.mark.long
def test_a_supervisor_may_lose_its_worker_as_often_as_the_gang_may(tmp_path: Path) -> None:
    with local_cluster(1) as client:
        settings = replace(QUICK, retries=8)
        assert run_gang(client, ranks.dies_at_first, (str(tmp_path), 6), name="often", settings=settings) == [1]
        with pytest.raises(ClusterError, match=r"again and again without any progress|left the cluster"):
            run_gang(client, ranks.dies_always, None, name="hopeless", settings=replace(QUICK, retries=3))


@pytest.mark.repeated
def test_a_cluster_that_lost_all_workers_for_good_ends_the_fit() -> None:
    with local_cluster(2) as client:
        story = Story(30, lambda: client.cluster.scale(0))
        started = time.monotonic()
        with pytest.raises(ClusterError, match=r"none came in|could not be supervised"):
            run_gang(client, ranks.counts, STEPS, name="gone", settings=replace(QUICK, idle_s=3.0), listener=story)
        assert time.monotonic() - started < 30


@pytest.mark.repeated
def test_named_workers_keep_their_name_when_they_are_restarted() -> None:
    with local_cluster(3) as client:
        before = worker_pids(client)
        chosen = list(before)[1:]
        story = Story(30, lambda: kill(before[chosen[0]]))
        settings = replace(QUICK, workers=tuple(chosen))
        found = run_gang(client, ranks.counts, STEPS, name="named", settings=settings, listener=story)
        check_story(story, 2, found)


@pytest.mark.slow  # the soak of tests/benchmarks does the same with fits
def test_many_losses_with_progress_between_them_are_no_matter() -> None:
    with local_cluster(2) as client:
        stop = threading.Event()
        killer = threading.Thread(target=_kill_now_and_then, args=(client, stop), daemon=True)
        killer.start()
        try:
            found = run_gang(client, ranks.counts, 700, name="soak", settings=replace(QUICK, retries=3))
        finally:
            stop.set()
            killer.join()
        assert [result[1] for result in found] == [700.0] * len(found)
        wait_until(lambda: len(addresses(client)) == 2, timeout_s=20, what="two workers")
        assert_nothing_left(client)


def _kill_now_and_then(client: Client, stop: threading.Event) -> None:
    turn = 0
    while not stop.wait(2.5):
        try:
            pids = list(worker_pids(client).values())
            kill(pids[turn % len(pids)])
        except (OSError, IndexError, ValueError):
            continue
        turn += 1


@contextmanager
def refused(**settings: object) -> Iterator[None]:
    with pytest.raises(SpecError, match="expected a"):
        GangSettings(**settings)
    yield


def test_settings_that_make_no_sense_are_refused() -> None:
    for settings in ({"silence_s": 0}, {"rejoin_s": -1}, {"idle_s": 0}, {"retries": -1}, {"retries": 1.5}):
        with refused(**settings):
            pass


def _too_many(client: Client, workers: tuple[str, ...], payload: int) -> int:
    if len(workers) > 1:
        raise MemoryBudgetError("one rank would need more")
    return payload


@pytest.mark.repeated
def test_a_worker_that_joins_and_cannot_take_part_is_named() -> None:
    with local_cluster(1) as client:
        story = Story(10, lambda: client.cluster.scale(2))
        found = run_gang(client, ranks.counts, 900, name="refuses", settings=QUICK, listener=story, reform=_too_many)
        assert [result[:2] for result in found] == [(1, 900.0)]
        (told,) = [event.detail for event in story.kinds(StageFinished) if event.stage == "workers"]
        assert told.startswith("worker tcp://")
        assert told.endswith("cannot take part: one rank would need more; the fit goes on without it")
        assert not story.kinds(WorkersJoined)


def _too_small(client: Client, workers: tuple[str, ...], payload: int) -> int:
    if len(workers) > 1:
        raise MemoryBudgetError("one rank would need more", too_small={workers[-1]: f"worker {workers[-1]} is small"})
    return payload


@pytest.mark.repeated
def test_a_worker_that_joins_and_is_too_small_does_not_end_a_fit_without_retries() -> None:
    with local_cluster(1) as client:
        story, settings = Story(10, lambda: client.cluster.scale(2)), replace(QUICK, retries=0)
        found = run_gang(client, ranks.counts, 900, name="small", settings=settings, listener=story, reform=_too_small)
        assert [result[:2] for result in found] == [(1, 900.0)]
        (told,) = [event.detail for event in story.kinds(StageFinished) if event.stage == "workers"]
        assert told.endswith("the fit goes on without it")
