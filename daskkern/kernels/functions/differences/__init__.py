"""Kernels of sums over the features of what two rows differ in each: :mod:`.base` is their base class."""
