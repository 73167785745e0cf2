"""A plan does not refuse what the fit may run: batches that the set-up chooses are smaller than the largest ones."""

from dataclasses import replace

import numpy as np

from daskkern.basis import Landmarks
from daskkern.cli.plan import _sure_batch
from daskkern.data.schema import Scaling
from daskkern.kernels import Gaussian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro
from daskkern.training.memory import MemoryPlan
from daskkern.training.outlook import check_before, outlook
from daskkern.training.settings import FitSettings
from daskkern.training.sources import ArraySource, SourceInfo

_X = np.zeros((20_000, 30), np.float32)
_SOURCE = ArraySource(_X, _X[:, 0], None, SourceInfo(*_X.shape, "regression", None, Scaling(), None, 1, True))
_SETTINGS = FitSettings(Gaussian(2.0), Squared(), Landmarks(5000), EigenPro(), device="cpu")


def _plan(budget: int, **changes: object) -> MemoryPlan:
    return outlook(_SOURCE, replace(_SETTINGS, **changes), 1, 2, budget)


def test_a_plan_over_its_budget_names_the_batch_that_fits() -> None:
    most = _plan(8 << 30).total
    assert _sure_batch(_plan(8 << 30)) == 0
    batch = _sure_batch(_plan(most - 50_000_000))
    assert 0 < batch < 20_000
    check_before(_SOURCE, _SETTINGS, False, 1, 2, most - 50_000_000)
    _plan(most - 50_000_000, batch_size=batch).check()
    assert _sure_batch(_plan(most - 50_000_000, batch_size=20_000)) == 0
    assert _sure_batch(_plan(most // 10)) == 0
