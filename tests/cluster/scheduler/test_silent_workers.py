"""Which silent workers the scheduler removes: not when it was slow itself, and none that another fit holds."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from daskkern.cluster.connect.protocol import VERSION
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.plugin import FitsPlugin
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.cluster.scheduler.sharing.requests import WorkerRequest
from daskkern.cluster.scheduler.silent_workers import SilentWorkers


class _Scheduler:
    """Two workers: nothing was heard of the first for some seconds, and the second has just been heard of."""

    def __init__(self, silent_s: float) -> None:
        now = time.time()
        self.workers: dict[str, Any] = {
            address: SimpleNamespace(
                address=f"tcp://{address}:1",
                name=address,
                last_seen=seen,
                nanny=None,
                memory_limit=0,
                status=SimpleNamespace(name="running"),
            )
            for address, seen in (("silent", now - silent_s), ("lively", now))
        }

    async def retire_workers(self, **choice: Any) -> dict[str, Any]:
        return choice

    async def remove_worker(self, address: str, stimulus_id: str) -> None:
        del stimulus_id, self.workers[address]


def _plugin(silent_s: float = 4.0) -> FitsPlugin:
    plugin: Any = FitsPlugin()
    asyncio.run(_start(plugin, _Scheduler(silent_s)))
    return plugin


async def _start(plugin: Any, scheduler: Any) -> None:
    scheduler.plugins, scheduler.handlers = {}, {}
    await plugin.start(scheduler)
    for address in scheduler.workers:
        plugin._equip(address, VERSION)
    await plugin.close()


def _drop(plugin: FitsPlugin, silence_s: float = 3.0, **how: bool) -> bool:
    return asyncio.run(plugin._drop("silent", silence_s, **how))


def test_a_silent_worker_is_removed() -> None:
    plugin = _plugin()
    assert not _drop(plugin, silence_s=5.0)
    assert _drop(plugin)
    assert list(plugin._scheduler.workers) == ["lively"]
    assert _drop(plugin), "it is gone"


@pytest.mark.parametrize(("silence_s", "held_up_s"), [(3.0, 1.5), (15.0, 4.0), (60.0, 15.0)])
def test_a_scheduler_that_was_held_up_blames_nobody(silence_s: float, held_up_s: float) -> None:
    for noticed in (False, True):
        plugin = _plugin(silence_s + 1)
        plugin._silent.ticked = time.time() - held_up_s
        if noticed:
            plugin._silent.tick()
        assert not _drop(plugin, silence_s)
        assert "silent" in plugin._scheduler.workers


def test_what_held_the_scheduler_up_before_or_for_a_moment_does_not_count() -> None:
    plugin = _plugin(20.0)
    now = time.time()
    plugin._silent.hold_ups += [(now - 16.0, 10.0), (now - 1.0, 2.0)]
    assert _drop(plugin, 15.0)


@pytest.mark.parametrize(("silent_s", "is_removed"), [(7.0, False), (60.0, True)])
def test_a_scheduler_that_is_held_up_again_and_again_does_not_keep_a_silent_worker(
    silent_s: float, is_removed: bool
) -> None:
    plugin = _plugin(silent_s)
    now = time.time()
    plugin._silent.hold_ups += [(now - 57.0 + 3.0 * number, 1.5) for number in range(19)]
    assert _drop(plugin, 5.0) == is_removed


def test_a_worker_that_a_fit_holds_is_left_to_that_fit() -> None:
    plugin = _plugin()
    registry: FitRegistry = plugin._registry
    assert registry.admission.ask(WorkerRequest("f", 0.0), plugin._workers.places()).members == ("silent", "lively")
    assert not _drop(plugin, unused=True)
    registry.admission.release("f")
    assert _drop(plugin, unused=True)


def test_a_silent_client_keeps_its_workers_while_the_scheduler_was_held_up() -> None:
    plugin = _plugin()
    registry: FitRegistry = plugin._registry
    registry.ask(FitMetadata("f", "f"), {}, "client", plugin._workers.places())
    scheduler: Any = plugin._scheduler
    scheduler.tasks, scheduler.clients = {}, {"client": SimpleNamespace(last_seen=time.time() - 90.0)}
    plugin._silent.ticked = time.time() - 80.0
    asyncio.run(plugin._sweep())
    assert registry.admission.held == {"f": ("silent", "lively")}
    plugin._silent.ticked = time.time()
    asyncio.run(plugin._sweep())
    assert registry.admission.held == {}


def test_a_paused_worker_is_assigned_to_no_fit_and_keeps_its_rank() -> None:
    plugin = _plugin(0.0)
    admission = plugin._registry.admission
    assert admission.ask(WorkerRequest("before", 0.0, n_ranks=1), plugin._workers.places()).members == ("silent",)
    for worker in plugin._scheduler.workers.values():
        worker.status.name = "paused"
    assert admission.ask(WorkerRequest("before", 0.0, n_ranks=1), plugin._workers.places()).members == ("silent",)
    assert admission.ask(WorkerRequest("after", 1.0, n_ranks=1), plugin._workers.places()).missing == 1
    assert not plugin._supervisors.handlers()["take"]("before", ("lively",))
    plugin._scheduler.workers["lively"].status.name = "running"
    assert admission.ask(WorkerRequest("after", 1.0, n_ranks=1), plugin._workers.places()).members == ("lively",)


class _Hanging:
    """A scheduler with a worker that hangs; with `comes_back`, its nanny puts another at the same address."""

    def __init__(self, *, comes_back: bool = False) -> None:
        self.workers: dict[str, Any] = {"tcp://w": SimpleNamespace(last_seen=0.0, nanny="tcp://n")}
        self.kills, self.removals, self._comes_back = 0, 0, comes_back

    def rpc(self, nanny: str) -> Any:
        assert nanny == "tcp://n"
        return self

    async def kill(self, timeout: float, reason: str) -> None:
        del timeout, reason
        self.kills += 1
        await asyncio.sleep(0.05)
        if self._comes_back:
            self.workers["tcp://w"] = SimpleNamespace(last_seen=0.0, nanny="tcp://n")

    async def remove_worker(self, address: str, stimulus_id: str) -> None:
        del stimulus_id
        self.removals += 1
        del self.workers[address]


async def _asked_twice(scheduler: _Hanging) -> list[bool]:
    silent = SilentWorkers(scheduler)
    first = asyncio.create_task(silent.drop("tcp://w", 5.0))
    await asyncio.sleep(0.02)
    return [await silent.drop("tcp://w", 5.0), await first]


def test_a_worker_that_two_ask_to_drop_is_killed_and_removed_once() -> None:
    scheduler = _Hanging()
    assert asyncio.run(_asked_twice(scheduler)) == [True, True]
    assert (scheduler.kills, scheduler.removals, scheduler.workers) == (1, 1, {})


def test_the_worker_that_takes_its_address_stays() -> None:
    scheduler = _Hanging(comes_back=True)
    assert asyncio.run(_asked_twice(scheduler)) == [True, True]
    assert (scheduler.kills, scheduler.removals, len(scheduler.workers)) == (1, 0, 1)
