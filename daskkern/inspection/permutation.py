"""Permutation importance: how much worse a model scores where the values of a column are those of other rows.

The values of a column are exchanged between rows, so that it says nothing any more of the target, nor of the other
columns; the rest of each row stays. Rows in memory are permuted. Of rows that are streamed, each takes the values of a
random row of a sample, which has the same distribution: a block of rows and the sample are held, however many rows
there are. All columns and repeats are done in one pass over the rows, and take one prediction of them each.

References
----------
Breiman, "Random forests", Machine Learning 2001, section 10; Fisher, Rudin and Dominici, "All models are wrong, but
many are useful", JMLR 2019.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dask.array as da
import numpy as np
from dask.base import compute
from dask.delayed import delayed

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.random import generator
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import DataError, SpecError
from daskkern.inspection.columns import Groups, columns_of
from daskkern.inspection.measures import Measure, codes_of, measure_of, values_of
from daskkern.inspection.rows import Block, Inspected
from daskkern.models import KernelModel
from daskkern.models.fitted import fitted_model

if TYPE_CHECKING:
    from sklearn.utils import Bunch

DONOR_ROWS = 20_000
"""Sampled rows that the values of streamed rows are taken from."""
_STREAM = 98


def permutation_importance(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    n_repeats: int = 5,
    random_state: int = 0,
    sample_weight: Any = None,
    scoring: str | None = None,
    columns: Sequence[str | int] | None = None,
    groups: Groups | None = None,
    max_rows: int | None = None,
) -> "Bunch":
    """Return by how much the score of a model falls when the values of one column are those of other rows.

    Parameters
    ----------
    model : KernelModel, or a fitted estimator
        A model, or an estimator after its fit.
    X : array (n, d), CSR matrix, dask array, store or the path of one
        Rows in the units of the training data; better not those that the model was trained on.
    y : (n,) or (n, t) array, optional
        Targets of arrays. A store brings its own, and its weights.
    n_repeats : int
        Permutations of each column.
    random_state : int
        The same number gives the same result.
    sample_weight : (n,) array, optional
        Weights of the rows, 0 or more; None counts all alike.
    scoring : {"accuracy", "neg_log_loss", "r2", "neg_root_mean_squared_error", "neg_mean_absolute_error"}, optional
        By default accuracy, of several labels that of whole rows, or R2 of a regression; of several quantiles that of
        the one nearest to 1/2. Rows with a label that the model does not know count as wrong; a log loss leaves
        them out, as that of :func:`daskkern.evaluation.score.score_store` does.
    columns : sequence of str or int, optional
        Only these columns, by name or number: each costs `n_repeats` predictions of the rows.
    groups : mapping of str to sequence of int, optional
        Features that are one column; see :func:`daskkern.inspection.columns_of`.
    max_rows : int, optional
        A random sample of at most so many rows takes the place of all.

    Returns
    -------
    sklearn.utils.Bunch
        ``importances_mean`` (k,), ``importances_std`` (k,) and ``importances`` (k, n_repeats) as of
        :func:`sklearn.inspection.permutation_importance`, with ``columns``, the names of the k columns, and ``score``,
        that of the rows as they are.

    Raises
    ------
    DataError
        For rows that do not fit the model, NaN, and targets that are missing.
    SpecError
        For an unknown column or measure, or fewer than one repeat.

    Notes
    -----
    The features of one category are permuted together. Blocks of a dask array are scored by the workers that hold them;
    rows of a store are read once, by this process.
    """
    if isinstance(n_repeats, bool) or int(n_repeats) < 1:
        raise SpecError(f"got n_repeats={n_repeats!r}; give 1 or more")
    fitted = fitted_model(model)
    measure, every = measure_of(fitted, scoring), columns_of(fitted, groups)
    numbers = every.numbers(columns)
    rows = Inspected.of(fitted, X, y, sample_weight, targets=True).sampled(max_rows, random_state)
    permuting = Permuting(
        fitted, measure, tuple(every.features(k) for k in numbers), int(n_repeats), int(random_state), rows.classes
    )
    sums = _streamed(rows, permuting) if rows.is_lazy else permuting.sums(rows.block(), None, 0)
    if not sums[0, 0] > 0:
        raise DataError(f"got {rows.n_rows} rows with weights that add up to 0; give rows that count")
    scores = measure.value(sums)
    falls = scores[0] - scores[1:].reshape(len(numbers), int(n_repeats))
    from sklearn.utils import Bunch

    return Bunch(
        importances_mean=falls.mean(axis=1),
        importances_std=falls.std(axis=1),
        importances=falls,
        columns=tuple(every.names[k] for k in numbers),
        score=float(scores[0]),
    )


@dataclass(frozen=True, eq=False)
class Permuting:
    """The sums of a measure over blocks of rows: as they are, and with each column exchanged.

    Attributes
    ----------
    groups : tuple of int arrays
        The features of each column.
    classes : tuple or None
        Labels that the codes of a store stand for.
    """

    model: KernelModel
    measure: Measure
    groups: tuple[IntArray, ...]
    n_repeats: int
    seed: int
    classes: tuple[ClassLabel, ...] | None

    def sums(self, block: Block, donors: Any, number: int, threads: int | None = None) -> FloatArray:
        """Return the sums (1 + columns * repeats, k) of block `number`, that of the rows as they are first.

        Values come from rows of `donors` (r, d), with replacement; of None, from the rows themselves, permuted.
        """
        m = block.X.shape[0]
        assert block.y is not None
        y = values_of(self.model, block.y) if self.model.classes is None else self._codes(block.y)
        weight = np.ones(m) if block.weight is None else block.weight

        def measured(X: Any) -> FloatArray:
            scores = self.model.scores(X, threads=threads)
            return self.measure.sums(self.model, scores, y, weight)

        found = [measured(block.X)]
        for place, features in enumerate(self.groups):
            for repeat in range(self.n_repeats):
                rng = generator(self.seed, _STREAM, place * self.n_repeats + repeat, number)
                if donors is None:
                    found.append(measured(exchanged(block.X, features, block.X, rng.permutation(m))))
                else:
                    chosen = rng.integers(donors.shape[0], size=m)
                    found.append(measured(exchanged(block.X, features, donors, chosen)))
        return np.array(found)

    def _codes(self, y: HostArray) -> HostArray:
        return codes_of(self.model, y, self.classes)


def exchanged(X: Any, features: IntArray, donors: Any, chosen: IntArray) -> Any:
    """Return a copy of rows X (m, d), dense or CSR, with `features` of the rows ``donors[chosen]``."""
    if not is_sparse(X):
        found = X.copy()
        found[:, features] = donors[np.ix_(chosen, features)]
        return found
    from scipy.sparse import csr_array, diags_array

    mask = np.zeros(X.shape[1])
    mask[features] = 1
    return csr_array(X @ diags_array(1 - mask) + donors[chosen] @ diags_array(mask))


def _streamed(rows: Inspected, permuting: Permuting) -> FloatArray:
    """Return the sums of rows that are not in memory."""
    donors = rows.sampled(DONOR_ROWS, permuting.seed)
    taken = donors.rows(np.arange(donors.n_rows)).X
    if rows.store is not None:
        parts: Any = (permuting.sums(block, taken, k) for k, block in enumerate(rows.blocks()))
        return permuting.measure.joined(np.array(list(parts)))
    edges = np.cumsum([0, *rows.X.chunks[0]]).tolist()
    shared, values = delayed(permuting, pure=True), delayed(taken, pure=True)
    tasks = [
        delayed(_block_sums)(shared, values, k, *(_piece(each, slice(*part)) for each in rows.arrays))
        for k, part in enumerate(pairwise(edges))
    ]
    return permuting.measure.joined(np.array(compute(*tasks)))


def _piece(array: Any, part: slice) -> Any:
    """Return rows of an array; of a dask array as a task, which workers compute."""
    if array is None or not isinstance(array, da.Array):
        return None if array is None else array[part]
    return delayed(_as_is)(array[part])


def _as_is(block: Any) -> Any:
    return block


def _block_sums(permuting: Permuting, donors: Any, number: int, X: Any, y: Any, weight: Any) -> FloatArray:
    """The body of a task: Dask runs one of these on each of its threads."""
    block = Inspected(permuting.model, len(y)).checked(X, y, weight)
    return permuting.sums(block, donors, number, threads=1)
