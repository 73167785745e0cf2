"""Explicit feature maps whose inner products are kernels, or nearly so."""

from daskkern.features.columns import KINDS, random_columns
from daskkern.features.fourier import FourierFeatures

__all__ = ["KINDS", "FourierFeatures", "random_columns"]
