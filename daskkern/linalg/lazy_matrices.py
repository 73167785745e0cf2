"""Kernel matrices and Gram sums as lazy, chunked dask.array expressions.

With a distributed client active (or inside a task's ``worker_client``) the blocks are computed by the cluster, in
another task by its thread, else by Dask's threads in this process. Nothing is computed before :func:`computed`.
"""

from collections.abc import Callable, Sequence

import dask.array as da
import numpy as np
from dask.delayed import delayed

from daskkern.arrays import HostArray
from daskkern.backend.current import occupies_worker
from daskkern.backend.namespace import exclusive_gpu, namespace_with, to_device, to_host
from daskkern.backend.task_names import task_name
from daskkern.backend.tiles import slices
from daskkern.kernels import Kernel, Placement

GRAM_CHUNK = 2048
_TIMES = 3


def computed(*arrays: da.Array) -> tuple[HostArray, ...]:
    """Return the values of lazy arrays, computed together. In a task by its own thread, unless it has seceded."""
    found: tuple[HostArray, ...] = da.compute(*arrays, scheduler="synchronous" if occupies_worker() else None)
    return found


def lazy_kernel_matrix(
    kernel: Kernel, X: HostArray, Z: HostArray, chunk: int = GRAM_CHUNK, device: str = "cpu"
) -> da.Array:
    """Return ``K(X, Z)`` as a lazy dask array (m, p) in blocks of `chunk`, in the dtype of `X`.

    Unless `device` is "cpu", a block is computed on the GPU of the worker that runs its task, if it has one. It is kept
    in host memory, where Dask may move and spill it, and where workers without a GPU can use it.

    `X` and `Z` are embedded in the graph once per block row or column, so they should be samples, not data sets.
    """
    placement = kernel.placement_for(Z)
    left = [delayed(X[rows], name=task_name("sample")) for rows in slices(X.shape[0], chunk)]
    right = [delayed(Z[cols], name=task_name("sample")) for cols in slices(Z.shape[0], chunk)]
    heights = [rows.stop - rows.start for rows in slices(X.shape[0], chunk)]
    widths = [cols.stop - cols.start for cols in slices(Z.shape[0], chunk)]
    one = delayed(_placed_block, pure=True)
    return da.block(
        [
            [
                da.from_delayed(
                    one(kernel, rows, cols, placement, device, dask_key_name=task_name("kernel_block")),
                    shape=(height, width),
                    dtype=X.dtype,
                    name=task_name("kernel_block"),
                )
                for cols, width in zip(right, widths, strict=True)
            ]
            for rows, height in zip(left, heights, strict=True)
        ]
    )


def lazy_gram_sum(parts: Sequence[Callable[[HostArray], HostArray]], T: HostArray) -> da.Array:
    """Return ``sum_g parts[g](T)`` as a lazy dask array (r, r) in float64, for `T` (p, r), which is sent once.

    Each part is one task that runs over its own share of the row chunks and keeps one running sum, so that a
    worker holds one Gram matrix, not one per chunk.
    """
    shared, shape = delayed(T, name=task_name("projector")), (T.shape[1], T.shape[1])
    sums = [delayed(part, pure=False)(shared, dask_key_name=task_name("gram_sum")) for part in parts]
    tasks = [da.from_delayed(s, shape=shape, dtype=np.float64, name=task_name("gram_sum")) for s in sums]
    total = tasks[0]
    for task in tasks[1:]:
        total = total + task
    return total


def _placed_block(kernel: Kernel, X: HostArray, Z: HostArray, placement: Placement, device: str) -> HostArray:
    xp = namespace_with(device, _TIMES * (X.shape[0] * Z.shape[0] + X.size + Z.size) * 8)
    with exclusive_gpu(xp):
        points = kernel.points(to_device(Z, xp), placement.on(xp))
        return to_host(kernel.block(to_device(X, xp), points))
