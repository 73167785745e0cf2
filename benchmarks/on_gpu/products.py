"""Kernel products on the device, compared with its ceilings, torch and KeOps."""

import importlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from daskkern.arrays import HostArray
from daskkern.kernels import Gaussian
from on_gpu.clock import median_seconds
from on_gpu.sizes import Sizes


def products(
    xp: ModuleType, sizes: Sizes, where: str, ceilings: Mapping[str, float]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a record for each d: seconds, TFLOP/s, share of the roofline, and the peers' seconds.

    Flops are those of the two matrix products, ``2 m p (d + c)``. The roofline is the larger of their time at the
    measured rate of float32 products and the time of moving operands and results once at the measured rate of copies;
    it is left out where these were not measured.
    """
    del where
    m, p, c = sizes.rows, sizes.points, sizes.outputs
    for d in sizes.features:
        rng = np.random.default_rng(d)
        X, Z, A = (rng.standard_normal(shape, np.float32) for shape in ((m, d), (p, d), (p, c)))
        kernel = Gaussian(float(d) ** 0.5)
        points, rows, factor = kernel.points(xp.asarray(Z)), xp.asarray(X), xp.asarray(A)
        forward = median_seconds(xp, lambda k=kernel, x=rows, z=points, a=factor: k.matvec(x, z, a))
        gradient = xp.asarray(rng.standard_normal((m, c), np.float32))
        turned = median_seconds(xp, lambda k=kernel, x=rows, z=points, g=gradient: k.rmatvec(x, z, g))
        flops = 2.0 * m * p * (d + c)
        moved = 4.0 * ((m + p) * d + p * c) + 8.0 * m * c
        record: dict[str, Any] = {
            "d": d, "m": m, "p": p, "c": c,
            "seconds": forward,
            "transposed_seconds": turned,
            "tflops": round(flops / forward / 1e12, 3),
        }  # fmt: skip
        if ceilings:
            roofline = max(flops / (ceilings["float32_tflops"] * 1e12), moved / (ceilings["copy_gb_per_s"] * 1e9))
            record["share_of_roofline"] = round(roofline / forward, 3)
        del points, rows, factor, gradient
        if hasattr(xp, "cuda"):
            xp.get_default_memory_pool().free_all_blocks()  # for the peers
            record |= _peers(X, Z, A)
            if "torch_seconds" in record:
                record["times_torch"] = round(record["torch_seconds"] / forward, 2)
        yield "products", record


def _peers(X: HostArray, Z: HostArray, A: HostArray) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, seconds in (("torch", _torch_seconds), ("keops", _keops_seconds)):
        try:
            found[f"{name}_seconds"] = seconds(X, Z, A)
        except Exception as error:  # not installed, no memory, or no compiler: the others continue
            found[f"{name}_missing"] = f"{type(error).__name__}: {error}"[:200]
    return found


def _torch_seconds(X: HostArray, Z: HostArray, A: HostArray) -> float:
    """Time a straightforward torch product, in pieces of rows that fit on the device."""
    torch: Any = importlib.import_module("torch")
    torch.backends.cuda.matmul.allow_tf32 = False
    x, z, a = (torch.from_numpy(array).cuda() for array in (X, Z, A))
    scale = -1.0 / (2 * X.shape[1])

    def product() -> Any:
        norms = (z * z).sum(1)
        parts = []
        for part in x.split(8192):
            squared = (part * part).sum(1)[:, None] + norms - 2 * part @ z.T
            parts.append(torch.exp(squared.clamp(min=0) * scale) @ a)
        return torch.cat(parts)

    return median_seconds(_Waiter(torch.cuda.synchronize), product)  # type: ignore[arg-type]


def _keops_seconds(X: HostArray, Z: HostArray, A: HostArray) -> float:
    torch: Any = importlib.import_module("torch")
    keops: Any = importlib.import_module("pykeops.torch")
    x, z, a = (torch.from_numpy(array).cuda() for array in (X, Z, A))
    squared = ((keops.LazyTensor(x[:, None, :]) - keops.LazyTensor(z[None, :, :])) ** 2).sum(-1)
    K = (-squared / (2 * X.shape[1])).exp()
    return median_seconds(_Waiter(torch.cuda.synchronize), lambda: K @ a)  # type: ignore[arg-type]


class _Waiter:
    """The interface that the clock needs, for torch."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.cuda = self
        self.synchronize = synchronize

    def get_current_stream(self) -> "_Waiter":
        """Return an object to wait for."""
        return self
