"""The scikit-learn surface."""

from daskkern.estimators.classifier import KernelClassifier
from daskkern.estimators.features import KernelFeatures
from daskkern.estimators.regressor import KernelRegressor

__all__ = ["KernelClassifier", "KernelFeatures", "KernelRegressor"]
