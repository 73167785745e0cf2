"""Dense samples: all rows of a few leaves of a partition, and a random sample of the other rows.

Models of leaves (:class:`daskkern.basis.LocalRows`) gain by rows that are close to each other, of which a random sample
has too few. In some leaves with all of their rows such a model is what it is in a fit to all rows; a model of the whole
space is fitted to the random rows, and predicts the same held-out ones.
"""

from dataclasses import dataclass, replace

import numpy as np

from daskkern.arrays import IntArray
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.basis.partition import partition_tree
from daskkern.data.rows.rows import Fields, take
from daskkern.data.schema.column_scaling import Scaling
from daskkern.kernels import ScaledDistanceKernel
from daskkern.model_selection.samples import Fold, SearchSample
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.targets import learn_targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.penalty import encoded
from daskkern.training.setup.scaling import with_scaling

_REGIONS = 4
_PER_LEAF, _MOST_SAMPLED = 16, 50_000  # sampled rows that decide the cuts
_HELD = 2  # each second row of a leaf is held out of the models of the whole space
_CHUNKS = 16
_TREE, _LEAVES, _RANDOM = 84, 85, 86


@dataclass(frozen=True, eq=False)
class DenseSample:
    """Rows of a few leaves, and random rows of all.

    Attributes
    ----------
    sample : SearchSample
    leaves : tuple of Fold
        For each leaf, its rows that are fitted, and those that are held out.
    spread : Fold
        The random rows, which are fitted, and all rows that are held out in the leaves.
    """

    sample: SearchSample
    leaves: tuple[Fold, ...]
    spread: Fold

    @property
    def quarter(self) -> Fold:
        """A quarter of the random rows, and the same held-out ones."""
        return replace(self.spread, fitted=self.spread.fitted[::4])


def dense_sample(
    source: RowSource,
    settings: FitSettings,
    like: SearchSample,
    scale: str | None,
    kernel: ScaledDistanceKernel,
    leaf_rows: int,
    n_random: int,
) -> DenseSample:
    """Return all rows of a few leaves, and `n_random` random ones of all that are not held out there, or fewer.

    The leaves are those of a tree in the coordinates of a kernel, which need not be the tree of the fit. One pass over
    all rows finds their rows.

    Parameters
    ----------
    source : RowSource
    settings : FitSettings
    like : SearchSample
        A sample of the same source, for scalings and units.
    scale : str or None
        Of the features.
    kernel : ScaledDistanceKernel
    leaf_rows : int
        Most rows of a leaf, about.
    n_random : int
    """
    rows = with_scaling(source, Scaling()).open("float64")
    n, scaling = rows.n_rows, like.scalings[scale]
    size = min(n, max(_PER_LEAF * n // leaf_rows, 1000), _MOST_SAMPLED)
    some = take(rows, np.sort(generator(settings.seed, _TREE).permutation(n)[:size]), Fields.X).X
    tree = partition_tree(kernel.transform(scaling.apply(some, np.float64)), leaf_rows * size / n, settings.seed)
    found = np.empty(n, np.int64)
    for part in slices(n, _CHUNKS * rows.chunk_rows):
        block = rows.read(part.start, part.stop, Fields.X).X
        found[part] = tree.leaves(kernel.transform(scaling.apply(block, np.float64)))
    chosen = generator(settings.seed, _LEAVES).permutation(np.unique(found))[:_REGIONS]
    inside = [np.flatnonzero(found == leaf)[: 2 * leaf_rows] for leaf in chosen]
    leaves = _folds([len(part) for part in inside], settings.seed)
    held = np.sort(np.concatenate([fold.held for fold in leaves]))
    at, spread = _with_spread(np.concatenate(inside), held, n, n_random, settings.seed)
    targets = learn_targets(rows, settings)
    taken = take(rows, at)
    assert taken.X is not None
    assert taken.y is not None
    weight = targets.weight(taken)
    sample = replace(
        like,
        X=taken.X,
        y=encoded(targets, taken.y),
        raw_y=taken.y,
        weight=None if weight is None else weight[:, 0].astype(np.float64),
    )
    return DenseSample(sample, leaves, Fold(spread, held))


def _with_spread(inside: IntArray, held: IntArray, n: int, n_random: int, seed: int) -> tuple[IntArray, IntArray]:
    """Return the rows `inside` leaves and random ones after them, and the places of the random ones among all.

    None of them is held out. Where a row that is held out is drawn, another row of the leaves takes its place: a model
    of the whole space then knows as much of the leaves, where it is compared, as of other places.
    """
    rng, left_out = generator(seed, _RANDOM), inside[held]
    drawn = rng.choice(n, min(n, n_random), replace=False)
    kept = np.setdiff1d(drawn, left_out)
    free = np.setdiff1d(inside, np.concatenate([left_out, kept]))
    drawn = np.sort(np.concatenate([kept, rng.permutation(free)[: len(drawn) - len(kept)]]))
    is_inside = np.isin(inside, drawn)
    others = np.setdiff1d(drawn, inside)
    places = np.concatenate([np.flatnonzero(is_inside), len(inside) + np.arange(len(others))])
    return np.concatenate([inside, others]), places


def _folds(sizes: list[int], seed: int) -> tuple[Fold, ...]:
    """Return the folds of leaves whose rows follow each other."""
    found, start = [], 0
    for number, size in enumerate(sizes):
        order: IntArray = start + generator(seed, _LEAVES, 1 + number).permutation(size)
        found.append(Fold(np.sort(np.delete(order, slice(None, None, _HELD))), np.sort(order[::_HELD])))
        start += size
    return tuple(found)
