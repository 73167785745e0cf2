"""Virtual shards: the same bits from any number of ranks, with every solver; and what is refused."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from distributed import Client
from sklearn.datasets import load_digits

from daskkern import KernelClassifier
from daskkern.backend.communicator import Communicator, SerialCommunicator
from daskkern.backend.summation import add_in_order
from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks
from daskkern.cluster.collectives.virtual import run_virtual, virtual_ranks
from daskkern.cluster.gang.gang import GangSettings
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.errors import CommunicatorClosedError, DataError, SpecError
from daskkern.events import BatchFinished, Event, FitResumed, FitStarted, RankReported
from daskkern.kernels import Gaussian
from daskkern.losses import Logistic, Loss, Squared
from daskkern.solvers import DoublySGD, EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.checkpoints.checkpointing import CheckpointPolicy
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.jobs.detached import submit
from daskkern.training.jobs.handle import list_fits
from daskkern.training.run import on_cluster
from daskkern.training.run.fit import fit
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank_state import context_of_shard
from daskkern.training.run.settings import FitSettings
from tests.support.cluster import local_cluster
from tests.support.fits import Fit, Runs, toy_settings, toy_source
from tests.support.solvers.table import TABLE, coefficients, row_fit
from tests.support.threads import run_threads

SHARDS = 6


@pytest.mark.parametrize(("size", "shards"), [(1, 6), (2, 6), (3, 6), (4, 6), (6, 6), (2, 8), (3, 8), (4, 8)])
def test_virtual_ranks_agree_with_numpy_and_with_each_other(size: int, shards: int) -> None:
    rng = np.random.default_rng(0)
    terms = [rng.standard_normal((4, 3)).astype(np.float32) * 10.0**i for i in range(shards)]
    ragged = [np.arange(i % 3 * 2).reshape(-1, 2) for i in range(shards)]

    def work(comm: Communicator, place: int) -> tuple[Any, ...]:
        comm.barrier()
        total = comm.allreduce(terms[comm.rank])
        scalar = comm.allreduce(np.float64(comm.rank)[None])
        parts = comm.allgather(ragged[comm.rank])
        last = comm.broadcast(terms[comm.rank], root=shards - 2)
        total[0] += place  # nobody else sees what is written
        return comm.rank, comm.size, total[1:], scalar, parts, last

    nested = run_threads(size, lambda comm: run_virtual(comm, shards, work))
    found = [result for results in nested for result in results]
    want = add_in_order(terms)
    assert [result[:2] for result in found] == [(rank, shards) for rank in range(shards)]
    for _, _, total, scalar, parts, last in found:
        np.testing.assert_array_equal(total, want[1:])
        assert scalar == [shards * (shards - 1) / 2]
        for part, own in zip(parts, ragged, strict=True):
            np.testing.assert_array_equal(part, own)
        np.testing.assert_array_equal(last, terms[shards - 2])


def test_the_root_may_change_what_it_sent() -> None:
    def work(comm: Communicator, place: int) -> bool:
        array = np.full(2_000_000, float(comm.rank))
        received = comm.broadcast(array, root=1)
        array[::-1] = -1.0
        return bool((received == 1.0).all())

    for _ in range(5):
        assert all(run_virtual(SerialCommunicator(), 3, work))


def test_every_virtual_rank_has_one_home() -> None:
    for size in range(1, 8):
        assert [v for rank in range(size) for v in virtual_ranks(rank, size, 7)] == list(range(7))


def test_what_is_reported_of_memory_is_that_of_the_whole_worker() -> None:
    reported: list[Event] = []
    for place in range(3):
        context = context_of_shard(RankContext(report=reported.append), SerialCommunicator(), place, 3, 70)
        context.report(RankReported(5, "here", "CPU", memory_bytes=250, planned_bytes=100, gpu_use=0.5))
    assert reported == [RankReported(0, "here", "CPU", memory_bytes=250, planned_bytes=300, gpu_use=0.5, columns=70)]


def test_an_error_of_one_virtual_rank_ends_all() -> None:
    def work(comm: Communicator, place: int) -> None:
        if comm.rank == 4:
            raise DataError("a bad row")
        comm.barrier()

    def real(comm: Communicator) -> str:
        with pytest.raises((DataError, CommunicatorClosedError)) as raised:
            run_virtual(comm, SHARDS, work)
        return type(raised.value).__name__

    assert run_threads(2, real) == ["CommunicatorClosedError", "DataError"]


@pytest.mark.one_in(11)
@pytest.mark.parametrize(
    ("basis", "solver", "loss"),
    [
        (AllRows(), EigenPro(), Logistic()),
        (Landmarks(60), EigenPro(window=2), Logistic()),
        (Landmarks(60), EigenPro(projection="eigenpro"), Logistic()),
        (Landmarks(60), NystromSGD(mode="streamed"), Logistic()),
        (Landmarks(60), Falkon(), Squared()),
        (Landmarks(60), Falkon(newton_passes=2), Logistic()),
        (DoublyStochastic(16), DoublySGD(), Logistic()),
    ],
    ids=["all_rows", "centres", "iterative_projection", "nystrom", "falkon", "falkon_logistic", "doubly_sgd"],
)
def test_the_same_bits_come_from_any_number_of_ranks(basis: BasisSpec, solver: Solver[Any], loss: Loss) -> None:
    settings = replace(toy_settings(basis, solver, loss, dtype="float32"), virtual_shards=3)
    shared = Fit.of(toy_source(weighted=True), settings)
    found = []
    for ranks in (1, 2, 3):
        results = shared.results(ranks)
        order = np.argsort(np.concatenate([result.ids for result in results]))
        found.append([np.concatenate([getattr(r, name) for r in results])[order] for name in ("ids", "points", "coef")])
    for ids, points, coef in found[1:]:
        np.testing.assert_array_equal(ids, np.arange(len(ids)))
        np.testing.assert_array_equal(points, found[0][1])
        np.testing.assert_array_equal(coef, found[0][2])
    plain = Fit(shared.source, replace(settings, virtual_shards=None), shared.prepared).results(3)
    coef = np.concatenate([result.coef for result in plain])
    np.testing.assert_array_equal(coef[np.argsort(np.concatenate([r.ids for r in plain]))], found[0][2])


@pytest.mark.one_in(11)
@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row.goes_on and row.ranks != (1,)])
def test_every_solver_gives_the_same_bits(name: str) -> None:
    shared = row_fit(TABLE[name], "float32", max_epochs=4, virtual_shards=3)  # working sets begin with two passes
    alone, two = (coefficients(shared, ranks) for ranks in (1, 2))
    assert alone.any()
    np.testing.assert_array_equal(two, alone)


@pytest.mark.cluster
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_set_up_of_nystrom_sgd_does_not_depend_on_the_workers(dtype: str) -> None:
    settings = toy_settings(Landmarks(40), NystromSGD(mode="streamed"), dtype=dtype)
    rng = np.random.default_rng(0)
    X, weight = rng.standard_normal((13_000, 4)), rng.uniform(0.2, 2.0, 13_000)  # four blocks of 4,096 rows
    info = replace(toy_source().info, n_rows=len(X))
    source = ArraySource(X, np.digitize(X[:, 0], [-0.7, 0.7]), weight, info)
    states = []
    for workers in (1, 2, 4):
        quiet = {"dashboard_address": "127.0.0.1:0", "scheduler_kwargs": {"dashboard": False}}
        with Client(n_workers=workers, threads_per_worker=1, processes=False, **quiet):
            states.append(Fit.of(source, replace(settings, virtual_shards=3)).prepared.state)
    for state in states[1:]:
        np.testing.assert_array_equal(state.M, states[0].M)
        assert state.top == states[0].top


def test_a_gang_that_shrinks_and_grows_goes_on_with_the_same_bits() -> None:
    settings = replace(toy_settings(Landmarks(40), EigenPro(window=2), dtype="float32"), batch_size=8, virtual_shards=3)
    shared = Fit.of(toy_source(weighted=True), settings)
    runs = Runs(shared)
    runs.run(3, until=5)
    runs.run(1, until=9, lost=(1, 2))
    found = runs.run(2)
    assert [event.size for event in runs.events if isinstance(event, FitResumed)] == [1, 2]
    want = shared.results(1)[0]
    np.testing.assert_array_equal(np.concatenate([result.ids for result in found]), want.ids)
    np.testing.assert_array_equal(np.concatenate([result.coef for result in found]), want.coef)


def test_workers_beyond_the_shards_are_left_alone(client3: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    usable, run = on_cluster.usable_workers, on_cluster.run_gang
    most: list[int | None] = []

    def counted(*arguments: Any, settings: GangSettings, **more: Any) -> list[Any]:
        most.append(settings.n_ranks)
        return run(*arguments, settings=settings, **more)

    monkeypatch.setattr(on_cluster, "run_gang", counted)
    monkeypatch.setattr(on_cluster, "usable_workers", lambda *given: usable(*given)[:1])  # others join a moment later
    settings, events = replace(toy_settings(Landmarks(40), EigenPro()), virtual_shards=2), list[Event]()
    held: list[int] = []

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, FitStarted):
            held.extend(len(status.workers) for status in list_fits(client3) if status.active)

    fit(toy_source(), settings, client=client3, listener=listen)
    assert [event.size for event in events if isinstance(event, FitStarted)] == [2]
    assert held == most == [2]


def test_what_cannot_be_is_refused(client2: Client) -> None:
    plain = toy_settings(Landmarks(40), EigenPro())
    for shards in (0, -1, 1.5, True, "2"):
        with pytest.raises(SpecError, match=r"got virtual_shards=.*; expected a whole number of at least 1, or None"):
            replace(plain, virtual_shards=shards)
    with pytest.raises(SpecError, match="keep_blocks='memory', whose rounding depends on the memory of the workers"):
        replace(toy_settings(AllRows(), EigenPro()), keep_blocks="memory", virtual_shards=2)
    with pytest.raises(SpecError, match="got 2 ranks with virtual_shards=1; each rank needs a shard"):
        fit(toy_source(), replace(plain, virtual_shards=1), client=client2, gang=GangSettings(n_ranks=2))
    with pytest.raises(SpecError, match="got 2 ranks with virtual_shards=1"):
        submit(FitJob(toy_source(), replace(plain, virtual_shards=1)), client2, "never", gang=GangSettings(n_ranks=2))


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize("workers", [2, 3])
def test_clusters_of_any_size_and_this_process_give_the_same_bits(workers: int, request: pytest.FixtureRequest) -> None:
    X, y = load_digits(return_X_y=True)
    made = {"kernel": "gaussian:20", "basis": Landmarks(150), "max_epochs": 2, "virtual_shards": 2, "device": "cpu"}
    clients = request.getfixturevalue(f"client{workers}"), None
    there, here = (KernelClassifier(client=client, **made).fit(X[:600], y[:600]) for client in clients)
    np.testing.assert_array_equal(there.decision_function(X[600:]), here.decision_function(X[600:]))


@pytest.mark.slow  # the same without worker processes is above
def test_a_gang_of_workers_that_shrinks_goes_on_with_the_same_bits() -> None:
    X, y = load_digits(return_X_y=True)
    source = toy_source()
    source = ArraySource(
        X / 16, y, None, replace(source.info, n_rows=len(X), n_features=64, classes=tuple("0123456789"))
    )
    settings = FitSettings(
        Gaussian(1.5),
        Logistic(),
        Landmarks(150),
        EigenPro(),
        max_epochs=8,
        batch_size=64,
        device="cpu",
        virtual_shards=3,
    )
    events: list[Event] = []
    with local_cluster(3) as client:

        def listen(event: Event) -> None:
            events.append(event)
            if isinstance(event, BatchFinished) and event.epoch == 3 and len(client.scheduler_info()["workers"]) == 3:
                client.retire_workers([list(client.run(lambda: None))[-1]])

        gang = GangSettings(rejoin_s=0.5, elastic=False)
        found = fit(
            source, settings, client=client, listener=listen, gang=gang, policy=CheckpointPolicy(commit_s=0.05)
        ).model
    assert [event.size for event in events if isinstance(event, FitResumed)] == [2]
    np.testing.assert_array_equal(found.scores(X), fit(source, settings).model.scores(X))
