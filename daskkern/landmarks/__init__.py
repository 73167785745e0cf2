"""Landmark selectors: one class, one file, one row in :data:`SELECTORS` each."""

from daskkern.errors import SpecError
from daskkern.landmarks.base import LandmarkSelector, LandmarkSet, first_occurrences
from daskkern.landmarks.k_means import KMeans
from daskkern.landmarks.stratified import Stratified
from daskkern.landmarks.uniform import Uniform

SELECTORS: dict[str, type[LandmarkSelector]] = {selector.name: selector for selector in (Uniform, Stratified, KMeans)}


def parse_selector(selector: str | LandmarkSelector) -> LandmarkSelector:
    """Return the selector of that name (or `selector` itself); SpecError lists the known names."""
    if isinstance(selector, LandmarkSelector):
        return selector
    if isinstance(selector, str) and selector in SELECTORS:
        return SELECTORS[selector]()
    raise SpecError(f"landmark selector {selector!r} is unknown. Known selectors: {', '.join(SELECTORS)}")


__all__ = [
    "SELECTORS",
    "KMeans",
    "LandmarkSelector",
    "LandmarkSet",
    "Stratified",
    "Uniform",
    "first_occurrences",
    "parse_selector",
]
