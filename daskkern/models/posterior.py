"""The posterior variance of a model at new rows, from a factor of the kernel matrix of at most 2,000 points."""

from typing import Any, Protocol

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.backend.namespace import is_sparse
from daskkern.backend.random import generator
from daskkern.backend.tiles import slices
from daskkern.data.schema.schema import Scaling
from daskkern.errors import DataError
from daskkern.kernels import Kernel, TreeAverage

MOST_POINTS = 2_000
_STREAM = 94
_BLOCK = 4096
_JITTER = 1e-12


class HasPoints(Protocol):
    """A model whose columns are kernels at points."""

    @property
    def kernel(self) -> Kernel:
        """The kernel of the columns."""
        ...

    @property
    def points(self) -> Any:
        """The points (p, d), after scaling."""
        ...

    @property
    def scaling(self) -> Scaling:
        """The scaling of rows."""
        ...


def centres_of(model: HasPoints) -> Any:
    """Return the rows (p, d) whose kernels span the functions of a model, each once."""
    return model.kernel.centres(model.points) if isinstance(model.kernel, TreeAverage) else model.points


class PosteriorFactor:
    """The factor of ``(K_mm + m alpha I)^-1`` for at most 2,000 points of a model, drawn at random of more.

    Holds an (m, m) matrix of float64: at most 32 MB.
    """

    def __init__(self, model: HasPoints, alpha: float) -> None:
        centres = centres_of(model)
        p = int(centres.shape[0])
        chosen = np.sort(generator(0, _STREAM).permutation(p)[:MOST_POINTS])
        Z = centres[chosen] if p > MOST_POINTS else centres
        Z = Z.astype(np.float64)
        self._model, self._points = model, model.kernel.points(Z, model.kernel.placement_for(Z))
        gram = model.kernel.block(Z, self._points)
        index = np.arange(len(gram))
        gram[index, index] = model.kernel.diagonal(Z)
        gram[index, index] += len(gram) * alpha + _JITTER * float(np.trace(gram))
        try:
            self._inverse: FloatArray = np.linalg.inv(np.linalg.cholesky(gram))
        except np.linalg.LinAlgError:
            raise DataError(
                "the kernel matrix of the model's points is not positive definite, so the posterior variance cannot be "
                "computed; fit with a larger alpha, or with scaled features"
            ) from None

    def __len__(self) -> int:
        """Return the number of points m."""
        return len(self._inverse)

    def variance(self, X: HostArray, *, scaled: bool = False) -> FloatArray:
        """Return the posterior variances (n,) of rows, in units of the prior's amplitude."""
        model, found = self._model, np.empty(X.shape[0])
        for part in slices(X.shape[0], _BLOCK):
            block: Any = X[part]
            if is_sparse(block) and model.scaling.shifts and not scaled:
                block = block.toarray()  # the points are dense too
            rows = block.astype(np.float64) if scaled else model.scaling.apply(block, np.dtype(np.float64))
            cross = self._inverse @ model.kernel.block(rows, self._points).T
            found[part] = np.clip(model.kernel.diagonal(rows) - (cross**2).sum(axis=0), 0, None)
        return found
