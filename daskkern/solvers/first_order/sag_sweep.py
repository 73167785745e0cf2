"""The sequential rows of a SAG or SAGA batch, as a recursion on (m, c) host arrays."""

from dataclasses import dataclass

from daskkern.arrays import FloatArray
from daskkern.losses import Loss
from daskkern.solvers.first_order.row_memory import BatchNumbers, weighted_loss

_MOST_DOUBLINGS = 60


@dataclass
class SlopeSweep:
    """The rows of a batch, one after the other.

    After some of them ``w = scale w_0 - shift D_0 + sum_i r_i x_i`` and ``D = D_0 + sum_i e_i x_i``; `z` and `zd`
    (m, c) are the scores of w and D on the batch's rows.
    """

    numbers: BatchNumbers
    loss: Loss
    alpha: float
    n: int
    z: FloatArray
    zd: FloatArray
    r: FloatArray
    e: FloatArray
    seen: int
    largest: float
    searched: float
    scale: float = 1.0
    shift: float = 0.0

    def slope(self, i: int) -> FloatArray:
        """Return ``w_i loss'(f(x_i))`` (1, c)."""
        row = slice(i, i + 1)
        result: FloatArray = self.numbers.weight[row] * self.loss.gradient(self.z[row], self.numbers.y[row])
        return result

    def visit(self, i: int, kappa: float, eta: float) -> None:
        """Take the step of row `i`; `kappa` 0 means ``1 / n``, with n, also of the mean, the rows seen so far."""
        row, column = slice(i, i + 1), self.numbers.gram[i][:, None]
        slope = self.slope(i)
        delta = slope - self.numbers.kept[row]
        self.numbers.kept[row] = slope
        self.seen = min(self.seen + 1, self.n)
        n = self.n if kappa else self.seen
        kappa, shrink = kappa or 1 / n, 1 - eta * self.alpha
        for iterate, mean, own in ((self.z, self.zd, column * delta), (self.r, self.e, None)):
            iterate *= shrink
            iterate -= (eta / n) * mean
            if own is None:
                iterate[row] -= (eta * kappa) * delta
                mean[row] += delta
            else:
                iterate -= (eta * kappa) * own
                mean += own
        self.scale, self.shift = self.scale * shrink, self.shift * shrink + eta / n

    def search(self, i: int) -> float:
        """Return the smoothness for row `i`: its loss must fall by ``|g|^2 |x|^2 / (2 L)`` with a step of ``1 / L``."""
        row, slope, square = slice(i, i + 1), self.slope(i), self.numbers.gram[i, i]
        y, weight, z = self.numbers.y[row], self.numbers.weight[row], self.z[row]
        size = float((slope**2).sum()) * square
        if size > 1e-8 * self.largest:
            value = weighted_loss(self.loss, z, y, weight)
            for _ in range(_MOST_DOUBLINGS):
                after = weighted_loss(self.loss, z - slope * (square / self.searched), y, weight)
                if after <= value - size / (2 * self.searched):
                    break
                self.searched *= 2
        result = self.searched
        self.searched *= 2 ** (-1 / self.n)
        return result
