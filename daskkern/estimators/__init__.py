"""Estimators with the interface of scikit-learn."""

from daskkern.estimators.auto import AutoKernelClassifier, AutoKernelRegressor
from daskkern.estimators.classifier import KernelClassifier
from daskkern.estimators.features import KernelFeatures
from daskkern.estimators.regressor import KernelRegressor

__all__ = ["AutoKernelClassifier", "AutoKernelRegressor", "KernelClassifier", "KernelFeatures", "KernelRegressor"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
