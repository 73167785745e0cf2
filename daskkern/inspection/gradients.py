"""Gradients of the scores of a fitted model: at single rows, and their average outer product over many.

``M = sum_i w_i J(x_i)^T J(x_i) / sum_i w_i`` with J (c, d) the Jacobian of the scores by the scaled features, the
average gradient outer product (AGOP). ``M_jj`` is the mean squared slope along feature j: how much predictions change
where it does, and nothing else. ``M_jk / (M_jj M_kk)^(1/2)`` says whether predictions change with j and k at the same
rows and in the same proportion. It is not a statistical interaction: of ``x_j + x_k`` it is 1.

References
----------
Radhakrishnan, Beaglehole, Pandit and Belkin, "Mechanism for feature learning in neural networks and
backpropagation-free machine learning models", Science 2024, equation 2.
"""

from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.delayed import delayed

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import is_sparse, namespace_for, to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.data.storage.store import Store
from daskkern.errors import DataError, SpecError
from daskkern.evaluation.score import raw_blocks
from daskkern.inspection.columns import Columns, Groups, columns_of
from daskkern.inspection.rows import BLOCK_ROWS, Inspected, fitted_model, scaled
from daskkern.models import KernelModel

TILE_ELEMENTS = 1 << 22
"""Numbers of a tile of gradients: 32 MiB."""
MOST_PAIRED = 512
"""Features up to which products of gradients are computed unless they are declined."""


@dataclass(frozen=True, eq=False)
class GradientImportance:
    """The average gradient outer product of a model over some rows.

    Attributes
    ----------
    columns : Columns
        Columns that the features belong to: one-hot features are one.
    squares : (d,) float64 array
        Its diagonal: mean squared gradients by the scaled features, summed over the scores of a row.
    products : (d, d) float64 array or None
        All of it, where it was computed.
    n_rows : int
    """

    columns: Columns
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
    X : array (n, d), CSR matrix, dask array, store or the path of one
        Rows in the units of the training data. A store brings its own weights.
    sample_weight : (n,) array, optional
    pairs : bool, optional
        Compute the products of gradients (d, d) too. By default up to 512 features of dense rows.
    groups : mapping of str to sequence of int, optional
        Features that are one column; see :func:`daskkern.inspection.columns_of`.
    max_rows : int or None
        Random rows that gradients are taken at; None: all, a block at a time.
    random_state : int
        Chooses them.
    device : {"cpu", "gpu", "auto"}

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
        for part in _parts(fitted, block.X.shape[0]):
            J = _jacobians(fitted, block.X[part], device)
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


def score_gradients(model: Any, X: Any, *, output: Any = "predicted", baseline: Any = None, device: str = "cpu") -> Any:
    """Return the gradients of scores by the scaled features, row by row, (n, d) float64: why a row is predicted so.

    Parameters
    ----------
    model : KernelModel, or a fitted estimator
    X : array (n, d), CSR matrix, dask array, store or the path of one
        Rows in the units of the training data.
    output : "predicted", "all", a class label, or the number of a target
        "predicted" is the score of the class that each row is predicted to be in, or the only target, in its units.
        "all" gives (n, c, d), one for each score that the model has.
    baseline : (d,) array, optional
        A row in the units of the training data, such as the mean. The result is then ``gradient * (x - baseline)``, in
        the scaled features: what each contributes, to first order, to the difference from the score at the baseline.
    device : {"cpu", "gpu", "auto"}

    Returns
    -------
    (n, d) or (n, c, d) float64 array
        NumPy for arrays; for dask arrays and stores a lazy dask array, which holds a block of rows at a time.

    Raises
    ------
    DataError
        For rows that do not fit the model, and for NaN.
    SpecError
        For a model without gradients, and for an unknown output.
    """
    fitted = fitted_model(model)
    chosen = _output(fitted, output)
    start = None if baseline is None else scaled(fitted, fitted.check(np.asarray(baseline).reshape(1, -1)))
    rows = Inspected.of(fitted, X)
    if rows.store is None and not isinstance(rows.X, da.Array):
        return _explained(rows.X, fitted, chosen, start, device)
    tail = (fitted.coef.shape[1] // fitted.scores_each, fitted.n_features) if chosen is None else (fitted.n_features,)
    shared = delayed(fitted, pure=True)  # one copy in the graph, not one per block
    work = delayed(_explained, pure=True)
    if rows.store is not None:
        parts = [delayed(_stored)(rows.store, part) for part in slices(rows.n_rows, BLOCK_ROWS)]
        sizes = [part.stop - part.start for part in slices(rows.n_rows, BLOCK_ROWS)]
    else:
        parts, sizes = list(rows.X.to_delayed().ravel()), list(rows.X.chunks[0])
    return da.concatenate(
        [
            da.from_delayed(work(part, shared, chosen, start, device), (size, *tail), np.float64)
            for part, size in zip(parts, sizes, strict=True)
        ]
    )


def _stored(store: Store, part: slice) -> Any:
    return next(raw_blocks(store, part))


def _explained(X: Any, model: KernelModel, output: int | None, start: Any, device: str) -> HostArray:
    """Return the gradients of `output` (None: all; -1: the predicted one) at rows in memory."""
    X = model.check(X)
    c, d = model.coef.shape[1] // model.scores_each, model.n_features
    out = np.empty((X.shape[0], c, d) if output is None else (X.shape[0], d))
    for part in _parts(model, X.shape[0]):
        J = _jacobians(model, X[part], device)
        if model.task == "regression" and model.target_scale is not None:
            J *= np.asarray(model.target_scale)[:, None]
        if output == -1:
            J = _predicted(model, X[part], J)
        elif output is not None:
            J = J[:, output] if c > 1 or model.classes is None else J[:, 0] * (2 * output - 1)
        if start is not None:
            rows = scaled(model, X[part])
            moved = (rows.toarray() if is_sparse(rows) else rows) - (start.toarray() if is_sparse(start) else start)
            J = J * (moved if J.ndim == 2 else moved[:, None])
        out[part] = J
    return out


def _predicted(model: KernelModel, X: Any, J: FloatArray) -> FloatArray:
    """Return the gradients (m, d) of the score of the predicted class; of one score for two classes, with its sign."""
    if model.classes is None or J.shape[1] == 0:
        return J[:, 0]
    scores = model.scores(X)
    if J.shape[1] == 1:
        return J[:, 0] * np.where(scores > 0, 1.0, -1.0)
    return np.take_along_axis(J, scores.argmax(axis=1)[:, None, None], axis=1)[:, 0]


def _output(model: KernelModel, output: Any) -> int | None:
    c = model.coef.shape[1] // model.scores_each
    if isinstance(output, str) and output == "all":
        return None
    if isinstance(output, str) and output == "predicted":
        if model.classes is None and c > 1:
            raise SpecError(f"got output='predicted' for {c} targets; give the number of one, or 'all'")
        return -1
    names = range(c) if model.classes is None else model.classes
    value = output.item() if isinstance(output, np.generic) else output
    for number, name in enumerate(names):
        if type(name) is type(value) and name == value:
            return number
    some = ", ".join(map(repr, list(names)[:10]))
    raise SpecError(f"got output={output!r}; expected 'predicted', 'all' or one of {some}")


def _parts(model: KernelModel, m: int) -> list[slice]:
    """Return pieces of m rows whose gradients are one tile."""
    return slices(m, max(1, min(1024, TILE_ELEMENTS // max(1, model.coef.shape[1] * model.n_features))))


def _jacobians(model: KernelModel, X: Any, device: str) -> FloatArray:
    """Return the gradients (m, c, d) of the scores by the scaled features, at rows in the units of the training data.

    Raises
    ------
    SpecError
        For a model without gradients.
    DataError
        When they are not finite.
    """
    xp = namespace_for(device)
    rows, points, coef = to_device(scaled(model, X), xp), to_device(model.points, xp), xp.asarray(model.coef)
    try:
        J = model.kernel.gradient_matvec(rows, points, coef)
    except SpecError as error:
        raise SpecError(f"{error}; permutation_importance needs none") from None
    if model.scores_each > 1:  # an output is the largest of its scores
        (m, c, d), each = J.shape, model.scores_each
        largest = model.kernel.matvec(rows, points, coef).reshape(m, c // each, each).argmax(axis=2)
        J = xp.take_along_axis(J.reshape(m, c // each, each, d), largest[:, :, None, None], axis=2)[:, :, 0]
    found: FloatArray = to_host(J)
    if not np.isfinite(found).all():
        raise DataError(
            "gradients of the model are not finite at some rows; look for values far from the training data"
        )
    return found
