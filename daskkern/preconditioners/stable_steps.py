"""Stable step sizes and batch sizes, from the largest squared norm and the leading eigenvalue of the rows.

All methods whose steps are the longest stable ones on sampled rows take them from here, and shorten them for batches
with larger rows: see :mod:`daskkern.training.setup.row_sizes` for what is known of these before a step.
"""

from math import inf

from daskkern.arrays import HostArray

_SAFETY = 0.99
_OVERSHOOT = 1.5


class StableSteps:
    """Measurements on sampled rows: `beta`, the largest squared norm, and `top`, the largest eigenvalue l_P."""

    beta: float
    top: float

    @property
    def n_damped(self) -> int:
        """Directions that a preconditioner of low rank damps; 0 with others, or none."""
        return 0

    @property
    def feature_map(self) -> HostArray | None:
        """M (p, r), from kernel values to eigenfeatures that may be stored; None where there are none."""
        return None

    @property
    def critical_batch(self) -> float:
        """``m* = beta / l_P``: beyond it the step of a larger batch no longer grows in proportion to the batch."""
        return self.beta / self.top

    def step_size(self, batch_size: int, smoothness: float, alpha: float = 0.0, excess: float = 0.0) -> float:
        """Return ``eta = m / (L max(b, (b + excess) / 1.5) + m alpha)``, times 0.99, with ``b = beta + (m - 1) l_P``.

        `excess` is the contribution of those rows of the batch that are larger than all rows that beta and l_P were
        measured on. A step of 1.5 over the largest curvature still halves the error along its direction. Up to it all
        batches have the same step: a shorter one would reduce the weight of its rows.
        """
        m = batch_size
        usual = self.beta + (m - 1) * self.top
        return _SAFETY * m / (smoothness * max(usual, (usual + excess) / _OVERSHOOT) + m * alpha)

    def share(self, batch_size: int, smoothness: float, alpha: float, excess: float) -> float:
        """Return the factor of a batch's gradient where all batches have the same step: 1 without `excess`."""
        if not excess:
            return 1.0
        allowed = self.step_size(batch_size, smoothness, alpha, excess)
        return allowed / self.step_size(batch_size, smoothness, alpha)


def longest_step(m: int, squares: float, smoothness: float) -> float:
    """Return the longest step along the mean gradient of `m` rows whose squares ``w |phi(x)|^2`` sum to `squares`.

    It is 1.5 over their largest possible curvature.
    """
    return _OVERSHOOT * m / (smoothness * squares) if squares > 0 else inf
