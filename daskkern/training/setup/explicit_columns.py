"""Set-up over explicit features: the columns, the statistics for step sizes, and their covariance."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.basis import ColumnRequest, KernelBasis
from daskkern.data.rows.csr import FeatureRows
from daskkern.data.rows.rows import Rows, take
from daskkern.data.rows.samples import features_at
from daskkern.kernels import Kernel
from daskkern.preconditioners import (
    CovarianceState,
    StepStatistics,
    column_statistics,
    covariance_state,
    gram_of,
)
from daskkern.training.feeding.sampling import Sampling
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.feature_blocks import blocks_of
from daskkern.training.setup.prepared import Clock, Prepared
from daskkern.training.setup.row_sizes import RowSizes, clipped_weights
from daskkern.training.setup.shared import (
    SUBSAMPLE,
    TARGETS,
    batch_plan,
    fewer_columns,
    flat,
    held_out_rows,
    is_all,
    placement_of,
    present,
    some_rows,
    spectrum_settings,
)
from daskkern.training.setup.window_rows import window_eigenvalue_ratio

_SAMPLED, _COVARIANCE = 55, 56
_EIGEN_BYTES = 6 * 8  # for each entry of the matrix


def prepare_columns(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    sampling: Sampling | None,
    validation: IntArray | None,
    clock: Clock,
) -> Prepared:
    """Return what methods without a preconditioner need, and EigenPro over explicit features."""
    drawn_plan = None
    n_steps = 0
    if settings.basis.drawn_per_step:
        drawn_plan = batch_plan(rows, settings, 2 * (settings.solver.auto_batch or 1), settings.basis.drawn_per_step)
        n_steps = drawn_plan.n_batches * settings.max_epochs
    kernel, points = column_functions(rows, settings, n_steps)
    everything = is_all(settings)
    p = rows.n_rows if everything else points.shape[0]
    clock.stage(
        "basis",
        f"all {p:,} rows"
        if everything
        else f"{p} {settings.basis.name}{fewer_columns(settings.basis, rows.n_rows, p)}",
    )
    solver = settings.solver
    state: StepStatistics | CovarianceState
    sizes: RowSizes | None = None
    if solver.preparation == "spectrum":
        state, sizes = prepare_covariance(rows, settings, targets, kernel, points, sampling)
        clock.stage(
            "spectrum",
            f"k = {state.damping.size}, critical batch {state.critical_batch:.0f}, beta {state.beta:.3g}",
        )
    else:
        known = everything or drawn_plan is not None or solver.learns_centres
        requested = settings.kernel if known else kernel
        gram = partial(_gram, requested, points, known, settings.device)
        state, sizes = _measured_steps(rows, settings, targets, sampling, gram, p)
        clock.stage(
            "sizes",
            f"largest square {state.beta:.3g}, largest eigenvalue {state.top:.3g}, "
            f"critical batch {state.critical_batch:.0f}",
        )
    plan = drawn_plan or batch_plan(rows, settings, 2 * (solver.auto_batch or state.critical_batch / 2), p)
    placement = placement_of(kernel, some_rows(rows, settings) if everything else points, settings, clock)
    basis = KernelBasis(kernel, p, np.zeros(0, np.int64), everything, placement, settings.rounding)
    indices = np.arange(p) if everything else None
    own = None if everything else points
    none = np.empty((0, rows.n_features), settings.dtype)
    stages = tuple(clock.stages)
    return Prepared(basis, indices, own, none, state, targets, plan, 1, validation, stages, sampling, sizes=sizes)


def column_functions(rows: Rows, settings: FitSettings, n_steps: int = 0) -> tuple[Kernel, HostArray]:
    """Return the function of the columns, and their points (p, ...); none where all rows are the columns."""
    found = settings.basis.columns(rows, request_of(settings, n_steps))
    return found.kernel, found.chosen.points


def request_of(settings: FitSettings, n_steps: int = 0) -> ColumnRequest:
    """Return what the columns of a fit are made from; of `n_steps` steps, where they grow with them."""
    return ColumnRequest(settings.kernel, settings.seed, settings.dtype, settings.device, n_steps)


def _measured_steps(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    sampling: Sampling | None,
    gram: Callable[[FeatureRows], HostArray],
    p: int,
) -> tuple[StepStatistics, RowSizes]:
    """Return the sizes of sampled rows and of the rows of windows in the coordinates of p columns, and large rows."""
    sample = np.sort(generator(settings.seed, _SAMPLED).permutation(rows.n_rows)[:SUBSAMPLE])
    X, weight = features_at(rows, sample), flat(targets.weight(take(rows, sample, TARGETS)))
    sizes, ordinary = RowSizes.measured(settings, X, weight)
    state = column_statistics(gram(X[ordinary]), None if weight is None else weight[ordinary])
    ratio = window_eigenvalue_ratio(rows, settings, targets, sampling, sizes, gram, p)
    return replace(state, top=state.top * ratio), sizes


def _gram(kernel: Kernel, points: HostArray, everything: bool, device: str, X: FeatureRows) -> HostArray:
    """Return the inner products (m, m) of rows X (m, d) in the columns' coordinates."""
    return kernel.block(X, X) if everything else gram_of(blocks_of(kernel, points, X, device))


def prepare_covariance(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    kernel: Kernel,
    points: HostArray,
    sampling: Sampling | None,
) -> tuple[CovarianceState, RowSizes]:
    """Return the preconditioner over explicit columns, and the sizes of rows.

    Raises SpecError for what only centres have.
    """
    settings.solver.check_explicit(settings.basis.name)
    wanted = settings.solver.spectrum(points.shape[0], rows.n_rows, explicit=True)
    chosen = generator(settings.seed, _COVARIANCE).permutation(rows.n_rows)[: wanted.rows]
    in_S = np.sort(chosen).astype(np.int64)
    block = take(rows, in_S, TARGETS)
    held_out, weight_H = held_out_rows(rows, settings, targets, sampling, in_S)
    drawn = None
    if sampling is not None:
        drawn = flat(sampling.weight(block))
        drawn = np.ones(in_S.size) if drawn is None else drawn
    weight_S = flat(targets.weight(block))
    sizes, ordinary = RowSizes.measured(settings, present(held_out), weight_H)
    if sampling is None:
        sizes = sizes.covering(features_at(rows, in_S), weight_S)
    state = covariance_state(
        points.shape[0],
        blocks_of(kernel, points, features_at(rows, in_S), settings.device),
        clipped_weights(weight_S),
        blocks_of(kernel, points, present(held_out)[ordinary], settings.device),
        None if weight_H is None else weight_H[ordinary],
        spectrum_settings(wanted, settings.device),
        settings.batch_limit(points.shape[0]),
        settings.dtype,
        settings.seed,
        drawn,
    )

    def gram(X: FeatureRows) -> HostArray:
        return state.gram(blocks_of(kernel, points, X, settings.device))

    alike = window_eigenvalue_ratio(rows, settings, targets, sampling, sizes, gram, points.shape[0])
    return replace(state, top=state.top * alike), sizes
