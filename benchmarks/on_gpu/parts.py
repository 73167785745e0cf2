"""The parts of the GPU benchmark in their order: what each may take. The standard library alone."""

from dataclasses import dataclass

NAMES = {
    "batch": "n_batch_rows",
    "rows": "n_rows",
    "window_batches": "n_window_batches",
    "times_torch": "ratio_to_torch",
}
"""Names of records that state no unit, and those of the figures."""


@dataclass(frozen=True)
class Part:
    """A part of the run.

    Attributes
    ----------
    name : str
    limit_s : float
        Seconds after which its process is ended. About twice what an H200 took.
    times : bool
        Whether it times results of daskkern, which must be right.
    """

    name: str
    limit_s: float
    times: bool = True


PARTS = (
    Part("device", 30.0, times=False),
    Part("ceilings", 30.0, times=False),
    Part("correctness", 50.0, times=False),
    Part("sanitizer", 60.0, times=False),
    Part("products", 75.0),
    Part("eigenpro_10k", 40.0),
    Part("eigenpro_262k", 75.0),
    Part("falkon", 35.0),
    Part("nystrom_sgd", 60.0),
    Part("susy", 45.0),
    Part("cifar5m", 60.0),
    Part("streaming", 35.0),
    Part("kept_blocks", 45.0),
    Part("fashion_mnist", 45.0),
)
