"""Sizes of each section: full, and small for tests."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DenseSizes:
    """Every combination of features, kernels and outputs, on n rows and p points; `budget_s` for each."""

    n_rows: int = 4096
    n_points: int = 10_000
    n_features: tuple[int, ...] = (9, 18, 54, 128, 784)
    n_outputs: tuple[int, ...] = (1, 10)
    kernels: tuple[str, ...] = ("gaussian", "laplacian")
    budget_s: float = 10.0


@dataclass(frozen=True)
class SparseSizes:
    """Rows and words like the IMDB reviews; the dense path takes `block_rows` at a time."""

    n_rows: int = 25_000
    n_features: int = 10_000
    n_points: int = 5_000
    density: float = 0.007
    kernels: tuple[str, ...] = ("gaussian", "laplacian")
    block_rows: int = 2_500
    n_repeats: int = 3


@dataclass(frozen=True)
class ScalingSizes:
    """Growing numbers of rows, generated and multiplied by `block_rows`, each in `n_repeats` processes of its own."""

    n_rows: tuple[int, ...] = (10_000, 31_623, 100_000, 316_228, 1_000_000)
    n_points: int = 10_000
    n_features: int = 18
    block_rows: int = 50_000
    n_repeats: int = 3
    least_seconds: float = 1.0


@dataclass(frozen=True)
class Sizes:
    """The sizes of all sections."""

    dense: DenseSizes = DenseSizes()
    sparse: SparseSizes = SparseSizes()
    scaling: ScalingSizes = ScalingSizes()


FULL = Sizes()
TINY = Sizes(
    DenseSizes(n_rows=70, n_points=130, n_features=(9, 18), n_outputs=(1, 3), budget_s=0.2),
    SparseSizes(n_rows=90, n_features=200, n_points=40, density=0.05, block_rows=40, n_repeats=1),
    ScalingSizes(n_rows=(100, 300), n_points=50, n_features=5, block_rows=120, n_repeats=1, least_seconds=0.0),
)
