"""Training rows that are held aside as a sample, to measure the end of a fit on."""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.data.csr import FeatureRows
from daskkern.data.rows import Fields, Rows, take
from daskkern.training.targets import Targets


@dataclass(frozen=True, eq=False)
class HeldSample:
    """Training rows that the end of a fit is measured on.

    Attributes
    ----------
    X : (k, d) array, dense or CSR
    y : (k, c) array
        Encoded targets.
    weight : (k,) float64
        What a row counts in the mean over all training rows.
    labelled : bool
        The targets stand for classes.
    whole : bool
        They are all training rows.
    targets : Targets
        How `y` was encoded.
    """

    X: FeatureRows
    y: HostArray
    weight: FloatArray
    labelled: bool
    whole: bool
    targets: Targets

    @classmethod
    def of(cls, rows: Rows, X: FeatureRows, positions: IntArray, targets: Targets) -> "HeldSample":
        """Return the sample whose features `X` were read already at `positions`, ascending."""
        block = take(rows, positions, Fields.y | Fields.weight)
        assert block.y is not None
        weight = targets.weight(block)
        counts = np.ones(len(positions)) if weight is None else weight[:, 0].astype(np.float64)
        return cls(X, targets.encode(block.y), counts, targets.n_classes > 0, len(positions) == rows.n_rows, targets)
