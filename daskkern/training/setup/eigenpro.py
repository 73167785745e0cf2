"""Set-up of EigenPro: the spectrum of a subsample, the batch size and the window."""

from dataclasses import replace
from functools import partial

import numpy as np

from daskkern.arrays import HostArray, IntArray
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
    head, S = _subsample(rows, settings, chosen, s)
    in_S = np.zeros(0, np.int64) if chosen.indices is None else chosen.indices[head]
    weight_S = None if chosen.indices is None else flat(targets.weight(take(rows, in_S, TARGETS)))
    whole_S = weight_S
    weight_S = clipped_weights(weight_S)
    block_H, weight_H = held_out_rows(rows, settings, targets, sampling, in_S)
    sizes, ordinary = RowSizes.measured(settings, present(block_H), weight_H)
    if sampling is None and chosen.indices is not None:
        sizes = sizes.covering(S, whole_S)
    drawn_S = None
    if sampling is not None and chosen.indices is not None:
        drawn_S = flat(sampling.weight(take(rows, in_S, TARGETS)))
        drawn_S = np.ones(s) if drawn_S is None else drawn_S
    if chosen.weights is not None:  # as rows, the landmarks count as before; as a sample of all rows, by their weights
        counts = np.ones(s) if weight_S is None else weight_S
        drawn_S = counts if drawn_S is None else drawn_S
        weight_S = chosen.weights[head] * counts
    state = eigenpro_state(
        settings.kernel,
        S,
        weight_S,
        present(block_H)[ordinary],
        None if weight_H is None else weight_H[ordinary],
        spectrum_settings(wanted, settings.device),
        settings.batch_limit(held),
        settings.seed,
        drawn_S,
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
    basis = KernelBasis(settings.kernel, p, head, is_all(settings), placement, settings.rounding)
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


def _subsample(rows: Rows, settings: FitSettings, chosen: LandmarkSet, s: int) -> tuple[IntArray, HostArray]:
    """Return the column numbers of S and its points. Landmarks come in random order: S is their prefix."""
    if not is_all(settings):
        return np.arange(s), chosen.points[:s]
    head = np.sort(generator(settings.seed, _SUB).choice(rows.n_rows, size=s, replace=False)).astype(np.int64)
    return head, features_at(rows, head)
