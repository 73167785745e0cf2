"""Steps of the solvers by precision: seconds, TFLOP/s, share of the ceiling, launches, waits, share of time at work.

Flops are the useful ones of a pass over n rows: ``2 n p (d + 2 c)``, a block of kernel values that is made once and
multiplied twice, and ``2 p^2 (d + c)`` for each iteration of projections that iterate. Projections by a factor,
corrections and blocks that are made again count as time only. The first epoch compiles, the second one is timed, the
last one is traced.
"""

from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.basis import Landmarks
from daskkern.kernels import Gaussian, Laplacian
from daskkern.losses import Squared
from daskkern.solvers import EigenPro, Falkon, NystromSGD, Solver
from daskkern.training.run.settings import FitSettings
from on_gpu.fitting import generated, measured
from on_gpu.sizes import Fit, Sizes

PRECISIONS = ("float32", "tf32", "float16")
_EPOCHS = {"eigenpro_262k": 2}  # others 3: its projections take most of the time
Records = Iterator[tuple[str, dict[str, Any]]]


def eigenpro_10k(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield the steps of EigenPro with 10,000 landmarks and 784 features."""
    return _steps("eigenpro_10k", EigenPro(), xp, sizes, where, ceilings)


def eigenpro_262k(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield the steps of EigenPro with 262,144 landmarks and 2,048 features: one window, with its projection."""
    size = sizes.steps["eigenpro_262k"]
    window = max(1, size.n // (size.batch or size.n))
    return _steps("eigenpro_262k", EigenPro(window=window, projection="eigenpro"), xp, sizes, where, ceilings)


def falkon(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield the iterations of Falkon, each a pass over the rows."""
    return _steps("falkon", Falkon(), xp, sizes, where, ceilings)


def nystrom_sgd(xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]) -> Records:
    """Yield the steps of Nystrom-SGD."""
    return _steps("nystrom_sgd", NystromSGD(mode="streamed"), xp, sizes, where, ceilings)


def _steps(
    name: str, solver: Solver[Any], xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]
) -> Records:
    size = sizes.steps[name]
    source = generated(size.n, size.d, size.c)
    points = np.random.default_rng(size.p).standard_normal((size.p, size.d), np.float32)
    length = float(size.d) ** 0.5
    kernel = Gaussian(length) if name == "falkon" else Laplacian(length)
    for precision in PRECISIONS:
        settings = FitSettings(
            kernel, Squared(), Landmarks(size.p, points=points), solver, 1e-6 if name == "falkon" else 0.0,
            max_epochs=_EPOCHS.get(name, 3), batch_size=size.batch or "auto", device=where, precision=precision,
            keep_blocks="never",
        )  # fmt: skip
        record = measured(source, settings, traced=hasattr(xp, "cuda"))
        yield "steps", {"part": name, "precision": precision} | _rates(size, record, precision, ceilings) | record


def _rates(size: Fit, record: Mapping[str, Any], precision: str, ceilings: Mapping[str, float]) -> dict[str, Any]:
    """Return sizes, and the rates of the second epoch."""
    steps = -(-size.n // size.batch) if size.batch else 1
    timed = min(1, len(record["epoch_s"]) - 1)
    seconds = record["epoch_s"][timed]
    iterations = record.get("n_projection_iterations", [0] * (timed + 1))[timed]
    flops = 2.0 * size.n * size.p * (size.d + 2 * size.c) + 2.0 * size.p**2 * (size.d + size.c) * iterations
    rate = flops / seconds / 1e12
    about: dict[str, Any] = {
        "n": size.n, "d": size.d, "p": size.p, "c": size.c, "batch": size.batch,
        "step_ms": round(seconds / steps * 1e3, 3),
        "tflops": round(rate, 4),
    }  # fmt: skip
    if f"{precision}_tflops" in ceilings:
        about["share_of_ceiling"] = round(rate / ceilings[f"{precision}_tflops"], 4)
    return about
