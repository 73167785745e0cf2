"""Systems: published methods as ready settings, and their comparison.

``daskkern.systems["falkon"].estimator`` is an estimator, ``list(daskkern.systems)`` has the names.
"""

import sys
from collections.abc import Iterator
from types import ModuleType

from daskkern.systems.comparing import Comparison, Curve, compare
from daskkern.systems.named import GROUPS, System
from daskkern.systems.sweeping import Sweep, SweepPoint, sweep
from daskkern.systems.table import SYSTEMS, system


class _SystemTable(ModuleType):
    """A module that is read like a mapping from names to systems."""

    def __getitem__(self, name: str) -> System:
        return system(name)

    def __iter__(self) -> Iterator[str]:
        return iter(SYSTEMS)

    def __len__(self) -> int:
        return len(SYSTEMS)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in SYSTEMS


sys.modules[__name__].__class__ = _SystemTable

__all__ = ["GROUPS", "SYSTEMS", "Comparison", "Curve", "Sweep", "SweepPoint", "System", "compare", "sweep", "system"]


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__name__"])
