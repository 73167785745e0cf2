"""Explicit feature maps whose inner products are kernels, or nearly so."""

from daskkern.features.columns import FOLLOWING, KINDS, random_columns, sketch_bytes
from daskkern.features.fourier import FourierFeatures

__all__ = ["FOLLOWING", "KINDS", "FourierFeatures", "random_columns", "sketch_bytes"]
