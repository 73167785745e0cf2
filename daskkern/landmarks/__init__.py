"""Landmark selectors: one class, one file, one row in :data:`SELECTORS` each."""

from daskkern.backend.plugins import Registry, derived_from, unknown
from daskkern.landmarks.base import LandmarkSelector, LandmarkSet, first_occurrences
from daskkern.landmarks.incomplete_cholesky import IncompleteCholesky
from daskkern.landmarks.k_means import KMeans
from daskkern.landmarks.ridge_leverage import RidgeLeverage
from daskkern.landmarks.rp_cholesky import RPCholesky
from daskkern.landmarks.stratified import Stratified
from daskkern.landmarks.uniform import Uniform

_RULES = (Uniform, Stratified, KMeans, RPCholesky, RidgeLeverage, IncompleteCholesky)


SELECTORS: Registry[type[LandmarkSelector]] = Registry(
    {rule.name: rule for rule in _RULES},
    "daskkern.landmarks",
    derived_from(LandmarkSelector, "daskkern.landmarks.LandmarkSelector"),
)
"""Selectors by name: the rules above, and the classes that installed packages offer as ``daskkern.landmarks``."""


def parse_selector(selector: str | LandmarkSelector) -> LandmarkSelector:
    """Return the selector of that name (or `selector` itself); SpecError lists the known names."""
    if isinstance(selector, LandmarkSelector):
        return selector
    if isinstance(selector, str) and selector in SELECTORS:
        return SELECTORS[selector]()
    raise unknown("landmark selector", selector, str(selector), SELECTORS)


__all__ = [
    "SELECTORS",
    "IncompleteCholesky",
    "KMeans",
    "LandmarkSelector",
    "LandmarkSet",
    "RPCholesky",
    "RidgeLeverage",
    "Stratified",
    "Uniform",
    "first_occurrences",
    "parse_selector",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
