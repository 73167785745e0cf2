"""Nystrom-SGD: preconditioned SGD on Nystrom features, stored or computed batch by batch."""

from daskkern.solvers.nystrom_sgd.setup import NystromSetup
from daskkern.solvers.nystrom_sgd.solver import NystromSGD

__all__ = ["NystromSGD", "NystromSetup"]
