"""Interactions of pairs of columns: mixed second derivatives of the scores of a fitted model.

Columns j and k interact where the slope along j depends on the value of k, that is where the mean over the rows of
``(d^2 f / dx_j dx_k)^2`` is positive; f is additive in them where it is 0. The strength given here is the root of that
mean, with the derivatives as central differences of gradients.

References
----------
Friedman and Popescu, "Predictive learning via rule ensembles", Annals of Applied Statistics 2008, section 8.1, with the
definition; their H statistic estimates the same from partial dependence functions, as a share of variance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.errors import DataError, SpecError
from daskkern.inspection.columns import Groups, TableColumns, columns_of
from daskkern.inspection.gradients import gradient_importance
from daskkern.inspection.jacobians import jacobians, tiles
from daskkern.inspection.rows import Inspected, scaled
from daskkern.models import KernelModel
from daskkern.models.fitted import fitted_model


@dataclass(frozen=True, eq=False)
class Interactions:
    """Strengths of interactions of k columns.

    Attributes
    ----------
    names : tuple of str
    strengths : (k, k) float64 array
        Roots of mean squared mixed derivatives by the scaled features; symmetric, with a diagonal of 0. Of columns with
        several features, roots of the sums over their pairs.
    n_rows : int
    """

    names: tuple[str, ...]
    strengths: FloatArray
    n_rows: int

    def top(self, n: int) -> list[tuple[str, str, float]]:
        """Return the `n` pairs of columns with the strongest interactions, and these."""
        rows, cols = np.triu_indices(len(self.names), 1)
        values = self.strengths[rows, cols]
        order = np.argsort(-values, kind="stable")[:n]
        return [(self.names[rows[k]], self.names[cols[k]], float(values[k])) for k in order]


def interactions(
    model: Any,
    X: Any,
    *,
    columns: Sequence[str | int] | None = None,
    n_columns: int = 8,
    sample_weight: Any = None,
    groups: Groups | None = None,
    max_rows: int | None = 200,
    step: float = 0.05,
    random_state: int = 0,
    device: str = "cpu",
) -> Interactions:
    """Return how strongly pairs of columns interact in the scores of a fitted model.

    Parameters
    ----------
    model : KernelModel, or a fitted estimator
        A model, or an estimator after its fit.
    X : array (n, d), CSR matrix, dask array, store or the path of one
        Rows in the units of the training data.
    columns : sequence of str or int, optional
        These columns; by default the `n_columns` with the largest gradients at the same rows.
    n_columns : int
        How many columns to look at, those with the largest gradients.
    sample_weight : (n,) array, optional
        Weights of the rows, 0 or more; None counts all alike.
    groups : mapping of str to sequence of int, optional
        Features that are one column; see :func:`daskkern.inspection.columns_of`.
    max_rows : int or None
        Random rows; each takes two gradients for each feature of the columns.
    step : float
        Of the differences, in the scaled features. Where the kernel has kinks, slopes are averages over twice as much.
    random_state : int
        Seed of all random draws.
    device : {"cpu", "gpu", "auto"}
        Where to compute; "auto" takes a GPU where there is one.

    Returns
    -------
    Interactions

    Raises
    ------
    DataError
        For rows that do not fit the model, NaN, and rows whose weights are all 0.
    SpecError
        For a model without gradients, an unknown column, or a step that is not positive.
    """
    if not (isinstance(step, int | float) and 0 < step < np.inf):
        raise SpecError(f"got step={step!r}; give a positive number")
    if isinstance(n_columns, bool) or int(n_columns) < 1:
        raise SpecError(f"got n_columns={n_columns!r}; give 1 or more")
    fitted = fitted_model(model)
    every = columns_of(fitted, groups)
    rows = Inspected.of(fitted, X, None, sample_weight).sampled(max_rows, random_state)
    if columns is None:
        given = (rows.store, None) if rows.store is not None else (rows.X, rows.weight)
        sizes = gradient_importance(
            fitted, given[0], sample_weight=given[1], pairs=False, groups=groups, max_rows=None, device=device
        ).importances
        chosen = np.argsort(-sizes, kind="stable")[: int(n_columns)].tolist()
    else:
        chosen = every.numbers(columns)
    features = np.concatenate([every.features(k) for k in chosen])
    sums, total, n = np.zeros((len(features), len(features))), 0.0, 0
    for block in rows.blocks():
        weight = np.ones(block.X.shape[0]) if block.weight is None else block.weight
        for part in tiles(fitted, block.X.shape[0]):
            sums += _squares(fitted, scaled(fitted, block.X[part]), weight[part], features, float(step), device)
        total, n = total + float(weight.sum()), n + len(weight)
    if not total > 0:
        raise DataError(f"got {n} rows with weights that add up to 0; give rows that count")
    return _by_columns(every, chosen, features, (sums + sums.T) / (2 * total), n)


def _squares(
    model: KernelModel, rows: Any, weight: FloatArray, features: IntArray, step: float, device: str
) -> FloatArray:
    """Return the weighted sums of squared mixed derivatives (f, f) over scaled rows (m, d)."""
    dense = (rows.toarray() if is_sparse(rows) else rows).astype(np.float64)
    found = np.empty((len(features), len(features)))
    for number, feature in enumerate(features):
        moved = []
        for sign in (1, -1):
            there = dense.copy()
            there[:, feature] += sign * step
            moved.append(jacobians(model, there, device, is_scaled=True)[:, :, features])
        H = (moved[0] - moved[1]) / (2 * step)
        found[number] = np.einsum("m,mcf,mcf->f", weight, H, H)
    return found


def _by_columns(
    columns: TableColumns, chosen: list[int], features: IntArray, squares: FloatArray, n: int
) -> Interactions:
    place = {column: number for number, column in enumerate(chosen)}
    owner = np.array([place[int(columns.owner[feature])] for feature in features], np.int64)
    names = tuple(columns.names[k] for k in chosen)
    strengths = np.sqrt(np.maximum(TableColumns(names, owner).sum(squares), 0))
    np.fill_diagonal(strengths, 0)
    return Interactions(names, strengths, n)
