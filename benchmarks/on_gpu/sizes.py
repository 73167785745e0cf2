"""Sizes of the parts of the GPU benchmark, full and tiny."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Rows, points, features and outputs.

    Attributes
    ----------
    features : tuple of int
        d of the kernel products.
    rows, points, outputs : int
        m, p and c of the kernel products.
    matrix, copied : int
        Side of the matrix products and bytes of the copies that are the ceilings.
    susy : (n, d, p, epochs)
    eigenpro : (d, points of the two models, outputs, rows of a batch)
    fashion : (n, d, c, epochs)
    streamed : (n, d, rows of a batch)
    """

    features: tuple[int, ...]
    rows: int
    points: int
    outputs: int
    matrix: int
    copied: int
    susy: tuple[int, int, int, int]
    eigenpro: tuple[int, tuple[int, int], int, int]
    fashion: tuple[int, int, int, int]
    streamed: tuple[int, int, int]


FULL = Sizes(
    features=(9, 18, 54, 128, 784, 1280),
    rows=65_536,
    points=65_536,
    outputs=10,
    matrix=16_384,
    copied=4 << 30,
    susy=(4_000_000, 18, 5000, 5),
    eigenpro=(1280, (65_536, 262_144), 10, 8192),
    fashion=(60_000, 784, 10, 5),
    streamed=(1_000_000, 128, 8192),
)
TINY = Sizes(
    features=(9, 128),
    rows=300,
    points=200,
    outputs=3,
    matrix=64,
    copied=1 << 16,
    susy=(600, 18, 50, 2),
    eigenpro=(32, (60, 90), 3, 40),
    fashion=(200, 32, 3, 2),
    streamed=(500, 8, 64),
)
