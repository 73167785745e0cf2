"""The sizes for the memory plan of a rank, from settings, rows and the results of the set-up."""

import sys
from dataclasses import dataclass

import numpy as np

from daskkern.feature_learning.passes import block_rows
from daskkern.kernels.engines import cuda
from daskkern.solvers.costs.sizes import FitSizes
from daskkern.solvers.sampling import draws_rows
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.held_out_sizes import calibration_bytes
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.learned_metric import learning_costs
from daskkern.training.setup.penalty import penalty_bytes

_ESTIMATORS = 60 << 20
"""Bytes of scikit-learn and what it imports: estimators fit in their own process where there is no cluster."""


@dataclass(frozen=True)
class PreparedSummary:
    """The sizes of a :class:`Prepared` that planning needs."""

    p: int
    s: int
    q: int
    m: int
    window: int
    n: int
    n_outputs: int
    window_rows: int
    chunk_rows: int
    validation: int
    stored: bool = False
    span: int = 0
    wide: bool = False
    reshuffle: bool = False


def sizes_of(
    summary: PreparedSummary,
    source: RowSource,
    settings: FitSettings,
    ranks: int,
    threads: int,
    *,
    on_device: bool,
    groups: int = 1,
) -> FitSizes:
    """Return the sizes of one of `ranks` ranks with equal shares, with a factor for projections where there are any.

    The ranks are in so many `groups`, which divides them.
    """
    solver = settings.solver
    return FitSizes(
        n=summary.n,
        d=numbers_per_row(source),
        entries=entries_per_row(source),
        c=summary.n_outputs * solver.scores_each,
        p=summary.p,
        s=summary.s,
        q=summary.q,
        m=summary.m,
        window=summary.window,
        ranks=1 if solver.is_serial else ranks // groups,
        groups=groups,
        threads=threads,
        itemsize=np.dtype(settings.dtype).itemsize,
        all_rows=settings.basis.all_rows,
        exact=settings.basis.needs_projection,
        window_rows=summary.window_rows,
        costs=solver.costs(summary.n, settings.loss),
        validation=summary.validation,
        chunk_rows=summary.chunk_rows * (2 if draws_rows(settings.sampling) else 1),  # decoded, and drawn
        device="gpu" if on_device else "cpu",
        auto_batch=isinstance(settings.batch_size, str),
        span=summary.span,
        wide=summary.wide,
        units=not settings.basis.has_blocks and not settings.basis.all_rows,
        drawn=settings.basis.drawn_per_step,
        moving=solver.moving_bytes(summary.p, source.info.n_features, np.dtype(settings.dtype).itemsize),
        explicit=settings.basis.is_explicit,
        mapped=settings.basis.is_mapped,
        choosing=_choosing_bytes(source, settings, summary),
        penalty=_deciding_bytes(source, settings, summary, threads),
        reshuffle=summary.reshuffle,
        leaf_rows=settings.basis.leaf_size or 0,
        reading="each" if summary.stored or settings.virtual_shards is not None else settings.reading,
        operand_bytes=_operand_bytes(source, settings) if on_device else 0,
        tables=settings.basis.table_bytes(settings.kernel, source.info.n_features, settings.seed),
        sent_row_bytes=_sent_row_bytes(source, settings),
        rows_on_workers=source.bytes_on_workers,
        calibration=_calibration_bytes(source, settings, summary) if ranks == 1 else 0,
        libraries=_ESTIMATORS if ranks == 1 and "sklearn" in sys.modules else 0,
    )


def _calibration_bytes(source: RowSource, settings: FitSettings, summary: PreparedSummary) -> int:
    labelled = bool(source.info.classes) or settings.multilabel
    return calibration_bytes(summary.n, summary.n_outputs, settings, labelled=labelled)


def _operand_bytes(source: RowSource, settings: FitSettings) -> int:
    dense = not entries_per_row(source)
    return cuda.operand_bytes(source.info.n_features, settings.rounding) if dense else 0


def entries_per_row(source: RowSource) -> int:
    """Return the entries of a sparse row, on average and rounded up; 0 for dense rows."""
    info = source.info
    return 0 if info.n_stored is None else -(-info.n_stored // max(1, info.n_rows))


def numbers_per_row(source: RowSource) -> int:
    """Return how many numbers of the working dtype a row takes: its features, or entries with their column numbers.

    A sparse entry is held as a value, a column number of 4 bytes, and one of 8 bytes for compiled products.
    """
    entries = entries_per_row(source)
    return 4 * entries + 4 if entries else source.info.n_features


def _choosing_bytes(source: RowSource, settings: FitSettings, summary: PreparedSummary) -> int:
    """Return the bytes that the choice of landmarks takes in addition to them."""
    selector, itemsize = settings.basis.selection, np.dtype(settings.dtype).itemsize
    if selector is None:
        return 0
    chosen = min(summary.p, settings.basis.n_landmarks or summary.p)
    return selector.working_bytes(summary.n, chosen, numbers_per_row(source), itemsize)


def _deciding_bytes(source: RowSource, settings: FitSettings, summary: PreparedSummary, threads: int) -> int:
    """Return the bytes of what rows decide before the spectrum: kernel and penalty, and the metric of the kernel."""
    width = numbers_per_row(source)
    chosen = penalty_bytes(summary.n, summary.p, summary.n_outputs, width, source.info, settings)
    costs = learning_costs(settings, source.info, summary.n, width, summary.n_outputs)
    if costs is None:
        return chosen
    block = block_rows(source.open(settings.dtype)) if costs.learning.of_all_rows else 0
    itemsize = np.dtype(settings.dtype).itemsize
    return max(chosen, costs.sample_bytes(threads), costs.pass_bytes(block, itemsize, threads))


def _sent_row_bytes(source: RowSource, settings: FitSettings) -> int:
    """Return the bytes of a row that one rank sends to another: features as they are stored, targets and weight."""
    rows = source.open(settings.dtype).encoded()
    features = rows.row_bytes if rows.is_sparse else rows.n_features * rows.dtype.itemsize
    return int(features) + 8 * (rows.n_targets + rows.has_weight)
