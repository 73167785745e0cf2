"""Groups of ranks that hold the whole model each and divide the batches: the answer of one rank, also after a loss."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from daskkern import KernelClassifier
from daskkern.basis import AllRows, BasisSpec, Landmarks, NystromFeatures, RandomFeatures
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.gang.worker_plugin import registry_of
from daskkern.errors import SpecError
from daskkern.events import BatchFinished, EpochFinished, Event, FitResumed, FitStarted, RankReported, StageFinished
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import PCG, SAG, SARAH, SGD, SVRG, AdaGrad, EigenPro, NystromSGD, Solver
from daskkern.training.checkpoints import checkpointing
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.checkpoints.commits import holders_in_group, holders_of
from daskkern.training.checkpoints.fingerprints import fingerprint
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.stored_features import features_for
from daskkern.training.planning import cluster_planner, columns_of_workers
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import one_process_cluster
from tests.support.fits import EVERY_BATCH, Fit, Runs, toy_settings, toy_source, toy_store

FITS: dict[str, tuple[BasisSpec, Solver[Any], Loss]] = {
    "a factor": (Landmarks(60), EigenPro(window=3), Logistic()),
    "iteration": (Landmarks(60), EigenPro(projection="eigenpro", window=2), Logistic()),
    "a projection each step": (Landmarks(60), EigenPro(window=1, momentum=0.5), Squared()),
    "all rows": (AllRows(), EigenPro(), Logistic()),
    "features": (RandomFeatures(60), EigenPro(), Logistic()),
    "sgd over features": (RandomFeatures(60), SGD(), Logistic()),
    "sgd over all rows": (AllRows(), SGD(), Logistic()),
    "adagrad": (RandomFeatures(60), AdaGrad(), Logistic()),
    "svrg": (RandomFeatures(60), SVRG(), Logistic()),
    "sarah": (AllRows(), SARAH(), Logistic()),
    "streamed eigenfeatures": (Landmarks(60), NystromSGD(mode="streamed"), Logistic()),
    "mapped features": (NystromFeatures(60), EigenPro(), Logistic()),
}


_REST = {"a projection each step", "sgd over all rows", "adagrad", "svrg", "sarah", "mapped features"}
_NAMES = [pytest.param(name, marks=pytest.mark.repeated) if name in _REST else name for name in FITS]


@pytest.mark.parametrize("name", _NAMES)
def test_the_answer_is_that_of_one_rank(name: str) -> None:
    shared = Fit.of(toy_source(weighted=True), toy_settings(*FITS[name]))
    seen: list[Event] = []
    one = shared.scores(shared.results(1, listen=seen.append))
    for ranks, groups in ((4, 2), (2, 2)):
        results = shared.results(ranks, groups=groups, listen=seen.append)
        assert [result.ids.size > 0 for result in results] == [rank < ranks // groups for rank in range(ranks)]
        np.testing.assert_allclose(shared.scores(results), one, rtol=0, atol=1e-10 * np.abs(one).max())
    started = [(event.size, event.groups) for event in seen if isinstance(event, FitStarted)]
    assert started == [(1, 1), (4, 2), (2, 2)]
    losses = np.array([event.loss for event in seen if isinstance(event, EpochFinished)]).reshape(3, -1)
    np.testing.assert_allclose(losses[1:], losses[:1].repeat(2, axis=0), rtol=1e-9)


def test_stored_eigenfeatures_are_divided_as_well(tmp_path: Path) -> None:
    settings = replace(toy_settings(Landmarks(60), NystromSGD(mode="stored")), scratch=str(tmp_path))
    shared = Fit.of(toy_source(), settings)
    with features_for(shared.source, settings, shared.prepared) as features:
        assert features is not None
        shared = replace(shared, features=features)
        one, grid = (shared.scores(shared.results(ranks, groups=groups)) for ranks, groups in ((1, 1), (4, 2)))
    np.testing.assert_allclose(grid, one, rtol=0, atol=1e-10 * np.abs(one).max())


_ALSO = [pytest.param(name, marks=pytest.mark.repeated) for name in ("all rows", "features")]


@pytest.mark.parametrize("name", ["a factor", *_ALSO])
def test_single_precision_agrees_to_its_own_rounding(name: str) -> None:
    shared = Fit.of(toy_source(weighted=True), toy_settings(*FITS[name], dtype="float32"))
    one = shared.scores(shared.results(1))
    np.testing.assert_allclose(shared.scores(shared.results(6, groups=3)), one, rtol=0, atol=1e-4 * np.abs(one).max())


_KEPT = [
    {"kept": 1 << 20},
    pytest.param({"keeps_rows": True}, marks=pytest.mark.repeated),
    pytest.param({}, marks=pytest.mark.repeated),
]


@pytest.mark.parametrize("case", _KEPT, ids=["blocks", "rows", "nothing"])
def test_what_is_kept_and_batches_smaller_than_the_groups_change_nothing(case: dict[str, Any]) -> None:
    settings = replace(toy_settings(Landmarks(40), EigenPro(window=2)), batch_size=3, max_epochs=2)
    shared = Fit.of(toy_source(), settings)  # 130 rows: the last batches have one row, for four groups
    one = shared.scores(shared.results(1))
    found = shared.scores(shared.results(4, groups=4, **case))
    np.testing.assert_allclose(found, one, rtol=0, atol=1e-10 * np.abs(one).max())


def test_rows_that_are_read_once_are_divided_as_well() -> None:
    shared = Fit.of(toy_source(), replace(toy_settings(Landmarks(40), EigenPro(window=2)), reading="once"))
    one = shared.scores(shared.results(1))
    np.testing.assert_allclose(shared.scores(shared.results(4, groups=2)), one, rtol=0, atol=1e-10 * np.abs(one).max())


def test_validation_rows_are_divided_and_all_ranks_stop_together() -> None:
    early = EarlyStopping(fraction=0.3, patience=1, tol=10.0)
    settings = replace(toy_settings(Landmarks(40), EigenPro()), early_stopping=early, max_epochs=6)
    shared, seen = Fit.of(toy_source(weighted=True), settings), list[Event]()
    for ranks, groups in ((1, 1), (4, 2)):
        shared.results(ranks, groups=groups, listen=seen.append)
    epochs = [event for event in seen if isinstance(event, EpochFinished)]
    assert [event.epoch for event in epochs] == [1, 2, 1, 2]
    for alone, grid in zip(epochs[:2], epochs[2:], strict=True):
        np.testing.assert_allclose(
            (grid.validation_loss, grid.validation_score), (alone.validation_loss, alone.validation_score), rtol=1e-9
        )


@pytest.mark.parametrize("name", ["a factor", *_ALSO])
def test_a_run_goes_on_in_other_grids(name: str) -> None:
    shared = Fit.of(toy_source(), toy_settings(*FITS[name]))
    whole = shared.scores(shared.results(1))
    runs = Runs(shared)
    runs.run(4, until=4, groups=2)
    runs.run(3, until=2, groups=2, lost=(0, 3))  # one group: 2 does not divide 3
    found = runs.scores(6, groups=3, lost=(1,))
    np.testing.assert_allclose(found, whole, rtol=0, atol=1e-9 * np.abs(whole).max())
    resumed = [(event.size, event.groups) for event in runs.events if isinstance(event, FitResumed)]
    assert resumed == [(3, 1), (6, 3)]


def test_one_rank_of_all_groups_writes_the_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []

    class Counted(checkpointing.CheckpointWriter):
        def __init__(self, *how: Any) -> None:
            written.append(1)
            super().__init__(*how)

    monkeypatch.setattr(checkpointing, "CheckpointWriter", Counted)
    policy = replace(EVERY_BATCH, checkpoint=str(tmp_path / "c"), run="a")
    runs = Runs(Fit.of(toy_source(), toy_settings(Landmarks(40), EigenPro())), policy)
    runs.run(4, groups=2)  # the first rank of the second group holds commits as well
    assert written == [1]


def test_a_checkpoint_continues_with_other_groups() -> None:
    plain, source = toy_settings(Landmarks(60), EigenPro()), toy_source()
    alone = fingerprint(FitJob(source, plain))
    assert fingerprint(FitJob(source, replace(plain, groups=4))) == alone
    assert fingerprint(FitJob(source, replace(plain, seed=1))) != alone
    assert replace(plain, groups=4).summary()["groups"] == 4


def test_commits_are_held_by_the_same_ranks_as_without_groups() -> None:
    for size, groups in ((4, 2), (2, 2), (12, 4), (64, 8), (9, 1)):
        each = size // groups
        held = [group * each + place for group in range(groups) for place in holders_in_group(size, each, group)]
        assert tuple(sorted(held)) == holders_of(size)


def test_the_log_says_how_the_ranks_are_grouped() -> None:
    shared, events = Fit.of(toy_source(), toy_settings(Landmarks(80), EigenPro())), list[Event]()
    shared.results(4, listen=events.append, groups=2)
    stages = [event.detail for event in events if isinstance(event, StageFinished) and event.stage == "columns"]
    assert stages[0].startswith("columns distributed to 2 ranks in each of 2 groups, which divide each batch")
    Fit.of(toy_source(), replace(shared.settings, groups=2)).results(1, listen=events.append)  # --workers 0
    stages = [event.detail for event in events if isinstance(event, StageFinished) and event.stage == "columns"]
    assert "1 rank (one group of 1 rank instead of 2 groups" in stages[1]


def test_groups_are_refused_where_a_solver_cannot_divide_batches() -> None:
    plain = toy_settings(AllRows(), EigenPro(), Squared())
    for wrong in (0, -1, 1.5, True, "many"):
        with pytest.raises(SpecError, match=r"got groups=.*; expected a whole number of at least 1, or 'auto'"):
            replace(plain, groups=wrong)
    for solver in (PCG(), SAG()):
        with pytest.raises(SpecError, match=f"got groups=2 with solver {solver.name}, whose batches cannot be divided"):
            replace(plain, solver=solver, groups=2)
        assert replace(plain, solver=solver, groups=1).groups == 1
    with pytest.raises(SpecError, match="got groups=2 with virtual_shards=4, which fix the order of all sums"):
        replace(plain, groups=2, virtual_shards=4)


def _settings(groups: int | str, **more: Any) -> FitSettings:
    settings = toy_settings(Landmarks(60), EigenPro(window=2), dtype="float64")
    return replace(settings, groups=groups, memory_budget=1 << 30, max_epochs=6, keep_blocks="never", **more)


def _found(
    client: Client | None,
    groups: int | str,
    heard: Callable[[Event], None],
    source: RowSource | None = None,
    **how: Any,
) -> np.ndarray:
    gang = None if client is None else GangSettings(elastic=False, **how.pop("gang", {}))
    model = fit(source or toy_source(), _settings(groups), client=client, gang=gang, listener=heard, **how).model
    return np.asarray(model.coef)


@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_worker_processes_form_groups_that_divide_them(client3: Client) -> None:
    """Three workers are three groups with the whole model each; two groups do not divide them: they are one."""
    one = _found(None, "auto", lambda event: None)
    for wanted, groups in ((3, 3), (2, 1)):
        seen: list[Event] = []
        found = _found(client3, wanted, seen.append)
        assert [event.groups for event in seen if isinstance(event, FitStarted)] == [groups]
        np.testing.assert_allclose(found, one, rtol=0, atol=1e-10 * np.abs(one).max())
        columns = {event.rank: event.columns for event in seen if isinstance(event, RankReported)}
        assert sum(columns.values()) == 60 * groups


@dataclass
class _Loss:
    """Closes the worker of the last rank that does not supervise, unannounced, when a batch of epoch 2 has ended."""

    client: Client
    events: list[Event] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if self.lost or not isinstance(event, BatchFinished) or event.epoch < 2:
            return
        ranks = {
            mailbox.membership.rank: worker
            for worker in self.client.cluster.workers.values()
            for mailbox in registry_of(worker).mailboxes.values()
        }
        supervises = {rank for rank in ranks if any("supervisor" in str(key) for key in ranks[rank].state.tasks)}
        worker = ranks[max(set(ranks) - supervises)]
        self.lost.append(worker.address)
        leave = partial(worker.close, timeout=0, executor_wait=False, nanny=False, reason="killed")
        worker.loop.add_callback(leave)


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(400)
def test_a_rank_that_is_lost_forms_another_grid(tmp_path: Path) -> None:
    source = toy_store(tmp_path)
    one = _found(None, "auto", lambda event: None, source)
    often = CheckpointPolicy(commit_s=0.0, commit_share=1.0, signal_batches=1)
    with one_process_cluster(4) as client:
        loss = _Loss(client)
        found = _found(client, 2, loss, source, policy=often, gang={"rejoin_s": 0.2})
    formed = [(event.size, event.groups) for event in loss.events if isinstance(event, FitStarted | FitResumed)]
    assert loss.lost
    assert formed == [(4, 2), (3, 1)]
    np.testing.assert_allclose(found, one, rtol=0, atol=1e-9 * np.abs(one).max())


@pytest.mark.cluster
@pytest.mark.repeated
@pytest.mark.timeout(400)
def test_an_estimator_takes_groups(client2: Client) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X[:, 0] > 0
    model = KernelClassifier("gaussian:2", client=client2, groups=2, max_epochs=2).fit(X, y)
    alone = KernelClassifier("gaussian:2", max_epochs=2).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), alone.decision_function(X), atol=1e-3)


@pytest.mark.cluster
@pytest.mark.repeated
@pytest.mark.timeout(400)
@pytest.mark.parametrize("least", [3e9, 0.0], ids=["by what is usual", "measured"])
def test_the_plan_chooses_groups_of_many_workers(least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_planner, "MEASURE_FROM_VALUES", least)
    # As if each worker had a host of its own: sums in shared memory need no groups.
    monkeypatch.setattr(columns_of_workers, "n_hosts", len)
    one, seen = _found(None, "auto", lambda event: None), list[Event]()
    with one_process_cluster(8) as client:
        found = _found(client, "auto", seen.append)
    (started,) = [event for event in seen if isinstance(event, FitStarted)]
    assert 8 % started.groups == 0
    assert started.groups > 1 or not least  # what is measured depends on the machine
    np.testing.assert_allclose(found, one, rtol=0, atol=1e-10 * np.abs(one).max())
