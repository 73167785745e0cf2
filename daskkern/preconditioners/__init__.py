"""Preconditioners of EigenPro, Falkon and Nystrom-SGD, and the batch and step sizes that follow from them."""

from daskkern.preconditioners.batch_covariance_bound import batch_norm_bound
from daskkern.preconditioners.covariance import (
    MOST_DIRECTIONS,
    CovariancePart,
    CovarianceState,
    FeatureBlocks,
    covariance_state,
    gram_of,
)
from daskkern.preconditioners.eigenpro import EigenProPart, EigenProState, SpectrumSettings, eigenpro_state, usable
from daskkern.preconditioners.eigenpro_kernel import EigenProKernel
from daskkern.preconditioners.falkon import FalkonPart
from daskkern.preconditioners.low_rank import LowRankPart, Unconditioned, low_rank_part, nystrom_factor
from daskkern.preconditioners.nystrom import NystromPart, NystromState, nystrom_state
from daskkern.preconditioners.stable_steps import StableSteps, longest_step
from daskkern.preconditioners.unpreconditioned_steps import StepStatistics, column_statistics

__all__ = [
    "MOST_DIRECTIONS",
    "CovariancePart",
    "CovarianceState",
    "EigenProKernel",
    "EigenProPart",
    "EigenProState",
    "FalkonPart",
    "FeatureBlocks",
    "LowRankPart",
    "NystromPart",
    "NystromState",
    "SpectrumSettings",
    "StableSteps",
    "StepStatistics",
    "Unconditioned",
    "batch_norm_bound",
    "column_statistics",
    "covariance_state",
    "eigenpro_state",
    "gram_of",
    "longest_step",
    "low_rank_part",
    "nystrom_factor",
    "nystrom_state",
    "usable",
]
