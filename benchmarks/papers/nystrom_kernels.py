"""The kernels of Pfahler and Morik, Nystrom-SGD, ECML PKDD 2018, section 6.1."""

from collections.abc import Callable
from typing import Any

from contest.data import Data

from daskkern.kernels import ArcCosine, Gaussian, InversePolynomial, Kernel


def arc_cosine(data: Any) -> Kernel:
    """Return the arc-cosine kernel of degree 1."""
    return ArcCosine(1)


def inverse(data: Any) -> Kernel:
    """Return the inverse polynomial kernel on rows of length 1."""
    return InversePolynomial()


def rbf(data: Any) -> Kernel:
    """Return ``exp(-gamma r^2 / 2)`` for gamma = 1 / d."""
    return Gaussian(data.X.shape[1] ** 0.5)


NYSTROM_KERNELS: dict[str, Callable[[Data], Kernel]] = {"RBF": rbf, "ARC": arc_cosine, "INV": inverse}
"""By the names of the paper."""

SECONDS = "Theirs: two Xeon E5-2697v2, 24 cores, about 300 GB. Ours: one thread of a busy machine."
EIGENFEATURES = "The eigenfeatures that conditioning needs are computed either way here."
BLOCKS = "Kernel blocks are computed in every epoch."
