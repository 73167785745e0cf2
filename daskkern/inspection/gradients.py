"""The average gradient outer product of the scores of a fitted model, over rows, and what it says of columns.

``M = sum_i w_i J(x_i)^T J(x_i) / sum_i w_i`` with J (c, d) the Jacobian of the scores by the scaled features (AGOP).
``M_jj`` is the mean squared slope along feature j: how much predictions change where it does, and nothing else.
``M_jk / (M_jj M_kk)^(1/2)`` says whether predictions change with j and k at the same rows and in the same proportion.
It is not a statistical interaction: of ``x_j + x_k`` it is 1.

References
----------
Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", Science 2024, equation 2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from daskkern.arrays import FloatArray
from daskkern.backend.namespace import is_sparse
from daskkern.errors import DataError, SpecError
from daskkern.inspection.columns import Groups, TableColumns, columns_of
from daskkern.inspection.jacobians import jacobians, tiles
from daskkern.inspection.rows import Inspected
from daskkern.models.fitted import fitted_model

MOST_PAIRED = 512
"""Features up to which products of gradients are computed unless they are declined."""


@dataclass(frozen=True, eq=False)
class GradientImportance:
    """The average gradient outer product of a model over some rows.

    Attributes
    ----------
    columns : TableColumns
        Columns that the features belong to: one-hot features are one.
    squares : (d,) float64 array
        Its diagonal: mean squared gradients by the scaled features, summed over the scores of a row.
    products : (d, d) float64 array or None
        All of it, where it was computed.
    n_rows : int
    """

    columns: TableColumns
    squares: FloatArray
    products: FloatArray | None
    n_rows: int

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the k columns."""
        return self.columns.names

    @property
    def importances(self) -> FloatArray:
        """The share of each column in the trace, (k,), with the sum 1; zeros where the model is constant."""
        sums = self.columns.sum(self.squares)
        total = sums.sum()
        return sums / total if total > 0 else sums

    @property
    def slopes(self) -> FloatArray:
        """The root mean squared gradient of each column, (k,): units of the score for a scaled feature that moves by 1.

        Of several features of one column, the length of their gradient.
        """
        return np.sqrt(self.columns.sum(self.squares))

    @property
    def alignments(self) -> FloatArray:
        """``M_jk / (M_jj M_kk)^(1/2)`` of pairs of columns, (k, k), from -1 to 1, and 0 for a column without gradients.

        Where a column has several features, the Frobenius norm of their block takes the place of M_jk: from 0 to 1.

        Raises
        ------
        SpecError
            When the products were not computed.
        """
        if self.products is None:
            raise SpecError("the products of gradients were not computed; call gradient_importance(..., pairs=True)")
        many = np.bincount(self.columns.owner, minlength=len(self.columns)) > 1
        signed, norms = self.columns.sum(self.products), np.sqrt(self.columns.sum(self.products**2))
        top = np.where(many[:, None] | many[None], norms, signed)
        lengths = np.sqrt(self.columns.sum(self.squares))
        below = lengths[:, None] * lengths[None]
        found: FloatArray = np.clip(np.where(below > 0, top / np.where(below > 0, below, 1), 0), -1, 1)
        np.fill_diagonal(found, (lengths > 0).astype(np.float64))
        return found

    def top(self, n: int) -> list[tuple[str, float]]:
        """Return the `n` columns of the largest importances, and these."""
        shares = self.importances
        return [(self.names[k], float(shares[k])) for k in np.argsort(-shares, kind="stable")[:n]]

    def top_pairs(self, n: int) -> list[tuple[str, str, float]]:
        """Return the `n` pairs of columns that move predictions together most, with their alignments.

        Pairs are in the order of ``|M_jk|``, not of the alignment itself: of columns that matter.
        """
        alignments, slopes = self.alignments, self.slopes
        rows, cols = np.triu_indices(len(self.names), 1)
        weight = np.abs(alignments[rows, cols]) * slopes[rows] * slopes[cols]
        order = np.argsort(-weight, kind="stable")[:n]
        return [(self.names[rows[k]], self.names[cols[k]], float(alignments[rows[k], cols[k]])) for k in order]


def gradient_importance(
    model: Any,
    X: Any,
    *,
    sample_weight: Any = None,
    pairs: bool | None = None,
    groups: Groups | None = None,
    max_rows: int | None = 2000,
    random_state: int = 0,
    device: str = "cpu",
) -> GradientImportance:
    """Return the average gradient outer product of the scores of a fitted model, by columns.

    Works with every kernel that has derivatives, its metric learned or not. Gradients are by the scaled features, as
    the model's scaling gives them. Scores are those of all classes, or of all targets in units of their spread.

    Parameters
    ----------
    model : KernelModel, or a fitted estimator
        A model, or an estimator after its fit.
    X : array (n, d), CSR matrix, dask array, store or the path of one
        Rows in the units of the training data. A store brings its own weights.
    sample_weight : (n,) array, optional
        Weights of the rows, 0 or more; None counts all alike.
    pairs : bool, optional
        Compute the products of gradients (d, d) too. By default up to 512 features of dense rows.
    groups : mapping of str to sequence of int, optional
        Features that are one column; see :func:`daskkern.inspection.columns_of`.
    max_rows : int or None
        Random rows that gradients are taken at; None: all, a block at a time.
    random_state : int
        Chooses them.
    device : {"cpu", "gpu", "auto"}
        Where to compute; "auto" takes a GPU where there is one.

    Returns
    -------
    GradientImportance

    Raises
    ------
    DataError
        For rows that do not fit the model, NaN, and rows whose weights are all 0.
    SpecError
        For a model without gradients; pairs of sparse rows.
    """
    fitted = fitted_model(model)
    rows = Inspected.of(fitted, X, None, sample_weight).sampled(max_rows, random_state)
    sparse = rows.store.info.is_sparse if rows.store is not None else is_sparse(rows.X)
    if pairs and sparse:
        raise SpecError("got pairs=True for sparse rows, whose gradients are dense in pairs; leave pairs out")
    d = fitted.n_features
    paired = d <= MOST_PAIRED and not sparse if pairs is None else pairs
    squares, products, total, n = np.zeros(d), np.zeros((d, d)) if paired else None, 0.0, 0
    for block in rows.blocks():
        weight = np.ones(block.X.shape[0]) if block.weight is None else block.weight
        for part in tiles(fitted, block.X.shape[0]):
            J = jacobians(fitted, block.X[part], device)
            if products is None:
                squares += np.einsum("m,mcd,mcd->d", weight[part], J, J, optimize=True)
                continue
            flat = (J * np.sqrt(weight[part])[:, None, None]).reshape(-1, d)
            products += flat.T @ flat
        total, n = total + float(weight.sum()), n + len(weight)
    if not total > 0:
        raise DataError(f"got {n} rows with weights that add up to 0; give rows that count")
    if products is not None:
        products /= total
        squares = products.diagonal().copy()
    else:
        squares /= total
    return GradientImportance(columns_of(fitted, groups), squares, products, n)
