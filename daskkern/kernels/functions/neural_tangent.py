"""The neural tangent kernel of a fully connected network of rectified linear units."""

from dataclasses import dataclass
from typing import ClassVar

from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.formula import Expression, Pair, maximum
from daskkern.kernels.functions.arc_cosine import ramp_part, step_part
from daskkern.kernels.parameters import as_number

_DEEPEST = 16


@dataclass(frozen=True)
class NeuralTangent(Kernel):
    """``k(x, z) = |x| |z| q_depth(u_0)`` with ``u_0 = q_0 = cos(x, z)`` and, layer by layer,
    ``u_l = a_1(u_{l-1})``, ``q_l = u_l + q_{l-1} a_0(u_{l-1})``.

    ``a_0(u) = 1 - t/pi`` and ``a_1(u) = (sin t + (pi - t) cos t)/pi``, ``cos t = u``, are the arc-cosine kernels of
    unit rows. No bias; weights have variance 2 / width, which keeps norms. The diagonal is ``(depth + 1) |x|^2``. Zero
    rows give 0.

    Parameters
    ----------
    depth : int
        Hidden layers, 1 to 16.

    References
    ----------
    Jacot, Gabriel and Hongler, "Neural tangent kernel", NeurIPS 2018, theorem 1; the recursion as in Bietti and Mairal,
    "On the inductive bias of neural tangent kernels", NeurIPS 2019, section 3.1.
    """

    name: ClassVar[str] = "neural_tangent"

    depth: int = 1

    def __post_init__(self) -> None:
        depth = as_number(self.depth)
        if isinstance(self.depth, bool) or not (depth.is_integer() and 1 <= depth <= _DEEPEST):
            raise SpecError(
                f"got depth={self.depth!r} for the neural_tangent kernel; give a whole number from 1 to {_DEEPEST}"
            )
        object.__setattr__(self, "depth", int(depth))

    def formula(self, pair: Pair) -> Expression:
        u = q = pair.cosine
        for _ in range(self.depth):
            u, below = _at_most_1(ramp_part(u)), step_part(u)
            q = u + q * below
        return pair.norms * q

    def spec(self) -> Spec:
        return {"name": self.name, "depth": self.depth}


def _at_most_1(x: Expression) -> Expression:
    return -maximum(-x, -1)
