"""Events of fits that have ended do not stay on the scheduler for ever, and commits go with their fit."""

import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from distributed import Client, Worker

from daskkern.cluster.gang.worker_plugin import PLUGIN_NAME, forget_abandoned, registry_of
from daskkern.cluster.scheduler.event_topics import EventTopics
from daskkern.cluster.scheduler.fits import FINISHED
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry
from daskkern.training.jobs.handle import list_fits
from tests.support.cluster import wait_until
from tests.support.fit_process import running_fit

RUNS, ENDED, UNKNOWN = "0123456789ab", "ba9876543210", "aaaaaaaaaaaa"


def test_topics_of_fits_that_have_ended_are_removed_after_a_minute() -> None:
    registry = FitRegistry()
    registry.record(FitMetadata(RUNS, "runs"))
    registry.record(FitMetadata(ENDED, "ended")).end(FINISHED)
    names = [*(f"daskkern-{fit}" for fit in (RUNS, ENDED, UNKNOWN)), "daskkern-metrics", "all"]
    topics = defaultdict(list, {name: [] for name in names})
    scheduler = SimpleNamespace(_broker=SimpleNamespace(_topics=topics))
    kept = EventTopics(scheduler, registry)
    kept.forget(time.time())
    assert list(topics) == [f"daskkern-{RUNS}", f"daskkern-{ENDED}", "daskkern-metrics", "all"]
    kept.forget(time.time() + 61.0)
    assert list(topics) == [f"daskkern-{RUNS}", "daskkern-metrics", "all"]
    EventTopics(SimpleNamespace(), registry).forget(time.time() + 61.0)


async def sweep(dask_worker: Worker) -> list[str]:
    """Do what a worker does once a minute, as if five had passed; return the fits that it still knows."""
    registry = registry_of(dask_worker)
    await forget_abandoned(dask_worker, registry, quiet_s=0.0)
    return [*registry.mailboxes, *registry.commit_caches, *registry.generations]


@pytest.mark.repeated
@pytest.mark.cluster
@pytest.mark.timeout(180)
def test_a_worker_forgets_a_fit_whose_client_was_killed(client2: Client, cluster2: str, tmp_path: Path) -> None:
    with running_fit(cluster2, tmp_path) as child:
        assert len(set(map(tuple, client2.run(sweep).values()))) == 1
        fit = next(status.metadata.fit for status in reversed(list_fits(client2)) if status.active)
        assert all(fit in known for known in client2.run(sweep).values()), "it runs"
        child.kill()
        child.communicate(timeout=60)
    wait_until(lambda: len(list(tmp_path.glob("done-*"))) == 2, what="the end of both ranks")
    wait_until(lambda: not any(fit in known for known in client2.run(sweep).values()), what="forgotten fits")
    assert all(PLUGIN_NAME in names for names in client2.run(lambda dask_worker: list(dask_worker.plugins)).values())
