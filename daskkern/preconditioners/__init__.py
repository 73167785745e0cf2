"""Preconditioners."""

from daskkern.preconditioners.eigenpro import EigenProPart, EigenProState, SpectrumSettings, eigenpro_state
from daskkern.preconditioners.falkon import FalkonPart
from daskkern.preconditioners.nystrom import NystromPart, NystromState, nystrom_state

__all__ = [
    "EigenProPart",
    "EigenProState",
    "FalkonPart",
    "NystromPart",
    "NystromState",
    "SpectrumSettings",
    "eigenpro_state",
    "nystrom_state",
]
