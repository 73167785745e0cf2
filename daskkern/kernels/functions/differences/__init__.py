"""Kernels of a sum over features of functions of their differences; :mod:`.base` is their base class."""
