"""Whole fits on the device: shaped like SUSY, like EigenPro 4's largest models, and like Fashion-MNIST."""

from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.events import EpochFinished, Event, StageFinished
from daskkern.kernels import Gaussian, Laplacian
from daskkern.losses import Loss, Squared, SquaredHinge
from daskkern.solvers import EigenPro
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import fit
from daskkern.training.run.settings import FitSettings
from on_gpu.sizes import TINY, Sizes

_PAPER_SUSY = {"setup_s": 4941, "epoch_s": 390, "on": "24 cores"}
_PAPER_EIGENPRO_4 = {"epoch_s": {"p = 65536": 271, "p = 262144": 406}, "rows": 5_000_000, "on": "one A100"}


def susy(sizes: Sizes, device: str) -> dict[str, Any]:
    """Fit generated rows of SUSY's shape with landmarks and the squared hinge."""
    n, d, p, epochs = sizes.susy
    source = _generated(n, d, 2)
    record = _timed(source, Landmarks(p), SquaredHinge(), Gaussian(4.0), EigenPro(step_scale=1.5), epochs, device)
    return record | {"n": n, "d": d, "p": p, "paper": _PAPER_SUSY}


def fashion_mnist(sizes: Sizes, device: str) -> dict[str, Any]:
    """Fit generated rows of Fashion-MNIST's shape with all rows as centres."""
    n, d, c, epochs = sizes.fashion
    source = _generated(n, d, c)
    kernel = Laplacian(float(d) ** 0.5)
    record = _timed(source, AllRows(), Squared(), kernel, EigenPro(step_scale=1.5), epochs, device)
    return record | {"n": n, "d": d}


def eigenpro_step(sizes: Sizes, device: str, which: int) -> dict[str, Any]:
    """Time one window of EigenPro 4 with its projection, and extrapolate to an epoch over 5 million rows.

    The first epoch compiles; the second one counts. It is one window: the rows between two projections. The batch is
    given, not the critical one, because generated rows have no meaningful spectrum.
    """
    d, models, c, batch = sizes.eigenpro
    p = models[which]
    window = max(1, round(p * min(1.0, (80.0 / d) ** 0.5) / batch))
    n = window * batch
    rng = np.random.default_rng(p)
    points = rng.standard_normal((p, d), np.float32)
    basis = Landmarks(p, points=points)
    solver = EigenPro(window=window, projection="eigenpro")
    record = _timed(_generated(n, d, c), basis, Squared(), Laplacian(float(d) ** 0.5), solver, 2, device, batch)
    seconds = record["epoch_s"][-1]
    extrapolated = round(seconds / n * _PAPER_EIGENPRO_4["rows"], 1)  # type: ignore[operator]
    return record | {
        "p": p, "d": d, "batch": batch, "window_batches": window, "rows": n,
        "epoch_of_5_million_rows_s": extrapolated,
        "paper": _PAPER_EIGENPRO_4,
    }  # fmt: skip


def _generated(n: int, d: int, classes: int) -> ArraySource:
    rng = np.random.default_rng(n)
    X: HostArray = rng.standard_normal((n, d), np.float32)
    values = X[:, 0] + np.sin(2 * X[:, 1])
    y = np.digitize(values, np.quantile(values[:100_000], np.arange(1, classes) / classes))
    names = tuple(str(code) for code in range(classes))
    return ArraySource(X, y, None, SourceInfo(n, d, "classification", names, Scaling(), None, 1, True))


def _timed(
    source: ArraySource,
    basis: BasisSpec,
    loss: Loss,
    kernel: Any,
    solver: EigenPro,
    epochs: int,
    device: str,
    batch: int | None = None,
) -> dict[str, Any]:
    events: list[Event] = []
    small = source.info.n_rows <= TINY.susy[0]
    size: int | str = "auto" if batch is None and not small else batch or 32
    settings = FitSettings(
        kernel, loss, basis, solver, 0.0, max_epochs=epochs, batch_size=size, dtype="float32", device=device
    )
    result = fit(source, settings, listener=events.append)
    stages = {event.stage: round(event.seconds, 3) for event in events if isinstance(event, StageFinished)}
    done = [event for event in events if isinstance(event, EpochFinished)]
    seconds = [round(event.seconds, 4) for event in done]
    return {
        "setup_s": stages,
        "epoch_s": seconds,
        "total_s": round(sum(stages.values()) + sum(seconds), 2),
        "losses": [float(event.loss) for event in done],
        "reason": result.finished.reason,
    }
