"""Worker processes that read a store once for all of them: same bits, bytes, killed readers, errors and threads."""

import re
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed import Client

from daskkern.basis import Landmarks
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.data.rows.batch_plan import BatchPlan
from daskkern.data.storage.writer import StoreWriter
from daskkern.errors import CommunicatorClosedError, StoreError
from daskkern.events import Event, StageFinished, WorkersLost
from daskkern.solvers import EigenPro
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank_task import RankTask
from tests.support.cluster import local_cluster
from tests.support.collectives import shared_fits
from tests.support.fits import IN_MEMORY, Fit, toy_settings
from tests.support.left_over import assert_nothing_left

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

N, D = 4000, 500
NO_CACHE = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 3 MB that cannot be compressed."""
    place = tmp_path_factory.mktemp("reading") / "s"
    X = np.random.default_rng(0).integers(0, 256, (N, D)).astype(np.uint8)
    with StoreWriter(
        place, n_features=D, task="classification", classes=(0, 1), chunk_rows=100, dtype="uint8"
    ) as writer:
        writer.append(X, X[:, 0] % 2)
    return place


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.repeated), 3])
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.getfixturevalue(f"client{request.param}")
    return found


def _task(store: Path, reading: str, epochs: int) -> RankTask:
    settings = replace(
        toy_settings(Landmarks(60), EigenPro(), dtype="float32"), batch_size=200, max_epochs=epochs, reading=reading
    )
    made = Fit.of(StoreSource.at(str(store)), settings)
    assert isinstance(made.prepared.plan, BatchPlan)
    plan = replace(made.prepared.plan, window_rows=600, piece_rows=0)
    prepared = replace(made.prepared, plan=plan)
    return RankTask(FitJob(made.source, settings, policy=IN_MEMORY), prepared, NO_CACHE, 1)


@pytest.mark.repeated
def test_a_store_is_read_once_an_epoch_by_all_workers_together(client: Client, store: Path) -> None:
    size = sum(path.stat().st_size for path in (store / "X" / "c").rglob("*") if path.is_file())
    assert size >= N * D
    found = {}
    for reading in ("each", "once"):
        by_epochs = [run_gang(client, shared_fits.fitted, _task(store, reading, n), name=reading) for n in (1, 2)]
        total = [sum(read.bytes_read for read in reads) for reads in by_epochs]
        found[reading] = by_epochs[1], (total[1] - total[0]) / size
    ranks = len(found["each"][0])
    for mine, theirs in zip(found["each"][0], found["once"][0], strict=True):
        np.testing.assert_array_equal(mine.coef, theirs.coef)
    assert found["once"][1] == 1.0
    assert found["each"][1] == ranks
    assert not any(client.run(_threads).values())


def _threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("daskkern-share", "daskkern-read"))]


@pytest.mark.repeated
def test_a_reader_that_is_killed_is_a_lost_rank_and_the_fit_goes_on(store: Path, tmp_path: Path) -> None:
    task = _task(store, "once", 3)
    events: list[Event] = []
    with local_cluster(2) as client:
        undisturbed = run_gang(client, shared_fits.fitted, task, name="undisturbed")
        settings = GangSettings(silence_s=3.0, rejoin_s=20.0, idle_s=20.0)
        order = (task, str(tmp_path / "died"))
        found = run_gang(
            client, shared_fits.fitted_by_one_who_dies, order, name="killed", settings=settings, listener=events.append
        )
        assert_nothing_left(client)
    assert (tmp_path / "died").exists()
    assert len([event for event in events if isinstance(event, WorkersLost)]) == 1
    for mine, theirs in zip(found, undisturbed, strict=True):
        np.testing.assert_array_equal(mine.coef, theirs.coef)


@pytest.mark.repeated
def test_a_damaged_chunk_is_named_as_by_ranks_that_each_read(client2: Client, store: Path) -> None:
    tasks = [_task(store, reading, 1) for reading in ("each", "once")]
    chunk = store / "X" / "c" / "17" / "0"
    whole, said = chunk.read_bytes(), []
    try:
        chunk.write_bytes(whole + whole)
        for task in tasks:
            with pytest.raises(StoreError, match="rows 1700 to 1800") as caught:
                run_gang(client2, shared_fits.fitted, task, name="damaged", settings=GangSettings(retries=0))
            said.append(str(caught.value))
    finally:
        chunk.write_bytes(whole)
    assert said[0] == said[1]
    assert_nothing_left(client2)
    assert not any(client2.run(_threads).values())


@pytest.mark.repeated
@pytest.mark.parametrize("pauses", [(0.8, 0.0), (0.0, 4.0)], ids=["reads", "computes"])
def test_a_slow_reader_and_a_slow_step_are_waited_for(client: Client, pauses: tuple[float, float]) -> None:
    """Also beyond the time after which ranks ask each other what they do."""
    settings = GangSettings(collective_timeout_s=1.2, retries=0)  # a busy machine may deliver a message late
    found = run_gang(client, shared_fits.batches_of_slow_ranks, pauses, name="slow", settings=settings)
    assert sum(found[0]) == np.arange(0.0, 400.0, 2).sum()
    assert all(seen == found[0] for seen in found)


def test_a_reader_that_is_gone_is_named(client2: Client) -> None:
    settings = GangSettings(collective_timeout_s=0.5, retries=0)
    with pytest.raises(CommunicatorClosedError, match=r"rank 1: in .* s nothing came from rank 0 at tcp://"):
        run_gang(client2, shared_fits.reader_that_is_gone, None, name="gone", settings=settings)


@pytest.mark.long
def test_a_whole_fit_reads_as_requested(client2: Client, store: Path) -> None:
    settings = replace(toy_settings(Landmarks(20), EigenPro(), dtype="float32"), batch_size=300, max_epochs=2)
    coefs, said = {}, {}
    for reading in ("each", "once", "auto"):
        events: list[Event] = []
        changed = replace(settings, reading=reading)
        result = fit(StoreSource.at(str(store)), changed, client=client2, listener=events.append)
        coefs[reading], said[reading] = result.model.coef, _said(events)
    np.testing.assert_array_equal(coefs["once"], coefs["each"])
    np.testing.assert_array_equal(coefs["auto"], coefs["each"])
    once = ["each window by one of 2 ranks, as requested"]
    assert said == {"each": [], "once": once, "auto": []}  # all rows are one window, which is not worth a measurement


@pytest.mark.long
def test_the_choice_is_measured_and_reported(client: Client, store: Path) -> None:
    events: list[Event] = []
    found = run_gang(client, shared_fits.fitted, _task(store, "auto", 1), name="auto", listener=events.append)
    assert len(found) in (2, 3)
    (said,) = _said(events)
    assert re.fullmatch(rf"each window by (one of|all) {len(found)} ranks: [\d.]+ ms for a sample of rows, .*", said)


def _said(events: list[Event]) -> list[str]:
    return [event.detail for event in events if isinstance(event, StageFinished) and event.stage == "reading"]
