"""Groups of ranks whose arrays are those of a GPU, or of its stand-in: the model of one rank."""

from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest

from daskkern.backend.communicator import Communicator
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.cluster.gang.rank_context import RankContext
from daskkern.events import EpochFinished, Event, silent
from daskkern.solvers import EigenPro
from daskkern.training.planning.memory_plan import MemoryPlan
from daskkern.training.planning.rank_plans import RankPlans
from daskkern.training.run.job import FitJob
from daskkern.training.run.rank import FitRankResult, run_rank
from daskkern.training.run.rank_task import RankTask
from daskkern.training.setup.prepare import prepare
from tests.support.fits import Fit, toy_settings, toy_source
from tests.support.threads import run_threads


@pytest.mark.long
@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("basis", "window"), [(Landmarks(40), 2), (AllRows(), "auto")], ids=["rows kept on the host", "all rows"]
)
def test_groups_of_a_gpu_make_the_model_of_one(xp: ModuleType, basis: BasisSpec, window: int | str) -> None:
    del xp
    settings = replace(toy_settings(basis, EigenPro(window=window)), device="gpu", max_epochs=2)
    source, seen = toy_source(weighted=True), list[Event]()
    prepared = prepare(source, settings, False)
    memory = MemoryPlan((), kept=0, kept_wanted=0, keeps_rows=True, budget=1 << 40, rows_on_host=window == 2)

    def run(ranks: int, groups: int) -> list[FitRankResult]:
        def work(comm: Communicator) -> FitRankResult:
            task = RankTask(FitJob(source, settings), prepared, memory, 1, ranks=RankPlans(memory, groups=groups))
            result = run_rank(comm, task, RankContext(seen.append if comm.rank == 0 else silent))
            assert isinstance(result, FitRankResult)
            return result

        return run_threads(ranks, work)

    grids = (1, 1), (4, 2), (2, 2)  # in the last one, the ranks of a group are one
    scores = [Fit(source, settings, prepared).scores(run(ranks, groups)) for ranks, groups in grids]
    losses = np.array([event.loss for event in seen if isinstance(event, EpochFinished)]).reshape(3, -1)
    for others in (1, 2):
        np.testing.assert_allclose(scores[others], scores[0], rtol=0, atol=1e-7 * np.abs(scores[0]).max())
        np.testing.assert_allclose(losses[others], losses[0], rtol=1e-7)
