"""A run that ends at a commit and goes on from it, on any number of ranks, is the run that was never interrupted."""

import itertools
import json
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace

import numpy as np
import pytest

from daskkern.backend.communicator import Communicator
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.cluster.gang.commit_cache import CommitCache
from daskkern.cluster.gang.rank_context import RankContext, Regroup
from daskkern.data.schema.rank_tables import RankTable
from daskkern.data.schema.schema import Scaling
from daskkern.errors import SpecError, StoreError
from daskkern.events import BatchFinished, EpochFinished, Event, FitFinished, FitResumed, silent
from daskkern.losses import Squared
from daskkern.solvers import EigenPro, NystromSGD, Solver
from daskkern.training.checkpoints.checkpoint import begin_checkpoint, is_checkpoint, read_checkpoint, remove_checkpoint
from daskkern.training.checkpoints.checkpointing import Checkpointing, CheckpointPolicy
from daskkern.training.checkpoints.commits import Commit, Position
from daskkern.training.checkpoints.fingerprints import fingerprint, named
from daskkern.training.feeding.stored_features import stored_features
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import run_rank
from daskkern.training.run.rank_task import RankTask
from tests.support.fits import EVERY_BATCH, D, Fit, Runs, toy_settings, toy_source
from tests.support.threads import run_threads

WAYS = {
    "all rows": (AllRows(), EigenPro(averaging=0.7)),
    "window of 1": (Landmarks(40), EigenPro(window=1, averaging=0.7)),
    "window of 2": (Landmarks(40), EigenPro(window=2)),
    "projections by EigenPro": (Landmarks(40), EigenPro(projection="eigenpro")),
    "nystrom": (Landmarks(40), NystromSGD(mode="streamed", averaging=0.7)),
}
ways = pytest.mark.parametrize(("basis", "solver"), WAYS.values(), ids=WAYS)


def _fit(basis: BasisSpec, solver: Solver[object], **changes: object) -> Fit:
    settings = replace(toy_settings(basis, solver), batch_size=8, **changes)
    return Fit.of(toy_source(weighted=True), settings)


@pytest.mark.one_in(5, 1)
@ways
def test_a_run_in_three_parts_has_the_same_bits(basis: BasisSpec, solver: Solver[object]) -> None:
    fit = _fit(basis, solver)
    whole = fit.scores(fit.results(2))
    runs = Runs(fit)
    for until in (5, 20):
        assert all(isinstance(result, Regroup) for result in runs.run(2, until=until))
    np.testing.assert_array_equal(runs.scores(2), whole)
    resumed = [event for event in runs.events if isinstance(event, FitResumed)]
    assert len(resumed) == 2
    assert resumed[0].epoch == 1
    assert resumed[0].batch > 0
    assert [event.epoch for event in runs.events if isinstance(event, EpochFinished)] == [1, 2, 3]


@pytest.mark.one_in(5, 3)
@ways
def test_ranks_may_become_more_and_fewer(basis: BasisSpec, solver: Solver[object]) -> None:
    fit = _fit(basis, solver)
    whole = fit.scores(fit.results(1))
    runs = Runs(fit)
    runs.run(2, until=4)
    runs.run(3, until=9, lost=(0,))
    runs.run(1, until=9, lost=(1, 2))
    found = runs.scores(2, lost=(1,))
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-9 * np.abs(whole).max())


def test_stored_eigenfeatures_go_on_too() -> None:
    fit = _fit(Landmarks(40), NystromSGD(mode="streamed", averaging=0.5))
    with stored_features(fit.source, fit.settings, fit.prepared) as path:
        fit = replace(fit, features=path)
        whole = fit.scores(fit.results(2))
        runs = Runs(fit)
        runs.run(2, until=11)
        np.testing.assert_array_equal(runs.scores(2), whole)
        runs = Runs(fit)
        runs.run(3, until=11)
        np.testing.assert_allclose(runs.scores(1), whole, rtol=0, atol=1e-9 * np.abs(whole).max())


def test_the_best_epoch_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = _fit(Landmarks(40), EigenPro(window=2), early_stopping=EarlyStopping(0.2, 2), max_epochs=8)
    whole = fit.results(2)
    runs = Runs(fit)
    for until in (20, 20, 20):
        runs.run(2, until=until)
    last = runs.run(2)
    assert [result.reason for result in last] == [result.reason for result in whole]
    assert [result.epochs for result in last] == [result.epochs for result in whole]
    np.testing.assert_array_equal(fit.scores(last), fit.scores(whole))


def test_a_finished_run_is_not_run_again() -> None:
    runs = Runs(_fit(Landmarks(40), EigenPro()))
    first = runs.scores(2)
    count = sum(isinstance(event, BatchFinished) for event in runs.events)
    np.testing.assert_array_equal(runs.scores(2), first)
    assert sum(isinstance(event, BatchFinished) for event in runs.events) == count
    assert sum(isinstance(event, FitFinished) for event in runs.events) == 2


def test_ranks_that_keep_nothing_do_not_regroup() -> None:
    fit = _fit(Landmarks(40), EigenPro())
    runs = Runs(fit, replace(EVERY_BATCH, in_memory=False))
    np.testing.assert_array_equal(runs.scores(2, until=3), fit.scores(fit.results(2)))


@pytest.mark.one_in(7)
@ways
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_continues_exactly(basis: BasisSpec, solver: Solver[object], ranks: int, tmp_path: Path) -> None:
    fit = _fit(basis, solver)
    policy = replace(EVERY_BATCH, checkpoint=str(tmp_path / "c"), run="one")
    Runs(fit, policy).run(ranks, until=13)
    found = read_checkpoint(policy.checkpoint, "{}")
    assert found.run == "one"
    assert found.commit.position.steps > 0
    again = Runs(fit, replace(policy, resume=True, run="two"))
    np.testing.assert_array_equal(again.scores(ranks), fit.scores(fit.results(ranks)))
    assert any(isinstance(event, FitResumed) for event in again.events)
    assert len(list((tmp_path / "c").glob("commit-*"))) == 1


def test_more_epochs_than_planned_continue_the_same_run(tmp_path: Path) -> None:
    short = _fit(Landmarks(40), EigenPro(window=2), max_epochs=2)
    policy = replace(EVERY_BATCH, checkpoint=str(tmp_path / "c"))
    Runs(short, policy).run(2)
    long = replace(short, settings=replace(short.settings, max_epochs=6))
    found = Runs(long, replace(policy, resume=True)).scores(2)
    np.testing.assert_array_equal(found, long.scores(long.results(2)))


def test_a_stop_leaves_a_checkpoint_of_the_last_window(tmp_path: Path) -> None:
    fit = _fit(Landmarks(40), EigenPro(window=3))
    policy = replace(EVERY_BATCH, commit_s=1e9, checkpoint=str(tmp_path / "c"), checkpoint_s=1e9)
    seen: list[Event] = []

    def work(comm: Communicator) -> object:
        memory = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)
        stop: Callable[[], bool] = lambda: sum(isinstance(e, BatchFinished) for e in seen) >= 8  # noqa: E731
        context = RankContext(seen.append if comm.rank == 0 else silent, stop)
        job = FitJob(fit.source, fit.settings, policy=replace(policy, claim=claim))
        return run_rank(comm, RankTask(job, fit.prepared, memory, 1), context)

    claim = begin_checkpoint(policy.checkpoint, policy.run)
    results = run_threads(2, work)
    assert {result.reason for result in results} == {"interrupted"}
    assert read_checkpoint(policy.checkpoint, "{}").commit.position.steps == 6
    found = Runs(fit, replace(policy, resume=True)).scores(2)
    np.testing.assert_array_equal(found, fit.scores(fit.results(2)))


def test_what_is_not_this_fits_checkpoint_is_refused(tmp_path: Path) -> None:
    fit = _fit(Landmarks(40), EigenPro())
    place = tmp_path / "c"
    policy = replace(EVERY_BATCH, checkpoint=str(place), fingerprint='{"data": {"n": 1}, "seed": 3}')
    Runs(fit, policy).run(1)
    with pytest.raises(StoreError, match="data n was 1 and is 2; seed was 3 and is None"):
        read_checkpoint(str(place), '{"data": {"n": 2}}')
    commit = next(place.glob("commit-*"))
    chunk = next(path for path in commit.rglob("c/*/*") if path.is_file())
    data = bytearray(chunk.read_bytes())
    data[3] ^= 64
    chunk.write_bytes(data)
    with pytest.raises(StoreError, match="is damaged"):
        read_checkpoint(str(place), policy.fingerprint)
    chunk.unlink()
    with pytest.raises(StoreError, match="has another checksum; remove it"):
        read_checkpoint(str(place), policy.fingerprint)
    remove_checkpoint(str(place))
    assert not place.exists()
    assert not is_checkpoint(str(place))
    place.mkdir()
    (place / "mine.txt").write_text("kept")
    with pytest.raises(StoreError, match="is not a checkpoint"):
        read_checkpoint(str(place), "{}")
    with pytest.raises(StoreError, match="is not a checkpoint"):
        remove_checkpoint(str(place))
    assert (place / "mine.txt").exists()


@pytest.mark.parametrize(("scale", "bends"), [(None, False), ("standard", False), ("always", True)])
def test_checkpoints_of_before_bends_are_this_fits_where_it_has_none(scale: str | None, bends: bool) -> None:
    settings, source = replace(toy_settings(Landmarks(40), EigenPro()), scale=scale), toy_source()
    known = json.loads(fingerprint(FitJob(source, settings)))
    assert known["data"]["scaling"] == zlib.crc32(b"Scaling(kind='none', shift=(), scale=())")
    assert ("features" in known) == bends
    scaled = replace(source, info=replace(source.info, scaling=Scaling("standard", (0.0,) * D, (1.0,) * D)))
    bent = replace(source, info=replace(source.info, scaling=Scaling("auto", (0.0,) * D, (1.0,) * D, (1.0,) * D)))
    unscaled = replace(settings, scale=None)
    sums = [json.loads(fingerprint(FitJob(each, unscaled)))["data"]["scaling"] for each in (scaled, bent)]
    assert len({known["data"]["scaling"], *sums}) == 3


def test_all_numbers_of_scalings_tell_checkpoints_apart() -> None:
    settings, source = replace(toy_settings(Landmarks(40), EigenPro()), scale=None), toy_source()
    tables = [RankTable(0, (0.0, 1.0), (-1.0, to)) for to in (1.0, 2.0)]
    scalings = [Scaling("warped", (0.0,) * D, (1.0,) * D, (), (table,)) for table in tables]
    given = {fingerprint(FitJob(source, replace(settings, scale=scaling))) for scaling in scalings}
    stored = {fingerprint(FitJob(replace(source, info=replace(source.info, scaling=s)), settings)) for s in scalings}
    assert (len(given), len(stored)) == (2, 2)


def test_an_unfinished_commit_does_not_count(tmp_path: Path) -> None:
    fit = _fit(Landmarks(40), EigenPro())
    policy = replace(EVERY_BATCH, checkpoint=str(tmp_path / "c"))
    Runs(fit, policy).run(1, until=5)
    before = read_checkpoint(policy.checkpoint, "{}").commit
    newer = tmp_path / "c" / "commit-999999999"
    newer.mkdir()
    (newer / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {"complete": false}}')
    after = read_checkpoint(policy.checkpoint, "{}").commit
    assert after.position == before.position
    remove_checkpoint(policy.checkpoint)
    assert not (tmp_path / "c").exists()


def test_a_commit_survives_its_bytes() -> None:
    runs = Runs(_fit(Landmarks(40), EigenPro(averaging=1.0)))
    runs.run(2, until=6)
    data = runs.commit_caches[0].latest.data
    assert bytes(data) == bytes(runs.commit_caches[1].latest.data)
    commit = Commit.from_bytes(data)
    assert bytes(commit.to_bytes()) == bytes(data)
    with pytest.raises(StoreError, match="cannot be read"):
        Commit.from_bytes(data[:100])
    with pytest.raises(StoreError, match="cannot be read"):
        Position.from_json('{"epoch": 1}')


def test_regression_with_a_ridge_goes_on_too() -> None:
    settings = replace(toy_settings(AllRows(), EigenPro(), Squared()), batch_size=8)
    fit = Fit.of(toy_source(regression=True), settings)
    runs = Runs(fit)
    runs.run(2, until=7)
    np.testing.assert_array_equal(runs.scores(2), fit.scores(fit.results(2)))


@pytest.mark.parametrize("epochs", [1, 2])
def test_fewer_epochs_than_are_behind_end_at_once(epochs: int, tmp_path: Path) -> None:
    fit = _fit(Landmarks(40), EigenPro())
    policy = replace(EVERY_BATCH, checkpoint=str(tmp_path / "c"))
    Runs(fit, policy).run(1, until=45)
    short = replace(fit, settings=replace(fit.settings, max_epochs=epochs))
    again = Runs(short, replace(policy, resume=True))
    assert [result.reason for result in again.run(1)] == ["max_epochs"]
    assert not any(isinstance(event, BatchFinished) and event.epoch > 3 for event in again.events)


def test_a_checkpoint_that_cannot_be_written_costs_no_model(tmp_path: Path) -> None:
    fit = _fit(Landmarks(40), EigenPro())
    policy = replace(EVERY_BATCH, checkpoint=str(tmp_path / "c"), run="mine")
    memory = MemoryPlan(items=(), kept=0, kept_wanted=0, keeps_rows=False, budget=1 << 40)
    events: list[Event] = []
    task = RankTask(FitJob(fit.source, fit.settings, policy=policy), fit.prepared, memory, 1)
    result = run_threads(1, lambda comm: run_rank(comm, task, RankContext(events.append)))[0]
    assert result.reason == "max_epochs"
    reported = [event.detail for event in events if getattr(event, "stage", "") == "checkpoint"]
    assert reported == [
        f"{policy.checkpoint} is not up to date: this worker does not see it; choose a place that all workers share"
    ]
    assert not (tmp_path / "c").exists()


def test_a_checkpoint_without_a_whole_commit_is_nobodys(tmp_path: Path) -> None:
    place = str(tmp_path / "c")
    begin_checkpoint(place, "one")
    (tmp_path / "c" / "commit-000000001").mkdir()
    assert read_checkpoint(place, '{"alpha": 1}') is None
    assert not is_checkpoint(place)
    begin_checkpoint(place, "two")


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_fit_ends_when_its_time_is_over(ranks: int) -> None:
    fit = _fit(AllRows(), EigenPro(), max_epochs=1_000_000, max_seconds=0.5)
    events: list[Event] = []
    results = fit.results(ranks, listen=events.append)
    assert {result.reason for result in results} == {"max_seconds"}
    finished = events[-1]
    assert isinstance(finished, FitFinished)
    assert finished.reason == "max_seconds"


def test_the_time_of_a_fit_goes_on_when_its_gang_is_formed_anew() -> None:
    runs = Runs(_fit(AllRows(), EigenPro(), max_epochs=1_000_000, max_seconds=3600.0))
    assert all(isinstance(result, Regroup) for result in runs.run(2, until=3))
    kept = runs.commit_caches[0].latest
    assert kept is not None
    commit = Commit.from_bytes(kept.data)
    assert 0 < commit.position.seconds < 600
    spent = replace(commit, position=replace(commit.position, seconds=3600.0))
    for commit_cache in runs.commit_caches.values():
        commit_cache.put(commit.position.steps, spent.to_bytes())
    assert {result.reason for result in runs.run(2)} == {"max_seconds"}


def test_a_resumed_fit_has_time_of_its_own(tmp_path: Path) -> None:
    place = str(tmp_path / "c")
    runs = Runs(_fit(AllRows(), EigenPro()), replace(EVERY_BATCH, checkpoint=place, run="one"))
    runs.run(1, until=3)
    again = CheckpointPolicy(checkpoint=place, run="one").saved()
    resumed = CheckpointPolicy(checkpoint=place, run="two", resume=True).saved()
    assert again is not None
    assert resumed is not None
    assert again.position.seconds > 0
    assert resumed.position == replace(again.position, seconds=0.0)


def test_a_run_that_has_a_name_keeps_it_and_its_time(tmp_path: Path) -> None:
    fit = _fit(AllRows(), EigenPro())
    policy = replace(EVERY_BATCH, checkpoint=str(tmp_path / "c"), run="one", resume=True)
    job = FitJob(fit.source, fit.settings, policy=policy)
    conducted = [named(job).policy for _ in range(2)]
    assert [each.run for each in conducted] == ["one", "one"]
    Runs(fit, conducted[0]).run(1, until=3)
    saved = conducted[1].saved()
    assert saved is not None
    assert saved.position.seconds > 0


def test_an_epoch_took_what_all_its_ranks_took(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(_fit(AllRows(), EigenPro()))
    clock = itertools.count(0.0, 100.0)
    with monkeypatch.context() as patched:
        patched.setattr(
            "daskkern.training.run.epochs.time", SimpleNamespace(perf_counter=lambda: perf_counter() + next(clock))
        )
        runs.run(1, until=3)
    runs.run(1)
    first, second, *_ = (event for event in runs.events if isinstance(event, EpochFinished))
    assert first.seconds > 200
    assert second.seconds < 60


@pytest.mark.parametrize("seconds", ['"soon"', "-1", "NaN", "Infinity", "null", "[]"])
def test_a_position_with_no_number_of_seconds_is_refused(seconds: str) -> None:
    text = Position(seconds=2.5, epoch_seconds=1.0).to_json()
    assert Position.from_json(text) == Position(seconds=2.5, epoch_seconds=1.0)
    with pytest.raises(StoreError, match="position in a checkpoint"):
        Position.from_json(text.replace("2.5", seconds))


def test_a_position_of_before_seconds_were_kept_is_read() -> None:
    text = Position(steps=3).to_json()
    before = text.replace(', "seconds": 0.0', "").replace(', "epoch_seconds": 0.0', "")
    assert Position.from_json(before) == Position(steps=3)


@pytest.mark.parametrize(
    "wrong", [{"commit_share": 0.0}, {"commit_share": 1.5}, {"signal_batches": 0}, {"commit_s": -1.0}]
)
def test_a_pace_of_commits_that_cannot_be_kept_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SpecError, match=next(iter(wrong))):
        CheckpointPolicy(**wrong)


def test_expensive_commits_are_made_less_often() -> None:
    for share, due in ((0.5, True), (0.001, False)):
        keeper = Checkpointing(CheckpointPolicy(in_memory=True, commit_s=0.0, commit_share=share), CommitCache(), None)
        assert keeper.due()
        keeper.keep(SimpleNamespace(to_bytes=bytes, position=Position()), 0.01, last=False)
        time.sleep(0.05)
        assert keeper.due() == due
