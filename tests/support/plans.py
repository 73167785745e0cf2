"""Sizes, rows and settings of fits that are planned and not run."""

import numpy as np

from daskkern.basis import BasisSpec
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Laplacian
from daskkern.losses import SquaredHinge
from daskkern.solvers import Solver
from daskkern.solvers.costs.columns import ColumnCosts
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.memory_plan import FitSizes
from daskkern.training.run.settings import FitSettings

CENTRES = FitSizes(
    n=1_000_000,
    d=100,
    c=10,
    p=10_000,
    s=3000,
    q=300,
    m=2000,
    window=4,
    ranks=2,
    threads=2,
    itemsize=4,
    all_rows=False,
    exact=True,
    window_rows=65_536,
    costs=ColumnCosts(),
)


def planned_source(n: int = 3000, d: int = 6) -> ArraySource:
    rng = np.random.default_rng(0)
    return ArraySource(rng.standard_normal((n, d), np.float32), rng.integers(0, 3, n), None, _info(n, d))


def unread_source(n: int, d: int) -> ArraySource:
    """Return a source of many rows for plans that read none of them: memory that nobody touches takes none."""
    return ArraySource(np.zeros((n, d), np.float32), np.zeros(n, np.int64), None, _info(n, d))


def _info(n: int, d: int) -> SourceInfo:
    return SourceInfo(n, d, "classification", (0, 1, 2), Scaling(), None, 1, True)


def planned_settings(basis: BasisSpec, solver: Solver[object], **changes: object) -> FitSettings:
    return FitSettings(Laplacian(3.0), SquaredHinge(), basis, solver, device="cpu", **changes)
