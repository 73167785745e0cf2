"""Whole fits of ranks with a GPU each, whose sums go over NCCL, on stand-ins for both. Nothing here needs a GPU."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType

import numpy as np
import pytest
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.backend.communicator import Communicator
from daskkern.basis import AllRows, Landmarks
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.events import EpochFinished, Event, StageFinished, silent
from daskkern.losses import Loss, Squared, SquaredHinge
from daskkern.solvers import EigenPro, Falkon, NystromSGD
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import FitRankResult, run_rank
from daskkern.training.run.rank_task import RankTask
from daskkern.training.setup.prepare import prepare
from tests.support.fits import Fit, toy_settings, toy_source
from tests.support.gpu.fake_arrays import launches_counted, waits_counted
from tests.support.gpu.fake_cupy import Fake, Killed
from tests.support.gpu.fake_gpu import FakeGpu
from tests.support.threads import run_threads

SOLVERS = {
    "window": (EigenPro(window=2), Landmarks(40)),
    "all rows": (EigenPro(), AllRows()),
    "nystrom_sgd": (NystromSGD(mode="streamed"), Landmarks(40)),
    "falkon": (Falkon(), Landmarks(40)),
}


@dataclass(frozen=True)
class Gpus:
    """The stand-in for CuPy, and that for NCCL."""

    stand_in: ModuleType
    nccl: Fake


@pytest.fixture
def gpus(stand_in: FakeGpu) -> Iterator[Gpus]:
    with stand_in.gpus_of_threads() as nccl:
        yield Gpus(stand_in.module, nccl)


class Toy:
    """A fit whose ranks have a GPU each."""

    def __init__(
        self,
        name: str,
        gpus: Gpus,
        epochs: int,
        loss: Loss | None = None,
        alpha: float = 1e-3,
        sparse: bool = False,
    ) -> None:
        solver, basis = SOLVERS[name]
        self._settings = replace(toy_settings(basis, solver, loss), device="gpu", max_epochs=epochs, alpha=alpha)
        self._source, self._cuda = toy_source(), gpus.stand_in.cuda
        if sparse:
            X = np.asarray(self._source.X)
            rows = scipy.sparse.csr_array(X * (np.abs(X) > 0.5))
            self._source = replace(self._source, X=rows, info=replace(self._source.info, n_stored=rows.nnz))
        self._prepared = prepare(self._source, self._settings, False)
        self._plan = MemoryPlan((), kept=0, kept_wanted=0, keeps_rows=True, budget=1 << 40)

    def run(self, size: int, listen: Callable[[Event], None] = silent, timeout_s: float = 60.0) -> list[FitRankResult]:
        def work(comm: Communicator) -> FitRankResult:
            self._cuda.runtime.setDevice(comm.rank)
            task = RankTask(FitJob(self._source, self._settings), self._prepared, self._plan, 1)
            result = run_rank(comm, task, RankContext(listen if comm.rank == 0 else silent))
            assert isinstance(result, FitRankResult)
            return result

        return run_threads(size, work, timeout_s)

    def scores(self, results: list[FitRankResult]) -> HostArray:
        return Fit(self._source, self._settings, self._prepared).scores(results)


@pytest.mark.parametrize("name", SOLVERS)
def test_ranks_on_gpus_of_their_own_make_the_model_of_one(gpus: Fake, name: str) -> None:
    fit = Toy(name, gpus, epochs=2)
    said: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, StageFinished) and event.stage == "collectives":
            said.append(event.detail)

    one = fit.scores(fit.run(1))
    for size in (2, 3):
        np.testing.assert_allclose(fit.scores(fit.run(size, listen)), one, rtol=0, atol=1e-6 * np.abs(one).max())
    assert said == ["collectives run over NCCL 23203"] * 2
    assert [link.state for link in gpus.nccl.links] == ["destroyed"] * 5


def _third_epoch(toy: Callable[[int], Toy], size: int) -> tuple[Counter[str], Counter[str]]:
    """Count why `size` ranks waited in the third epoch, of five batches, and what they launched.

    As the difference of two whole fits: a rank may be ahead of one that tells of an epoch's end.
    """
    counts = []
    for epochs in (2, 3):
        with waits_counted() as waits, launches_counted() as launches:
            toy(epochs).run(size)
        counts.append((Counter(waits), Counter(launches)))  # without NCCL's own
    (waited, launched), (then_waited, then_launched) = counts
    return then_waited - waited, then_launched - launched


@pytest.mark.one_in(3)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("name", ["window", "all rows", "nystrom_sgd"])
def test_steps_wait_for_the_loss_alone_and_take_few_launches(gpus: Gpus, name: str, size: int, sparse: bool) -> None:
    waits, launches = _third_epoch(
        lambda epochs: Toy(name, gpus, epochs, loss=SquaredHinge(), alpha=0.0, sparse=sparse), size
    )
    assert waits.pop("get", 0) <= size  # the end of a fit may compare the model of one more epoch
    assert set(waits) == {"float"}
    assert waits.total() <= 2 * size
    at_the_end = 1  # of the epoch
    assert launches.total() <= size * (5 * 40 + at_the_end), launches


@pytest.mark.one_in(2)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("size", [1, 2])
def test_a_pass_of_falkon_waits_for_the_numbers_of_its_iteration_alone(gpus: Gpus, size: int, sparse: bool) -> None:
    waits, launches = _third_epoch(lambda epochs: Toy("falkon", gpus, epochs, loss=Squared(), sparse=sparse), size)
    assert waits.pop("get", 0) <= size  # the end of a fit may compare the model of one more epoch
    assert set(waits) == {"float", "bool"}
    assert waits.total() <= 9 * size  # of five batches: none for a batch
    solves, parts = 420, 12 // size  # of a batch, whose sums are added in an order that no number of ranks changes
    assert launches.total() <= size * (solves + 5 * (25 + (17 if sparse else 9) * parts)), launches


def test_a_rank_that_is_killed_in_a_step_ends_the_others(gpus: Gpus) -> None:
    begun = time.monotonic()

    def listen(event: Event) -> None:
        if isinstance(event, EpochFinished) and event.epoch == 2:
            gpus.nccl.dies_in = "allGather"
            threading.Timer(6.0, gpus.nccl.buried.set).start()  # nobody is told before

    with pytest.raises(Killed):
        Toy("window", gpus, epochs=50).run(3, listen, timeout_s=2.0)
    assert time.monotonic() - begun < 60
    assert {link.state for link in gpus.nccl.links} == {"aborted"}
