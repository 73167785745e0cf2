"""Grid search of the length scale and penalty of a system, in two passes over the rows."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.concurrency import all_cores
from daskkern.backend.tiles import slices
from daskkern.cluster.connect.clients import ClusterLike, client_of
from daskkern.data.rows.rows import Rows, row_fields
from daskkern.data.schema.schema import Scaling
from daskkern.display import html_table
from daskkern.errors import SpecError
from daskkern.kernels import AutoKernel, Gaussian
from daskkern.kernels.formula import PAIR
from daskkern.kernels.functions.radial import RadialKernel
from daskkern.kernels.functions.scaled_distance import ScaledDistanceKernel
from daskkern.landmarks import parse_selector
from daskkern.systems.grid import Errors, Grid, with_length_scales
from daskkern.systems.grid_sums import training_sums
from daskkern.systems.named import System
from daskkern.systems.table import SYSTEMS
from daskkern.systems.table import system as named
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sources import StoreSource
from daskkern.training.feeding.targets import Targets, learn_targets
from daskkern.training.feeding.validation import check_comparable, held_out
from daskkern.training.run.early_stopping import EarlyStopping
from daskkern.training.setup.prepare import validation_rows
from daskkern.training.setup.prepared import training_rows
from daskkern.training.setup.scaling import learn_scaling, with_scaling
from daskkern.training.setup.shared import some_rows

if TYPE_CHECKING:
    from daskkern.estimators import KernelClassifier, KernelRegressor

_FACTORS = tuple(2.0 ** (k / 2) for k in range(-4, 5))
_ALPHAS = tuple(10.0**k for k in range(-9, -1))
_BLOCK = 2048


@dataclass(frozen=True)
class SweepPoint:
    """A length scale, a penalty, and the error: a share of wrong labels, or an RMSE in units of the targets."""

    length_scale: float
    alpha: float
    error: float


@dataclass(frozen=True)
class Sweep:
    """The result of :func:`sweep`, best first.

    Attributes
    ----------
    system : System
    kernel : ScaledDistanceKernel
        With the best length scale.
    task : str
    points : tuple of SweepPoint
        By error; of equal errors the larger penalty first.
    n_landmarks : int
        Distinct landmarks among the requested ones.
    seconds : float
    landmarks, seed : int
        As given to :func:`sweep`.
    scale : str, Scaling or None
        How the features were scaled, as of the estimators.
    """

    system: System
    kernel: ScaledDistanceKernel
    task: str
    points: tuple[SweepPoint, ...]
    n_landmarks: int
    seconds: float
    landmarks: int
    seed: int
    scale: str | Scaling | None = None

    def __repr__(self) -> str:
        best = f"length scale {self.best.length_scale:.4g}, alpha {self.best.alpha:.3g}, error {self.best.error:.4g}"
        return f"<Sweep of {len(self.points)} models of {self.n_landmarks} landmarks: best {best}>"

    def _repr_html_(self) -> str:
        measure = "error" if self.task == "classification" else "RMSE"
        rows = [(f"{each.length_scale:.4g}", f"{each.alpha:.3g}", f"{each.error:.4g}") for each in self.points[:12]]
        note = f"The best of {len(self.points)} models of {self.n_landmarks} landmarks, in {self.seconds:.1f} s."
        return html_table(f"Sweep of {self.kernel.name}", ("length scale", "alpha", measure), rows, note)

    @property
    def best(self) -> SweepPoint:
        """The point of the least error."""
        return self.points[0]

    @property
    def estimator(self) -> "KernelClassifier | KernelRegressor":
        """The best model of the grid, to be fitted: the same landmarks and the same equations, solved in float64.

        A system's own iteration may not reach it: at a small penalty it stops short of the minimum, or float32 cannot
        resolve it. ``system.for_task(task).set_params(kernel=sweep.kernel, alpha=sweep.best.alpha)`` is that.
        """
        made = self.system.least_squares(self.task, self.landmarks, self.seed)
        made.set_params(kernel=self.kernel, alpha=self.best.alpha, scale=self.scale)
        return made


def sweep(
    store: str,
    system: str | System = "falkon",
    *,
    kernel: ScaledDistanceKernel | None = None,
    length_scales: Sequence[float] | None = None,
    alphas: Sequence[float] | None = None,
    landmarks: int = 1000,
    test: str | None = None,
    fraction: float = 0.1,
    seed: int = 0,
    client: ClusterLike = None,
) -> Sweep:
    """Search the length scale and the penalty of a least-squares system.

    Every model of the grid is the exact minimiser over the same landmarks, in float64; so is its
    :attr:`Sweep.estimator` when it is fitted. The rows are read once for training and once for validation, and each
    distance is computed once, whatever the size of the grid.

    Parameters
    ----------
    store : str
        Path or URL of the training rows.
    system : str or System
        One with the squared loss and the columns of a kernel, such as "falkon", "krls" or "eigenpro4".
    kernel : ScaledDistanceKernel, optional
        Whose length scale is searched; Gaussian by default.
    length_scales : sequence of float, optional
        By default nine around the median distance of rows, from a quarter to four times.
    alphas : sequence of float, optional
        By default 1e-9 to 1e-2.
    landmarks : int
        Landmarks of the models of the grid; the memory is that of their square, in float64, for each length scale.
    test : str, optional
        Rows to measure errors on; without it, a share of the training rows, which are then not trained on.
    fraction : float
        That share.
    seed : int
        Seed of the landmarks and of that share.
    client
        A cluster, whose workers share the rows; this process by default.

    Raises
    ------
    SpecError
        For a system that is not least squares in kernel columns, a kernel without a scalar length scale, or an empty
        or not positive grid.
    """
    begun = time.perf_counter()
    chosen = named(system) if isinstance(system, str) else system
    source = StoreSource.at(store)
    _check(chosen, source)
    wanted: Any = (Gaussian("median") if kernel is None else kernel).with_categories(source.info.categories)
    scaled = _checked_kernel(wanted)
    penalties = _checked("alphas", _ALPHAS if alphas is None else alphas, least=0.0)
    landmarks = min(landmarks, source.info.n_rows)
    exact = chosen.least_squares(str(source.info.task), landmarks, seed)
    # Length scales that are given are in the units of the rows as they are.
    settings = replace(
        exact.fit_settings(),
        early_stopping=EarlyStopping(fraction),
        calibrate=False,
        kernel=scaled,
        scale="always" if length_scales is None else None,
    )
    source, plain = with_scaling(source, learn_scaling(source, settings)), source
    rows = source.open(settings.dtype)
    held = None if test is not None else validation_rows(rows.n_rows, settings)
    rows = training_rows(rows, held)
    watched = _watched(source, test, held, settings.dtype, plain)
    targets = learn_targets(rows, settings)
    scales = _around_median(scaled, some_rows(rows, settings)) if length_scales is None else length_scales
    scales = _checked("length_scales", scales, least=1e-12)
    kernels = with_length_scales(scaled, scales)
    Z = parse_selector("uniform").select(rows, kernels[0], landmarks, seed).points
    grid = Grid(kernels, Z)
    with client_of(client) as connected, all_cores():
        sums = training_sums(grid, source, rows, held, settings.dtype, targets, connected)
        coef = [grid.solutions(k, each, rows.n_rows, penalties) for k, each in enumerate(sums)]
        errors = _errors(grid, coef, watched, targets, len(penalties))
    points = _ranked(scales, penalties, errors)
    best = with_length_scales(scaled, [points[0].length_scale])[0]
    seconds = time.perf_counter() - begun
    task = str(source.info.task)
    return Sweep(chosen, best, task, points, len(Z), seconds, landmarks, seed, settings.scale)


def _around_median(kernel: ScaledDistanceKernel, sample: HostArray) -> list[float]:
    """Return length scales around the median distance of sampled rows."""
    middle: Any = replace(kernel, length_scale="median").resolve(sample).length_scale
    return [float(middle) * factor for factor in _FACTORS]


def _ranked(scales: Sequence[float], alphas: Sequence[float], errors: FloatArray) -> tuple[SweepPoint, ...]:
    """Return the points of the grid, the best first."""
    cells = [(k, a) for k in range(len(scales)) for a in range(len(alphas))]
    points = [SweepPoint(scales[k], alphas[a], float(errors[k, a])) for k, a in cells]
    return tuple(sorted(points, key=lambda point: (point.error, -point.alpha)))


def _check(chosen: System, source: StoreSource) -> None:
    if source.info.task is None:
        raise SpecError(f"the store {source.location} has no targets, so nothing can be searched; ingest with --target")
    if chosen.loss_for(str(source.info.task)) != "squared" or chosen.basis.is_explicit:
        able = [row.name for row in SYSTEMS.values() if row.classification == "squared" == row.regression]
        able = [name for name in able if not SYSTEMS[name].basis.is_explicit]
        raise SpecError(
            f"got system {chosen.name} for a sweep, but it is not least squares in kernel columns; choose one of "
            f"{', '.join(able)}"
        )


def _checked_kernel(kernel: ScaledDistanceKernel) -> ScaledDistanceKernel:
    if isinstance(kernel, AutoKernel):
        raise SpecError("a sweep got the kernel 'auto', which chooses its length scale; name one, such as 'gaussian'")
    single = isinstance(kernel, ScaledDistanceKernel) and not isinstance(kernel.length_scale, tuple)
    if isinstance(kernel, ScaledDistanceKernel):
        kernel.shared(PAIR)  # refuses where length scales share nothing
    if not single or (isinstance(kernel, RadialKernel) and kernel.metric is not None):
        raise SpecError(
            f"got {kernel!r:.80} for a sweep; give a kernel of distances with one length scale for all features"
        )
    return kernel


def _checked(name: str, values: Sequence[float], least: float) -> tuple[float, ...]:
    numbers = tuple(float(value) for value in values)
    if not numbers or not all(np.isfinite(value) and value >= least for value in numbers):
        raise SpecError(f"got {name}={list(values)}; give one or more numbers of at least {least:g}")
    return numbers


def _watched(source: RowSource, test: str | None, held: IntArray | None, dtype: str, plain: RowSource) -> Rows:
    """Return the rows on which errors are measured."""
    if test is not None:
        other = StoreSource.at(test)
        check_comparable(other, plain)
        return with_scaling(other, source.info.scaling).open(dtype)
    assert held is not None
    return held_out(source, held, dtype)


def _errors(grid: Grid, coef: Sequence[FloatArray], rows: Rows, targets: Targets, n_alphas: int) -> FloatArray:
    """Return the errors of all models on `rows`, (kernels, alphas)."""
    errors = Errors(targets, n_alphas, len(grid.kernels))
    for part in slices(rows.n_rows, _BLOCK):
        block = rows.read(part.start, part.stop, row_fields(rows))
        assert block.X is not None
        assert block.y is not None
        weight = targets.weight(block)
        for k, scores in enumerate(grid.scores(block.X, coef)):
            errors.add(k, scores, block.y, weight)
    return errors.result()
