"""Preconditioners."""

from daskkern.preconditioners.column_statistics import ColumnStatistics, column_statistics
from daskkern.preconditioners.eigenpro import EigenProPart, EigenProState, SpectrumSettings, eigenpro_state
from daskkern.preconditioners.falkon import FalkonPart
from daskkern.preconditioners.low_rank import LowRankPart, low_rank_part, nystrom_factor
from daskkern.preconditioners.nystrom import NystromPart, NystromState, nystrom_state

__all__ = [
    "ColumnStatistics",
    "EigenProPart",
    "EigenProState",
    "FalkonPart",
    "LowRankPart",
    "NystromPart",
    "NystromState",
    "SpectrumSettings",
    "column_statistics",
    "eigenpro_state",
    "low_rank_part",
    "nystrom_factor",
    "nystrom_state",
]
