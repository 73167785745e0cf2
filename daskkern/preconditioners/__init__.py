"""Preconditioners."""

from daskkern.preconditioners.eigenpro import EigenProPart, EigenProState, SpectrumSettings, eigenpro_state
from daskkern.preconditioners.nystrom import NystromPart, NystromState, nystrom_state

__all__ = [
    "EigenProPart",
    "EigenProState",
    "NystromPart",
    "NystromState",
    "SpectrumSettings",
    "eigenpro_state",
    "nystrom_state",
]
