"""Downsampling of a growing series of points to a bounded number, from the first point to the last."""

from collections.abc import Callable
from typing import Any, TypeAlias

Point: TypeAlias = tuple[Any, ...]


class Downsampled:
    """At most `most` of the added points, evenly chosen, and always the last one."""

    def __init__(self, most: int) -> None:
        self._most, self._stride, self._next = most, 1, 0
        self._kept: list[Point] = []
        self._last: list[Point] = []
        """The last point, if it is not among the kept ones."""

    @property
    def points(self) -> list[Point]:
        """The kept points, oldest first. A new list."""
        return self._kept + self._last

    @property
    def last(self) -> Point | None:
        """The last point; None before the first."""
        return next(iter(self._last or self._kept[-1:]), None)

    def add(self, point: Point) -> None:
        """Add a point after all others."""
        number = self._next
        self._next += 1
        if number % self._stride:
            self._last = [point]
            return
        self._last = []
        self._kept.append(point)
        if len(self._kept) >= self._most:
            self._last = self._kept[-1:] if len(self._kept) % 2 == 0 else []
            self._kept = self._kept[::2]
            self._stride *= 2

    def keep_while(self, wanted: Callable[[Point], bool]) -> None:
        """Drop the points that are not `wanted`."""
        self._kept = [point for point in self._kept if wanted(point)]
        self._last = [point for point in self._last if wanted(point)]
        self._next = len(self._kept) * self._stride
