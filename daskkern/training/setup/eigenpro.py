"""Set-up of EigenPro: the spectrum of a subsample, the batch size and the window."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.random import generator
from daskkern.basis import KernelBasis
from daskkern.data.rows.rows import Rows, take
from daskkern.data.rows.samples import features_at
from daskkern.landmarks import LandmarkSet
from daskkern.preconditioners import eigenpro_state
from daskkern.training.feeding.sampling import Sampling
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Clock, Prepared
from daskkern.training.setup.row_sizes import RowSizes, clipped_weights
from daskkern.training.setup.shared import (
    TARGETS,
    batch_plan,
    flat,
    held_out_rows,
    is_all,
    placement_of,
    present,
    spectrum_settings,
)
from daskkern.training.setup.window_rows import window_eigenvalue_ratio

_SUB = 52


def prepare_eigenpro(
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    chosen: LandmarkSet,
    sampling: Sampling | None,
    validation: IntArray | None,
    clock: Clock,
) -> Prepared:
    p = chosen.points.shape[0] if not is_all(settings) else rows.n_rows
    wanted = settings.solver.spectrum(p, rows.n_rows, explicit=False)
    s = wanted.rows
    held = s if is_all(settings) else p  # with all rows as centres only K_BS is held, the rest passes by in tiles
    sub = _subsample(rows, settings, targets, chosen, sampling, s)
    S = sub.points
    block_H, weight_H = held_out_rows(rows, settings, targets, sampling, sub.rows)
    sizes, ordinary = RowSizes.measured(settings, present(block_H), weight_H)
    if sampling is None and chosen.indices is not None:
        sizes = sizes.covering(S, sub.unclipped)
    state = eigenpro_state(
        settings.kernel,
        S,
        sub.weight,
        present(block_H)[ordinary],
        None if weight_H is None else weight_H[ordinary],
        spectrum_settings(wanted, settings.device),
        settings.batch_limit(held),
        settings.seed,
        sub.drawn,
    )
    alike = window_eigenvalue_ratio(
        rows, settings, targets, sampling, sizes, partial(state.gram, settings.kernel, S), held
    )
    state = replace(state, top=state.top * alike)
    clock.stage(
        "spectrum",
        f"s = {s}, q = {state.damping.size}, critical batch {state.critical_batch:.0f}, beta {state.beta:.3g}",
    )
    plan = batch_plan(rows, settings, state.critical_batch, held)
    placement = placement_of(settings.kernel, chosen.points if chosen.points.size else S, settings, clock)
    basis = KernelBasis(settings.kernel, p, sub.columns, is_all(settings), placement, settings.rounding)
    own = chosen.points if chosen.indices is None else None
    window = 1 if is_all(settings) else settings.solver.projection_window(p, rows.n_features, plan.batch_size)
    stages = tuple(clock.stages)
    return Prepared(
        basis,
        chosen.indices,
        own,
        S,
        state,
        targets,
        plan,
        window,
        validation,
        stages,
        sampling,
        chosen.weights,
        sizes=sizes,
    )


@dataclass(frozen=True, eq=False)
class _Subsample:
    """The subsample S of the spectrum.

    Attributes
    ----------
    columns, rows : (s,) arrays
        Numbers of its columns, and of its rows; no rows where the landmarks are not rows.
    points : (s, d) array
    weight, unclipped, drawn : (s,) arrays or None
        Weights in the matrix whose eigenpairs are computed; those of the rows before clipping; and in means over the
        rows as batches draw them.
    """

    columns: IntArray
    rows: IntArray
    points: HostArray
    weight: FloatArray | None
    unclipped: FloatArray | None
    drawn: FloatArray | None


def _subsample(
    rows: Rows, settings: FitSettings, targets: Targets, chosen: LandmarkSet, sampling: Sampling | None, s: int
) -> _Subsample:
    columns, points = _points(rows, settings, chosen, s)
    if chosen.indices is None:
        in_S, unclipped, drawn = np.zeros(0, np.int64), None, None
    else:
        in_S = chosen.indices[columns]
        block = take(rows, in_S, TARGETS)
        unclipped = flat(targets.weight(block))
        drawn = None if sampling is None else _or_ones(flat(sampling.weight(block)), s)
    weight = clipped_weights(unclipped)
    if chosen.weights is not None:  # as rows, the landmarks count as before; as a sample of all rows, by their weights
        counts = _or_ones(weight, s)
        drawn = counts if drawn is None else drawn
        weight = chosen.weights[columns] * counts
    return _Subsample(columns, in_S, points, weight, unclipped, drawn)


def _or_ones(weight: FloatArray | None, size: int) -> FloatArray:
    return np.ones(size) if weight is None else weight


def _points(rows: Rows, settings: FitSettings, chosen: LandmarkSet, s: int) -> tuple[IntArray, HostArray]:
    """Return the column numbers of S and its points. Landmarks come in random order: S is their prefix."""
    if not is_all(settings):
        return np.arange(s), chosen.points[:s]
    columns = np.sort(generator(settings.seed, _SUB).choice(rows.n_rows, size=s, replace=False)).astype(np.int64)
    return columns, features_at(rows, columns)
