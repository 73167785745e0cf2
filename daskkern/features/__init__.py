"""Explicit feature maps whose inner products are kernels, or nearly so."""

from daskkern.features.fourier import FourierFeatures

__all__ = ["FourierFeatures"]
