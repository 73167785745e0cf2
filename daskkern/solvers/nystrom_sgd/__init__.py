"""Nystrom-SGD."""

from daskkern.solvers.nystrom_sgd.setup import NystromSetup
from daskkern.solvers.nystrom_sgd.solver import NystromSGD

__all__ = ["NystromSGD", "NystromSetup"]
