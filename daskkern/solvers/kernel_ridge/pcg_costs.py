"""The bytes of preconditioned conjugate gradient: vectors of all rows, and a preconditioner of low rank."""

from dataclasses import dataclass, replace

from daskkern.solvers.costs.columns import ColumnCosts
from daskkern.solvers.costs.primitives import matvec_bytes, padded, points_bytes
from daskkern.solvers.costs.sizes import FitSizes, MethodMemory


@dataclass(frozen=True)
class SketchCosts(ColumnCosts):
    """The arithmetic of PCG with a preconditioner of `sketch` columns, at least 1."""

    sketch: int = 1

    def memory(self, z: FitSizes) -> MethodMemory:
        s = self.sketch
        made = matvec_bytes(z.own, s, z.d, s, z.within, z.threads) + points_bytes(s, z.d, z.within)
        return replace(
            super().memory(z),
            device=(("preconditioner", z.own * s * 2 * z.itemsize + 6 * s**2 * 8),),
            coefficients=(18 * z.own + 4 * z.n) * padded(z.c) * 8,  # vectors of own rows and of all
            before_host=0,
            before_device=made + 3 * z.own * s * 8,
        )
