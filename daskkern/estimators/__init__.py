"""The scikit-learn surface."""

from daskkern.estimators.classifier import KernelClassifier
from daskkern.estimators.regressor import KernelRegressor

__all__ = ["KernelClassifier", "KernelRegressor"]
