"""Falkon: :mod:`.solver` is the solver, :mod:`.squared` and :mod:`.newton` are its two iterations."""

from daskkern.solvers.falkon.setup import FalkonSetup, factor_setup
from daskkern.solvers.falkon.solver import Falkon

__all__ = ["Falkon", "FalkonSetup", "factor_setup"]
