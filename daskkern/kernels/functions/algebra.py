"""Sums, products and positive multiples of kernels.

Members that use rows in the same coordinates form one formula: one pass, compiled. Otherwise each fills a tile, also
where some members need shifted rows and others must not shift them.
"""

import operator
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from types import ModuleType
from typing import Any, ClassVar, Self

import numpy as np

from daskkern.arrays import Array, FloatArray
from daskkern.backend.namespace import namespace_of
from daskkern.backend.tiles import TILE_ROWS, slices
from daskkern.errors import SpecError
from daskkern.kernels.base import Kernel, Spec
from daskkern.kernels.engines import tiled
from daskkern.kernels.engines.dispatch import Engine, Tiled
from daskkern.kernels.formula import Expression, Pair
from daskkern.kernels.parameters import positive
from daskkern.kernels.points import PLAIN, Left, Placement, Points, cut_blocks
from daskkern.kernels.precision import Precision, agreed_dtype
from daskkern.kernels.rounding import Rounding
from daskkern.kernels.rows import as_rows


@dataclass(frozen=True)
class Composite(Kernel):
    """A kernel made of others."""

    @property
    @abstractmethod
    def members(self) -> tuple[Kernel, ...]:
        """The kernels it is made of."""

    @abstractmethod
    def combine(self, values: Sequence[Any]) -> Any:
        """Return the value for the members' values, which are expressions or arrays."""

    @abstractmethod
    def with_members(self, members: tuple[Kernel, ...]) -> Self:
        """Return the same composite of other members."""

    def formula(self, pair: Pair) -> Expression:
        combined: Expression = self.combine([member.formula(pair) for member in self.members])
        return combined

    def check_rows(self, rows: Array) -> None:
        for member in self.members:
            member.check_rows(rows)

    def resolve(self, sample: Array) -> Self:
        return self.with_members(tuple(member.resolve(sample) for member in self.members))

    @property
    def categories(self) -> tuple[int, ...]:
        return tuple(sorted({column for member in self.members for column in member.categories}))

    def with_categories(self, columns: Sequence[int]) -> Self:
        return self.with_members(tuple(member.with_categories(columns) for member in self.members))

    def caps(self, n_features: int) -> FloatArray | None:
        return self.members[0].caps(n_features)

    def transform(self, rows: Array) -> Array:
        return self.members[0].transform(rows)

    @cached_property
    def coordinates(self) -> Any:
        first, *others = (member.coordinates for member in self.members)
        return first if all(other == first for other in others) else None

    @property
    def has_units(self) -> bool:
        return any(member.has_units for member in self.members)

    @property
    def is_shift_invariant(self) -> bool:
        return all(member.is_shift_invariant for member in self.members)

    def shift_for(self, Z: Array) -> Array | None:
        shifts = (member.shift_for(Z) for member in self.members)
        return next((shift for shift in shifts if shift is not None), None)

    def rounding(self, Z: Array, dtype: object = np.float32) -> Rounding:
        if self.coordinates is not None and self.is_shift_invariant:
            return super().rounding(Z, dtype)
        return max((member.rounding(Z, dtype) for member in self.members), key=lambda one: one.error / one.tolerance)

    def points(
        self,
        Z: Array,
        placement: Placement = PLAIN,
        blocks: Sequence[slice] | None = None,
        *,
        dtype: object = None,
        precision: Precision | None = None,
    ) -> Points:
        Z = as_rows(Z, agreed_dtype(precision, dtype))
        whole = self.coordinates is not None and (placement.shift is None or self.is_shift_invariant)
        if whole or placement.becomes_float64(Z.dtype, precision):
            return super().points(Z, placement, blocks, precision=precision, dtype=Z.dtype)
        parts = tuple(
            member.points(Z, _own_placement(member, placement), blocks, dtype=Z.dtype, precision=precision)
            for member in self.members
        )
        cuts = cut_blocks(Z.shape[0], blocks)
        return Points(Z.shape[0], Z.shape[1], Z.dtype, placement, cuts, parts=parts, precision=precision)

    def left(self, X: Array, right: Points) -> Left:
        if not right.parts:
            return super().left(X, right)
        X = as_rows(X, right.dtype)
        pairs = zip(self.members, right.parts, strict=True)
        return Left(X.shape, X.dtype, parts=tuple(member.left(X, part) for member, part in pairs))

    def diagonal(self, X: Array) -> Array:
        return self.combine([member.diagonal(X) for member in self.members])

    def _engine(self, left: Left, right: Points, *, same: bool = False) -> Engine:
        if not right.parts:
            return super()._engine(left, right, same=same)
        return Tiled(self._fill(left, right), left.shape[0], right.blocks)

    def _fill(self, left: Left, right: Points) -> tiled.Fill:
        if not right.parts:
            return super()._fill(left, right)
        fills = [
            member._fill(mine, theirs)
            for member, mine, theirs in zip(self.members, left.parts, right.parts, strict=True)
        ]

        def fill(rows: slice, k: int, out: Array) -> None:
            values = [namespace_of(out).empty(out.shape, out.dtype) for _ in fills]
            for one, value in zip(fills, values, strict=True):
                one(rows, k, value)
            out[...] = self.combine(values)

        return fill

    def _namespace(self, left: Left) -> ModuleType:
        return self.members[0]._namespace(left.parts[0]) if left.parts else super()._namespace(left)


@dataclass(frozen=True)
class Sum(Composite):
    """``k(x, z) = k_1(x, z) + k_2(x, z) + ...``, written ``k_1 + k_2``."""

    name: ClassVar[str] = "sum"

    kernels: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", _flat(Sum, self.kernels))

    @property
    def members(self) -> tuple[Kernel, ...]:
        return self.kernels

    def combine(self, values: Sequence[Any]) -> Any:
        return reduce(operator.add, values)

    def with_members(self, members: tuple[Kernel, ...]) -> Self:
        return replace(self, kernels=members)

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        total: Array = reduce(operator.add, (member.gradient_matvec(X, Z, A, weights) for member in self.members))
        return total

    def spec(self) -> Spec:
        return {"name": self.name, "kernels": [kernel.spec() for kernel in self.kernels]}


@dataclass(frozen=True)
class Product(Composite):
    """``k(x, z) = k_1(x, z) k_2(x, z) ...``, written ``k_1 * k_2``."""

    name: ClassVar[str] = "product"

    kernels: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "kernels", _flat(Product, self.kernels))

    @property
    def members(self) -> tuple[Kernel, ...]:
        return self.kernels

    def combine(self, values: Sequence[Any]) -> Any:
        return reduce(operator.mul, values)

    def with_members(self, members: tuple[Kernel, ...]) -> Self:
        return replace(self, kernels=members)

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        """Return the gradients by the product rule, whose other factors are weights; see the base class."""
        parts = []
        for rows in slices(X.shape[0], TILE_ROWS):
            values = [member.block(X[rows], Z) for member in self.members]
            own = [] if weights is None else [weights[rows]]
            parts.append(
                sum(
                    member.gradient_matvec(X[rows], Z, A, reduce(operator.mul, [*own, *values[:k], *values[k + 1 :]]))
                    if own or len(values) > 1
                    else member.gradient_matvec(X[rows], Z, A)
                    for k, member in enumerate(self.members)
                )
            )
        return namespace_of(*parts).concatenate(parts)

    def spec(self) -> Spec:
        return {"name": self.name, "kernels": [kernel.spec() for kernel in self.kernels]}


@dataclass(frozen=True)
class Scaled(Composite):
    """``factor * kernel`` for a positive number `factor`."""

    name: ClassVar[str] = "scaled"

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        _check(self.name, self.kernel)
        object.__setattr__(self, "factor", _factor(self.factor))

    @property
    def members(self) -> tuple[Kernel, ...]:
        return (self.kernel,)

    def combine(self, values: Sequence[Any]) -> Any:
        return values[0] * self.factor

    def with_members(self, members: tuple[Kernel, ...]) -> Self:
        return replace(self, kernel=members[0])

    def gradient_matvec(self, X: Array, Z: Array, A: Array, weights: Array | None = None) -> Array:
        return self.factor * self.kernel.gradient_matvec(X, Z, A, weights)

    def spec(self) -> Spec:
        return {"name": self.name, "factor": self.factor, "kernel": self.kernel.spec()}


def _own_placement(member: Kernel, placement: Placement) -> Placement:
    """Return the placement for a member: a composite passes the shift on to its own members."""
    return placement if isinstance(member, Composite) or member.is_shift_invariant else PLAIN


def _flat(kind: type[Sum] | type[Product], kernels: object) -> tuple[Kernel, ...]:
    given = tuple(kernels) if isinstance(kernels, list | tuple) else (kernels,)
    flat: list[Kernel] = []
    for kernel in given:
        _check(kind.name, kernel)
        flat += kernel.kernels if isinstance(kernel, kind) else (kernel,)
    if not flat:
        raise SpecError(f"got a {kind.name} of no kernels; give at least one")
    return tuple(flat)


def _check(name: str, kernel: object) -> None:
    if not isinstance(kernel, Kernel):
        raise SpecError(f"got {kernel!r:.60} for the {name} kernel, which is not a kernel")


def _factor(value: object) -> float:
    if isinstance(value, bool):
        raise SpecError(f"got factor={value!r} for the scaled kernel; give a positive finite number")
    return positive("scaled", "factor", value)  # type: ignore[arg-type]


def _add(one: Kernel, other: object) -> Kernel:
    return Sum((one, other))  # type: ignore[arg-type]


def _multiply(one: Kernel, other: object) -> Kernel:
    if isinstance(other, Kernel):
        return Product((one, other))
    if isinstance(one, Scaled):
        return Scaled(one.kernel, one.factor * _factor(other))
    return Scaled(one, other)  # type: ignore[arg-type]


Kernel.algebra.update({"sum": _add, "product": _multiply})
