"""Landweber iteration for daskkern."""

from daskkern_landweber.solver import Landweber

__all__ = ["Landweber"]
