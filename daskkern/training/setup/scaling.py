"""The scaling that a fit learns from rows without a recorded one."""

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from daskkern.arrays import HostArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis import BasisSpec, uses_kernel
from daskkern.data.rows.rows import Fields, Rows, take
from daskkern.data.rows.samples import SampledInPassing, counted
from daskkern.data.schema.code_columns import with_codes_unscaled
from daskkern.data.schema.column_scaling import SPARSE_SCALINGS, Scaling, check_sparse_scaling
from daskkern.data.schema.column_statistics import ColumnStatistics, Moments
from daskkern.data.schema.learned_scaling import LEARNED_KINDS, learned_scaling, ranked_scaling
from daskkern.errors import DataError, SpecError
from daskkern.kernels import Kernel, LinearKernel
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.nonlinear_scaling import compared_rows, fits_as_well

AnySource = TypeVar("AnySource", bound=RowSource)
_LEARNED = ("auto", "always", "affine", "arcsinh", "ranks")
"""Names of one kind of scaling: "affine" never bends features, "arcsinh" always does, "ranks" has ranks instead; rows
decide for the others."""
_SAMPLE = 2000
_MOST_ROWS = 1 << 20
_PIECES = 64
_DRAW = 59


def scales_features(settings: FitSettings, source: RowSource) -> bool:
    """Return whether a fit with these settings learns a scaling from the rows of `source`.

    "auto" leaves alone rows that were scaled at ingestion, and all rows where the kernel has parameters in the units
    of the features, such as a length scale that is a number. "always", "affine" and "arcsinh" do the latter never.

    Raises
    ------
    SpecError
        When another scaling is asked than the one that the rows have, or one that sparse rows cannot have.
    """
    kind, known = settings.scale, source.info.scaling.kind
    if kind is None:
        return False
    if isinstance(kind, Scaling):
        _check_given(kind, source)
        return True
    if known != "none":
        if kind not in (*_LEARNED, known):
            raise SpecError(
                f"got scale={kind!r} for rows that ingestion scaled already ({known}); leave it out, or ingest "
                "the data again with --scale none"
            )
        return False
    if source.info.n_stored is not None and (kind == "ranks" or kind not in (*_LEARNED, *SPARSE_SCALINGS)):
        raise SpecError(
            f"got scale={kind!r} for sparse rows, but it shifts columns, which would make every zero a number; "
            "choose 'auto', 'maxabs', 'unit_variance' or None"
        )
    return kind != "auto" or not _has_units(settings.kernel, settings.basis)


def _check_given(scaling: Scaling, source: RowSource) -> None:
    """Raise SpecError unless a scaling that was given suits the rows of `source`."""
    d = source.info.n_features
    if scaling.kind != "none" and len(scaling.scale) != d:
        raise SpecError(f"got a Scaling of {len(scaling.scale)} features; expected one of {d}, as the rows have")
    if source.info.n_stored is not None and scaling.shifts:
        check_sparse_scaling(scaling.kind)


def _has_units(kernel: Kernel, basis: BasisSpec) -> bool:
    return uses_kernel(basis) and kernel.has_units


def learn_scaling(source: RowSource, settings: FitSettings) -> Scaling:
    """Return the scaling that a fit to `source` applies: the one that its rows have, or one learned in a pass.

    Features are bent (:mod:`daskkern.data.schema.learned_scaling`) where a model of sampled rows is then as good.

    Of a store the moments are known, and only a sample is read. Of more than 2^20 other rows, pieces spread over all of
    them are measured. Held-out rows count too; of weights it only counts whether they are 0.
    """
    if not scales_features(settings, source):
        return source.info.scaling
    if isinstance(settings.scale, Scaling):
        return settings.scale
    return with_codes_unscaled(_learned_from(source, settings), _categories(source, settings))


def _categories(source: RowSource, settings: FitSettings) -> list[int]:
    return sorted({*source.info.categories, *settings.kernel.categories})


def _learned_from(source: RowSource, settings: FitSettings) -> Scaling:
    rows, categories = source.open("float64"), _categories(source, settings)
    positions = np.sort(generator(settings.seed, _DRAW).choice(rows.n_rows, min(_SAMPLE, rows.n_rows), replace=False))
    if rows.decodes_chunks and not rows.is_sparse:
        rows = SampledInPassing(rows, np.concatenate([positions, compared_rows(rows.n_rows, settings.seed)]))
    statistics = source.statistics()
    if statistics is None:
        statistics = _measured(rows)
    wanted = settings.scale
    assert not isinstance(wanted, Scaling)
    kind = "auto" if wanted in _LEARNED else wanted
    if kind in LEARNED_KINDS:
        block = take(rows, positions, Fields.X | Fields.weight)
        assert block.X is not None
        sample = counted(block.X, block.weight)
        plain = learned_scaling(kind, statistics, sample, centre=not rows.is_sparse, bend=False)
        plain = with_codes_unscaled(plain, categories)
        if wanted == "ranks":
            return ranked_scaling(plain, sample)
        if not may_scale_nonlinearly(settings, source):
            return plain
        bent = with_codes_unscaled(learned_scaling(kind, statistics, sample, centre=not rows.is_sparse), categories)
        if wanted == "arcsinh":
            return bent
        return bent if bent.bend and fits_as_well(bent, plain, source, rows, categories, settings.seed) else plain
    assert kind is not None
    found = Scaling.of(kind, statistics, categories)
    spreads = statistics.std if kind in ("standard", "common", "unit_variance") else found.scale
    beyond = np.flatnonzero(~np.isfinite(spreads)).tolist()
    if beyond:
        names = source.info.feature_names
        raise DataError(
            f"column {names[beyond[0]] if names else beyond[0]!r} has values whose squares or differences float64 does "
            f"not hold, so that scale={kind!r} has no number for it; take scale='auto', or multiply the column by a "
            "power of ten"
        )
    return found


def may_scale_nonlinearly(settings: FitSettings, source: RowSource) -> bool:
    """Return whether a fit may bend features: not without targets, which decide whether that helps, and not those of a
    linear or locally linear model, which would be linear in them no longer."""
    if source.info.task is None:
        return False
    linear = settings.basis.of_features or isinstance(settings.kernel, LinearKernel)
    bends = settings.scale in _LEARNED and settings.scale != "affine"
    return not linear and bends and scales_features(settings, source)


def _measured(rows: Rows) -> ColumnStatistics:
    """Return the moments of the rows that count, or of all where none does."""
    return _moments(rows, rows.has_weight) or _moments(rows, False) or Moments(rows.n_features).result()


def _moments(rows: Rows, weighted: bool) -> ColumnStatistics | None:
    """Return the moments of rows, if `weighted` without those of weight 0; None where there are none."""
    moments, n = Moments(rows.n_features), 0
    with np.errstate(over="ignore", invalid="ignore"):
        for part in _parts(rows):
            block = rows.read(part.start, part.stop, Fields.X | Fields.weight if weighted else Fields.X)
            X: Any = block.X
            if block.weight is not None and not block.weight.all():
                X = X[block.weight > 0]
            n += X.shape[0]
            if X.shape[0] and not moments.update(X):
                raise DataError(f"the features of rows {part.start} to {part.stop} hold NaN or infinity; fill them")
        return moments.result() if n else None


def _parts(rows: Rows) -> list[slice]:
    """Return all rows, or pieces of about 2^20 of them."""
    if rows.n_rows <= _MOST_ROWS:
        return slices(rows.n_rows, max(rows.chunk_rows, 4096))
    size = _MOST_ROWS // _PIECES
    starts = np.linspace(0, rows.n_rows - size, _PIECES).astype(int)
    return [slice(int(start), int(start) + size) for start in starts]


def with_scaling(source: AnySource, scaling: Scaling) -> AnySource:
    """Return the source of the same rows with `scaling` applied as they are read."""
    if scaling == source.info.scaling:
        return source
    changed: Any = source  # every source is a frozen record with this field
    made: AnySource = replace(changed, info=replace(source.info, scaling=scaling))
    return made


def scaled_points(basis: BasisSpec, source: RowSource, scaling: Scaling) -> BasisSpec:
    """Return `basis` with the user's own landmarks, which are like the rows of `source`, scaled like these."""
    if scaling == source.info.scaling:
        return basis

    def scaled(given: HostArray) -> HostArray:
        points = np.asarray(given, np.float64)
        if points.shape[1] != source.info.n_features:
            return given  # refused with the others' words
        return scaling.apply(points, np.float64)

    return basis.with_changed_points(scaled)
