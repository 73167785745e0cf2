"""The step and the batch that follow from the largest square and eigenvalue of preconditioned rows."""

_SAFETY = 0.99
_OVERSHOOT = 1.5


class StableSteps:
    """What states of preconditioners share. `beta` is the largest square of a row, `top` the largest eigenvalue l_P."""

    beta: float
    top: float

    @property
    def critical_batch(self) -> float:
        """``m* = beta / l_P``: beyond it a larger batch needs a step that is no longer per sample."""
        return self.beta / self.top

    def step_size(self, batch_size: int, smoothness: float, alpha: float = 0.0, excess: float = 0.0) -> float:
        """Return ``eta = m / (L max(b, (b + excess) / 1.5) + m alpha)``, times 0.99, with ``b = beta + (m - 1) l_P``.

        `excess` is what the rows of a batch add that are larger than all that beta and l_P were measured on. A step of
        1.5 over the largest curvature still halves the error along it. Up to there all batches have the same step:
        shorter ones would count their rows less.
        """
        m = batch_size
        usual = self.beta + (m - 1) * self.top
        return _SAFETY * m / (smoothness * max(usual, (usual + excess) / _OVERSHOOT) + m * alpha)
