"""Before the first step: landmarks, the spectrum of a subsample, batch and window. Runs once, where Dask runs."""

import time
from dataclasses import dataclass, replace

import numpy as np
from distributed import default_client

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis import AllRows, KernelBasis
from daskkern.data.plan import DEFAULT_WINDOW_BYTES, BatchPlan
from daskkern.data.rows import Fields, RowBlock, Rows, take
from daskkern.data.subset import RowsWithout, original_numbers
from daskkern.data.sweep import SweepPlan
from daskkern.errors import DataError, SpecError
from daskkern.events import StageFinished
from daskkern.kernels import Kernel
from daskkern.kernels.rows import as_rows
from daskkern.landmarks import LandmarkSet, first_occurrences, parse_selector
from daskkern.preconditioners import EigenProState, NystromState, SpectrumSettings, eigenpro_state, nystrom_state
from daskkern.preconditioners.eigenpro import check_range
from daskkern.solvers import PCG, EigenPro, NystromSGD
from daskkern.training.sampling import Sampling, learn_sampling
from daskkern.training.settings import FitSettings
from daskkern.training.sources import Source
from daskkern.training.targets import Targets, learn_targets

_RESOLVE_ROWS = 2000
_GRAM_ROWS = 4096
_SUBSAMPLE = 2000
_HELD_OUT = 2000
_VALIDATION_ROWS = 20_000
_HELD, _SUB, _VALID, _RESOLVE = 51, 52, 53, 54
_PASS_BATCH = 4096
_FLOPS_PER_PROJECTION = 80.0
_NOT_X = Fields.y | Fields.weight


@dataclass(frozen=True)
class Prepared:
    """What all ranks need to know before they start. Arrays are NumPy's; small, but for the spectrum.

    Attributes
    ----------
    basis : KernelBasis
    indices : (p,) int64 or None
        Row numbers of the columns among the training rows; None with the user's own points.
    points : (p, d) or None
        The user's own points.
    subsample : (s, d) array
        Rows of S, in the order of ``basis.head``.
    state : EigenProState, NystromState or None
        None where a solver needs no spectrum.
    targets : Targets
    plan : BatchPlan or SweepPlan
        The second for solvers that deal rows.
    window : int
        Batches between projections.
    validation : (k,) int64 or None
        Row numbers of the source that are held out.
    stages : tuple of StageFinished
    sampling : Sampling or None
        How rows are drawn for batches; None for each once an epoch.
    """

    basis: KernelBasis
    indices: IntArray | None
    points: HostArray | None
    subsample: HostArray
    state: EigenProState | NystromState | None
    targets: Targets
    plan: BatchPlan | SweepPlan
    window: int
    validation: IntArray | None
    stages: tuple[StageFinished, ...]
    sampling: Sampling | None = None

    def row_numbers(self) -> IntArray | None:
        """Return the numbers in the source of the rows that the columns are, or None."""
        if self.indices is None or self.validation is None:
            return self.indices
        return original_numbers(self.indices, self.validation)


def prepare(source: Source, settings: FitSettings, held_out: bool) -> Prepared:
    """Compute what the ranks need. With `held_out`, rows for validation are set aside first.

    Dask arrays inside are computed by the active client, or by Dask's threads in this process.
    """
    clock = _Clock()
    rows: Rows = source.open(settings.dtype)
    _check_size(rows)
    validation = _validation_rows(rows.n_rows, settings) if held_out else None
    rows = training_rows(rows, validation)
    targets = learn_targets(rows, settings)
    settings = replace(settings, kernel=settings.kernel.resolve(_some_rows(rows, settings)))
    clock.stage("targets", f"{rows.n_rows} rows, {targets.n_outputs} outputs")
    chosen = _columns(rows, settings)
    clock.stage("landmarks", f"all {rows.n_rows} rows" if _all(settings) else f"{chosen.points.shape[0]} points")
    if settings.solver.deals != "columns" or isinstance(settings.solver, PCG):
        return _prepare_rows(rows, settings, targets, chosen, validation, clock)
    sampling = learn_sampling(rows, settings, targets)
    if isinstance(settings.solver, NystromSGD):
        return _prepare_nystrom(source, rows, settings, targets, chosen, sampling, validation, clock)
    return _prepare_eigenpro(rows, settings, targets, chosen, sampling, validation, clock)


def training_rows(rows: Rows, validation: IntArray | None) -> Rows:
    """Return `rows` without those held out."""
    return rows if validation is None else RowsWithout(rows, validation)


class _Clock:
    """Collects how long each stage took."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self.stages: list[StageFinished] = []

    def stage(self, name: str, detail: str) -> None:
        now = time.perf_counter()
        self.stages.append(StageFinished(name, now - self._last, detail))
        self._last = now


def _check_size(rows: Rows) -> None:
    if rows.n_rows < 2 or rows.n_features < 1:
        raise DataError(
            f"a fit needs at least 2 rows and 1 feature, but the data has n_samples={rows.n_rows} rows and "
            f"{rows.n_features} features"
        )


def most_validation_rows(n_rows: int, settings: FitSettings) -> int:
    """Return how many rows are held out for validation."""
    assert settings.early_stopping is not None
    return min(round(settings.early_stopping.fraction * n_rows), _VALIDATION_ROWS)


def _validation_rows(n_rows: int, settings: FitSettings) -> IntArray:
    if settings.early_stopping is None:
        raise SpecError("rows were to be held out for validation, but early stopping is off")
    k = most_validation_rows(n_rows, settings)
    if k < 1 or n_rows - k < 2:
        raise DataError(f"{n_rows} rows are too few to hold out a share of {settings.early_stopping.fraction}")
    chosen = generator(settings.seed, _VALID).choice(n_rows, size=k, replace=False)
    return np.sort(chosen).astype(np.int64)


def _some_rows(rows: Rows, settings: FitSettings) -> HostArray:
    k = min(_RESOLVE_ROWS, rows.n_rows)
    positions = generator(settings.seed, _RESOLVE).choice(rows.n_rows, size=k, replace=False)
    return _features(rows, np.sort(positions))


def _features(rows: Rows, positions: IntArray) -> HostArray:
    block = take(rows, positions, Fields.X)
    assert block.X is not None
    return block.X


def _all(settings: FitSettings) -> bool:
    return isinstance(settings.basis, AllRows)


def _columns(rows: Rows, settings: FitSettings) -> LandmarkSet:
    """Return the landmarks; for all rows, only their numbers (the points stay where they are)."""
    basis = settings.basis
    if isinstance(basis, AllRows):
        return LandmarkSet(np.empty((0, rows.n_features), settings.dtype), np.arange(rows.n_rows), None)
    if basis.points is not None:
        points = as_rows(basis.points, np.dtype(settings.dtype))
        if points.shape[1] != rows.n_features:
            raise DataError(f"the landmark points have {points.shape[1]} features, the rows {rows.n_features}")
        return LandmarkSet(points[first_occurrences(points)], None, None)
    return parse_selector(basis.selector).select(rows, settings.kernel, basis.n, settings.seed)


def _prepare_eigenpro(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    chosen: LandmarkSet,
    sampling: Sampling | None,
    validation: IntArray | None,
    clock: _Clock,
) -> Prepared:
    solver = settings.solver if isinstance(settings.solver, EigenPro) else EigenPro()
    p = chosen.points.shape[0] if not _all(settings) else rows.n_rows
    s = default_subsample(solver, p)
    held = s if _all(settings) else p  # with all rows as centres only K_BS is held, the rest passes by in tiles
    head, S = _subsample(rows, settings, chosen, s)
    in_S = np.zeros(0, np.int64) if chosen.indices is None else chosen.indices[head]
    weight_S = None if chosen.indices is None else _flat(targets.weight(take(rows, in_S, _NOT_X)))
    block_H, weight_H = _held_out_rows(rows, settings, targets, sampling, in_S)
    drawn_S = None
    if sampling is not None and chosen.indices is not None:
        drawn_S = _flat(sampling.weight(take(rows, in_S, _NOT_X)))
        drawn_S = np.ones(s) if drawn_S is None else drawn_S
    state = eigenpro_state(
        settings.kernel,
        S,
        weight_S,
        _present(block_H),
        weight_H,
        SpectrumSettings(None if solver.n_directions == "auto" else int(solver.n_directions), solver.rho, solver.tau),
        settings.batch_limit(held),
        settings.seed,
        drawn_S,
    )
    clock.stage(
        "spectrum",
        f"s = {s}, q = {state.damping.size}, critical batch {state.critical_batch:.0f}, beta {state.beta:.3g}",
    )
    plan = _plan(rows, settings, state.critical_batch, held)
    points = settings.kernel.shift_for(chosen.points if chosen.points.size else S)
    basis = KernelBasis(settings.kernel, p, head, _all(settings), points, settings.rounding)
    own = chosen.points if chosen.indices is None else None
    window = 1 if _all(settings) else projection_window(solver, p, rows.n_features, plan.batch_size)
    stages = tuple(clock.stages)
    return Prepared(basis, chosen.indices, own, S, state, targets, plan, window, validation, stages, sampling)


def _subsample(rows: Rows, settings: FitSettings, chosen: LandmarkSet, s: int) -> tuple[IntArray, HostArray]:
    """Return the column numbers of S and its points. Landmarks come in random order: S is their prefix."""
    if not _all(settings):
        return np.arange(s), chosen.points[:s]
    head = np.sort(generator(settings.seed, _SUB).choice(rows.n_rows, size=s, replace=False)).astype(np.int64)
    return head, _features(rows, head)


def _held_out_rows(
    rows: Rows, settings: FitSettings, targets: Targets, sampling: Sampling | None, in_S: IntArray
) -> tuple[RowBlock, HostArray | None]:
    """Return random rows as batches have them, but for those `in_S`, and what they count there."""
    sampled = generator(settings.seed, _HELD).permutation(rows.n_rows)[: 4 * _HELD_OUT + in_S.size]
    if sampling is None:
        block = take(rows, np.sort(sampled[~np.isin(sampled, in_S)][:_HELD_OUT]))
        return block, _flat(targets.weight(block))
    drawn = sampling.rows(rows, 0).originals(np.sort(sampled))
    outside = drawn[~np.isin(drawn, in_S)]
    kept = np.sort(generator(settings.seed, _HELD, 1).permutation(outside.size)[:_HELD_OUT])
    block = take(rows, outside[kept])
    return block, _flat(sampling.weight(block))


def _present(block: RowBlock) -> HostArray:
    assert block.X is not None
    return block.X


def _flat(weight: HostArray | None) -> HostArray | None:
    return None if weight is None else weight[:, 0].astype(np.float64)


def _plan(rows: Rows, settings: FitSettings, critical: float, held: int, width: int = 0) -> BatchPlan:
    """Return the batches. Windows are sized for rows of `width` numbers, if that is more than the features."""
    size = settings.batch_size
    batch = int(min(max(np.ceil(critical / 2), 1), settings.batch_limit(held))) if isinstance(size, str) else int(size)
    window_bytes = DEFAULT_WINDOW_BYTES * rows.n_features // max(width, rows.n_features)
    return BatchPlan.for_rows(rows, min(batch, rows.n_rows), settings.seed, window_bytes)


def default_subsample(solver: EigenPro, p: int) -> int:
    """Return the rows s of the preconditioner's subsample for p columns."""
    return min(_SUBSAMPLE, max(1, 4 * p // 5)) if solver.subsample == "auto" else min(int(solver.subsample), p)


def projection_window(solver: EigenPro, p: int, d: int, batch_size: int) -> int:
    """Return T: a window of x rows costs x d p / 2 kernel flops, a projection about 80 p^2 at the same rate.

    A projection reads p^2 / 2 numbers twice, and moving a byte costs about 20 flops of a matrix product; the sum of
    both costs an epoch is least at x = p (80 / d)^(1/2). More than p temporary centres are never held.
    """
    if solver.window != "auto":
        return int(solver.window)
    rows = p * min(1.0, (_FLOPS_PER_PROJECTION / max(d, 1)) ** 0.5)
    return max(1, int(np.ceil(rows / batch_size)))


def _prepare_rows(
    rows: Rows, settings: FitSettings, targets: Targets, chosen: LandmarkSet, validation: IntArray | None, clock: _Clock
) -> Prepared:
    """Solvers that pass over the rows in order: what they need beside landmarks is made by the ranks."""
    p = rows.n_rows if _all(settings) else chosen.points.shape[0]
    Z = _some_rows(rows, settings) if _all(settings) else chosen.points
    check_range(settings.kernel, Z[:_SUBSAMPLE])
    plan: BatchPlan | SweepPlan = SweepPlan.for_rows(rows, settings.batch_size, p)
    if settings.solver.deals == "columns":
        plan = BatchPlan.for_rows(rows, pass_batch(settings, rows.n_rows), settings.seed)
    none = np.zeros(0, np.int64)
    basis = KernelBasis(settings.kernel, p, none, _all(settings), settings.kernel.shift_for(Z), settings.rounding)
    own = Z if chosen.indices is None else None
    return Prepared(basis, chosen.indices, own, Z[:0], None, targets, plan, 1, validation, tuple(clock.stages))


def pass_batch(settings: FitSettings, n_rows: int) -> int:
    """Return the rows of a batch where a pass has no steps within it."""
    return min(n_rows, _PASS_BATCH if isinstance(settings.batch_size, str) else int(settings.batch_size))


def _prepare_nystrom(
    source: Source,
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    chosen: LandmarkSet,
    sampling: Sampling | None,
    validation: IntArray | None,
    clock: _Clock,
) -> Prepared:
    assert isinstance(settings.solver, NystromSGD)
    Z, n = chosen.points, rows.n_rows
    block_H, weight_H = _held_out_rows(rows, settings, targets, sampling, np.zeros(0, np.int64))
    directions = settings.solver.n_directions
    blocks = -(-n // _GRAM_ROWS)
    shares = slices(n, -(-blocks // _gram_tasks()) * _GRAM_ROWS)
    state = nystrom_state(
        settings.kernel,
        Z,
        [_GramShare(source, settings.dtype, validation, settings.kernel, Z, targets, part) for part in shares],
        n,
        _present(block_H),
        weight_H,
        None if directions == "auto" else int(directions),
    )
    clock.stage("spectrum", f"rank {state.conditioner.size} of {Z.shape[0]}, critical batch {state.critical_batch:.0f}")
    plan = _plan(rows, settings, state.critical_batch, Z.shape[0], Z.shape[0])
    basis = KernelBasis(
        settings.kernel,
        Z.shape[0],
        np.zeros(0, np.int64),
        False,
        settings.kernel.shift_for(Z),
        settings.rounding,
    )
    own = Z if chosen.indices is None else None
    stages = tuple(clock.stages)
    return Prepared(basis, chosen.indices, own, Z[:0], state, targets, plan, 1, validation, stages, sampling)


def _gram_tasks() -> int:
    """Return how many Gram tasks: one for each worker of the active client, else one for each of two threads."""
    try:
        return max(1, len(default_client().scheduler_info(n_workers=-1)["workers"]))
    except ValueError:
        return 2


@dataclass(frozen=True, eq=False)
class _GramShare:
    """``sum w phi phi^T``, phi = T^T k(Z, x), over a share of the rows; one float64 (r, r) sum is held.

    A share is made of whole blocks of `_GRAM_ROWS` rows, and each block's product is rounded by itself: the sum does
    not depend on how many shares there are.
    """

    source: Source
    dtype: str
    validation: IntArray | None
    kernel: Kernel
    Z: HostArray
    targets: Targets
    part: slice

    def __call__(self, T: HostArray) -> HostArray:
        rows = training_rows(self.source.open(self.dtype), self.validation)
        points = self.kernel.points(self.Z, self.kernel.shift_for(self.Z))
        total = np.zeros((T.shape[1], T.shape[1]))
        for start in range(self.part.start, self.part.stop, _GRAM_ROWS):
            block = rows.read(start, min(start + _GRAM_ROWS, self.part.stop))
            phi = self.kernel.block(_present(block), points) @ T
            weight = self.targets.weight(block)
            total += phi.T @ (phi if weight is None else phi * weight)
        return total
