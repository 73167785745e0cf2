"""Whole fits on the device: shaped like SUSY, CIFAR-5M and Fashion-MNIST, and with cached kernel blocks."""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.kernels import Gaussian, Kernel, Laplacian
from daskkern.losses import Loss, Squared, SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.run.settings import FitSettings
from on_gpu.fitting import generated, measured
from on_gpu.sizes import Fit, Sizes

_PAPER_SUSY = {"setup_s": 4941, "epoch_s": 390, "on": "24 cores"}
_PAPER_EIGENPRO_4 = {"epoch_s": 271, "p": 65_536, "n_rows": 5_000_000, "on": "one A100"}
_ROWS_OF_CIFAR_5M = 5_000_000
Records = Iterator[tuple[str, dict[str, Any]]]


def susy(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield a fit with landmarks and the squared hinge."""
    del xp, ceilings
    of = sizes.susy
    settings = _settings(of, Landmarks(of.p), SquaredHinge(), Gaussian(4.0), sizes.epochs_of_susy, where)
    yield "susy", _about(of) | measured(generated(of.n, of.d, of.c), settings) | {"paper": _PAPER_SUSY}


def cifar5m(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield two epochs over a part of the rows, and what an epoch over all would take.

    The batch is given, not the critical one, because generated rows have no meaningful spectrum.
    """
    del xp, ceilings
    of = sizes.cifar5m
    points = np.random.default_rng(of.p).standard_normal((of.p, of.d), np.float32)
    kernel = Laplacian(float(of.d) ** 0.5)
    settings = _settings(of, Landmarks(of.p, points=points), Squared(), kernel, 2, where, keep_blocks="never")
    record = measured(generated(of.n, of.d, of.c), settings)
    record["epoch_of_5_million_rows_s"] = round(record["epoch_s"][-1] / of.n * _ROWS_OF_CIFAR_5M, 1)
    yield "cifar5m", _about(of) | record | {"paper": _PAPER_EIGENPRO_4}


def fashion_mnist(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield a fit with all rows as centres."""
    del xp, ceilings
    of = sizes.fashion
    settings = _settings(of, AllRows(), Squared(), Laplacian(float(of.d) ** 0.5), 5 if of.batch is None else 2, where)
    yield "fashion_mnist", _about(of) | measured(generated(of.n, of.d, of.c), settings)


def kept_blocks(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield epochs that compute kernel blocks, read them from memory, and read them from the disk."""
    del xp, ceilings
    of = sizes.kept
    source = generated(of.n, of.d, of.c)
    for keep in ("never", "memory", "disk"):
        settings = _settings(of, Landmarks(of.p), Squared(), Gaussian(float(of.d) ** 0.5), 3, where, keep_blocks=keep)
        yield "kept_blocks", {"keep_blocks": keep} | _about(of) | measured(source, settings)


def _settings(
    of: Fit, basis: BasisSpec, loss: Loss, kernel: Kernel, epochs: int, where: str, keep_blocks: str = "auto"
) -> FitSettings:
    return FitSettings(
        kernel, loss, basis, EigenPro(step_scale=1.5), max_epochs=epochs, batch_size=of.batch or "auto", device=where,
        keep_blocks=keep_blocks,
    )  # fmt: skip


def _about(of: Fit) -> dict[str, Any]:
    return {"n": of.n, "d": of.d, "p": of.p or of.n, "c": of.c, "batch": of.batch}
