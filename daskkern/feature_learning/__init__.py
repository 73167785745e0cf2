"""Feature learning: metrics of kernels from the gradients of a fitted function (recursive feature machines)."""

from daskkern.feature_learning.learning import LearnedKernel, learn_kernel
from daskkern.feature_learning.pending import PendingMetric
from daskkern.feature_learning.settings import METRICS, FeatureLearning, parse_feature_learning
from daskkern.feature_learning.trials import Candidate, TrainingSample

__all__ = [
    "METRICS",
    "Candidate",
    "FeatureLearning",
    "LearnedKernel",
    "PendingMetric",
    "TrainingSample",
    "learn_kernel",
    "parse_feature_learning",
]
