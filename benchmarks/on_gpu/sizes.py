"""Sizes of the parts of the GPU benchmark, full and tiny."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fit:
    """Rows, features, landmarks, outputs, and rows of a batch (None: as the solver chooses)."""

    n: int
    d: int
    p: int
    c: int
    batch: int | None = None


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
    places : int
        Values of the block whose end is checked.
    steps : mapping from the part to Fit
        Whose steps are timed.
    susy, cifar5m, kept, fashion : Fit
        Fits; all rows are centres in the last one.
    epochs_of_susy : int
    streamed : (n, d, rows of a batch)
    """

    features: tuple[int, ...]
    rows: int
    points: int
    outputs: int
    matrix: int
    copied: int
    places: int
    steps: dict[str, Fit]
    susy: Fit
    epochs_of_susy: int
    cifar5m: Fit
    kept: Fit
    fashion: Fit
    streamed: tuple[int, int, int]


FULL = Sizes(
    features=(9, 18, 54, 64, 128, 784),
    rows=65_536,
    points=65_536,
    outputs=10,
    matrix=16_384,
    copied=4 << 30,
    places=2**31 + 2**20,
    steps={
        "eigenpro_10k": Fit(131_072, 784, 10_000, 10, 4096),
        "eigenpro_262k": Fit(32_768, 2048, 262_144, 10, 8192),
        "falkon": Fit(262_144, 128, 10_000, 10),
        "nystrom_sgd": Fit(131_072, 784, 10_000, 10, 4096),
    },
    susy=Fit(4_000_000, 18, 5000, 2),
    epochs_of_susy=5,
    cifar5m=Fit(163_840, 1280, 65_536, 10, 8192),
    kept=Fit(131_072, 128, 20_000, 10, 4096),
    fashion=Fit(60_000, 784, 0, 10),
    streamed=(1_000_000, 128, 8192),
)
TINY = Sizes(
    features=(9, 128),
    rows=300,
    points=200,
    outputs=3,
    matrix=64,
    copied=1 << 16,
    places=1 << 12,
    steps={
        "eigenpro_10k": Fit(120, 16, 60, 3, 40),
        "eigenpro_262k": Fit(120, 32, 90, 3, 40),
        "falkon": Fit(200, 8, 40, 3),
        "nystrom_sgd": Fit(120, 16, 40, 3, 40),
    },
    susy=Fit(600, 18, 50, 2, 32),
    epochs_of_susy=2,
    cifar5m=Fit(120, 32, 60, 3, 40),
    kept=Fit(200, 8, 40, 3, 40),
    fashion=Fit(200, 32, 0, 3, 32),
    streamed=(500, 8, 64),
)
