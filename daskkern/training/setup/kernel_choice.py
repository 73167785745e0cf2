"""The automatic choice of a kernel: least leave-one-out error of ridge regression on a sample.

Each candidate has the penalty that is best for it (:func:`daskkern.linalg.best_penalties.best_penalty`), as far as a
fit gets there: t epochs over n rows leave what belongs to eigenvalues of K below about k(x, x)/t as they found it, as a
penalty of k(x, x)/t would (Yao, Rosasco and Caponnetto, "On early stopping in gradient descent learning", 2007).
Smooth kernels have many such eigenvalues. A tenth, for the usual ten epochs, is therefore added to the diagonal; it
depends on no number of epochs, because a run may go on for longer than it was meant to. Exact solvers leave nothing:
nothing is added, and smooth kernels are candidates with twice their length scale, too. Few rows favour smooth kernels
more than many rows do, and errors differ by chance: another kernel than the first candidate is taken where its error is
lower by 3%, of s rows by ``0.5 s^(-1/2)`` where that is more, and by 1% more for each time that the rows are twice as
many as the sample.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse

from daskkern.arrays import HostArray
from daskkern.basis import uses_kernel
from daskkern.data.rows.rows import Fields
from daskkern.errors import DataError, SpecError
from daskkern.kernels import AutoKernel, Kernel, short_name
from daskkern.landmarks.k_means import KMeans
from daskkern.linalg.best_penalties import best_penalty
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.choice_rows import ChoiceRows, sample_rows
from daskkern.training.setup.penalty import encoded
from daskkern.training.setup.prepared import Clock
from daskkern.training.setup.shared import TARGETS

_MOST_ROWS = 1000
_BETTER, _CHANCE = 0.03, 0.5  # of the error, and of its standard deviation for one row
_EACH_DOUBLING = 0.01  # of the error, from the sampled rows to all
_EPOCHS = 10
_FLOOR = 1e-7
_DRAW = 63
_INSTEAD = "ingest with --categorical onehot, or give data frames with texts, or choose"


def with_categories(settings: FitSettings, columns: Sequence[int]) -> FitSettings:
    """Return `settings` with a kernel that takes these columns of the rows, which hold codes, for categories.

    Raises
    ------
    SpecError
        Where the kernel, the functions or the landmarks of the fit need numbers.
    """
    basis = settings.basis
    if not columns:
        return settings
    if not uses_kernel(basis) or not basis.has_centres or basis.leaf_size is not None:
        raise SpecError(f"got the basis {basis.name}, whose features are numbers, for codes; {_INSTEAD} landmarks")
    kernel = settings.kernel.with_categories(columns)
    if isinstance(basis.selection, KMeans):
        raise SpecError(f"got k_means, whose landmarks are means of rows, for codes; {_INSTEAD} another selector")
    return settings if kernel == settings.kernel else replace(settings, kernel=kernel)


def with_kernel(
    settings: FitSettings, info: SourceInfo, choice: ChoiceRows, sample: HostArray, clock: Clock
) -> FitSettings:
    """Return `settings` with a kernel whose parameters are numbers: its own, or the one that rows choose.

    Parameters
    ----------
    settings : FitSettings
    info : SourceInfo
    choice : ChoiceRows
        Training rows, scaled.
    sample : (m, d) array or CSR rows
        Some of these rows, whose median distance is the length scale.
    clock : Clock
        Told which kernel was chosen.
    """
    kernel = settings.kernel
    if not isinstance(kernel, AutoKernel) or not uses_kernel(settings.basis):
        return replace(settings, kernel=kernel.resolve(sample))
    if not settings.solver.suits_smooth_kernels:
        found, how = None, f"solver {settings.solver.name}"
    else:
        candidates = _candidates(kernel, settings, sample)
        s = kernel_rows(info, choice.rows.n_rows, choice.targets.n_outputs, len(candidates), settings)
        left = 0.0 if settings.solver.solves_exactly else 1 / _EPOCHS
        found, how = _least(candidates, choice, s, left) if s else (None, "few rows, or a short fit")
    chosen = kernel.resolve(sample) if found is None else found
    clock.stage("kernel", f"{short_name(chosen)} ({how})")
    return replace(settings, kernel=chosen)


def n_kernels(settings: FitSettings, info: SourceInfo) -> int:
    """Return how many kernels the rows choose from; 0 where they choose none."""
    if not isinstance(settings.kernel, AutoKernel) or not uses_kernel(settings.basis):
        return 0
    if not settings.solver.suits_smooth_kernels:
        return 0
    two = np.zeros((2, info.n_features))
    two[1] = 1.0
    return len(_candidates(settings.kernel, settings, two if info.n_stored is None else scipy.sparse.csr_matrix(two)))


def _candidates(kernel: AutoKernel, settings: FitSettings, sample: HostArray) -> tuple[Kernel, ...]:
    """Return the kernels to choose from that the columns can be made of, or all where they can be of none."""
    every = kernel.candidates(sample, longer=settings.solver.solves_exactly)
    return tuple(one for one in every if settings.basis.suits(one)) or every


def kernel_rows(info: SourceInfo, n: int, c: int, n_candidates: int, settings: FitSettings) -> int:
    """Return how many of `n` rows a kernel is chosen on, for `c` outputs; 0 where that would cost too much."""
    p = min(n, int(getattr(settings.basis, "n", n)))
    return min(_MOST_ROWS, sample_rows(n, p, info.row_width, c, settings, n_candidates))


def _least(candidates: tuple[Kernel, ...], choice: ChoiceRows, s: int, left: float) -> tuple[Kernel | None, str]:
    """Return the candidate of the least error on `s` rows, None where they say nothing of it, and how it was found.

    `left` is the share on the diagonal of kernels that a fit does not get below.
    """
    _, block, weight = choice.drawn(s, _DRAW, Fields.X | TARGETS)
    assert block.X is not None
    assert block.y is not None
    X, y = block.X.astype(np.float64), encoded(choice.targets, block.y)
    found = [best_penalty(_gram(kernel, X, left), y, weight, _FLOOR) for kernel in candidates]
    known = [best.error for best in found if best is not None]
    if len(known) < len(candidates):
        return None, f"errors on {s:,} row{'s' * (s != 1)} do not decide it"
    counted = s if weight is None else int((weight > 0).sum())
    margin = max(_BETTER, _CHANCE * counted**-0.5) + _EACH_DOUBLING * np.log2(choice.rows.n_rows / s)
    best = int(np.argmin([known[0] * max(0.0, 1 - margin), *known[1:]]))
    return candidates[best], f"leave-one-out on {s:,} rows"


def _gram(kernel: Kernel, X: HostArray, left: float) -> HostArray:
    """Return the kernel of rows X (s, d) with a share of `left` more on its diagonal, float64."""
    gram: HostArray = kernel.block(X, kernel.points(X, kernel.placement_for(X))).astype(np.float64)
    if not np.isfinite(gram).all():
        raise DataError("kernel values of sampled rows are not finite; scale the features, or name a kernel")
    gram[np.diag_indices_from(gram)] *= 1 + left
    return gram
