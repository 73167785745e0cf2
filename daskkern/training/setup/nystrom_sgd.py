"""Set-up of Nystrom-SGD: its preconditioner, from a pass over all rows."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from daskkern.arrays import HostArray, IntArray
from daskkern.backend.namespace import exclusive_gpu, free_unused_memory, namespace_with, to_device, to_host
from daskkern.backend.tiles import slices
from daskkern.basis import KernelBasis
from daskkern.data.rows.rows import Rows
from daskkern.kernels import Kernel
from daskkern.landmarks import LandmarkSet
from daskkern.preconditioners import nystrom_state
from daskkern.training.feeding.row_source import RowSource
from daskkern.training.feeding.sampling import Sampling
from daskkern.training.feeding.targets import Targets
from daskkern.training.run.settings import FitSettings
from daskkern.training.setup.prepared import Clock, Prepared, training_rows
from daskkern.training.setup.row_sizes import RowSizes
from daskkern.training.setup.shared import batch_plan, held_out_rows, placement_of, present, tasks_of_a_pass
from daskkern.training.setup.window_rows import window_eigenvalue_ratio

_GRAM_ROWS = 4096
_GRAM_TIMES = 2


def prepare_nystrom(
    source: RowSource,
    rows: Rows,
    settings: FitSettings,
    targets: Targets,
    chosen: LandmarkSet,
    sampling: Sampling | None,
    validation: IntArray | None,
    clock: Clock,
) -> Prepared:
    Z, n = chosen.points, rows.n_rows
    block_H, weight_H = held_out_rows(rows, settings, targets, sampling, np.zeros(0, np.int64))
    sizes, ordinary = RowSizes.measured(settings, present(block_H), weight_H)
    directions = settings.solver.spectrum(Z.shape[0], n, explicit=False).directions
    shares = gram_shares(n, settings.virtual_shards or tasks_of_a_pass())
    state = nystrom_state(
        settings.kernel,
        Z,
        [
            _GramShare(source, settings.dtype, validation, settings.kernel, Z, targets, part, settings.device)
            for part in shares
        ],
        n,
        present(block_H)[ordinary],
        None if weight_H is None else weight_H[ordinary],
        directions,
        settings.device,
    )
    gram = partial(state.gram, settings.kernel, Z)
    alike = window_eigenvalue_ratio(rows, settings, targets, sampling, sizes, gram, Z.shape[0], Z.shape[0])
    state = replace(state, top=state.top * alike)
    rank = f"rank {state.preconditioner.size} of {Z.shape[0]}"
    clock.stage("spectrum", f"{rank}, critical batch {state.critical_batch:.0f}")
    plan = batch_plan(rows, settings, state.critical_batch, Z.shape[0], Z.shape[0])
    basis = KernelBasis(
        settings.kernel,
        Z.shape[0],
        np.zeros(0, np.int64),
        False,
        placement_of(settings.kernel, Z, settings, clock),
        settings.rounding,
    )
    own = Z if chosen.indices is None else None
    stages = tuple(clock.stages)
    return Prepared(
        basis, chosen.indices, own, Z[:0], state, targets, plan, 1, validation, stages, sampling, sizes=sizes
    )


def gram_shares(n: int, n_tasks: int) -> list[slice]:
    """Return the rows of each Gram task, for `n` rows and at most `n_tasks` tasks: whole blocks of 4,096 rows."""
    blocks = -(-n // _GRAM_ROWS)
    return slices(n, -(-blocks // n_tasks) * _GRAM_ROWS)


@dataclass(frozen=True, eq=False)
class _GramShare:
    """``sum w phi phi^T``, phi = T^T k(Z, x), over a share of the rows; one float64 (r, r) sum is held.

    On the worker's GPU, where `device` allows it and there is one with room.

    A share is made of whole blocks of `_GRAM_ROWS` rows, and each block's product is rounded by itself: in float32 the
    sum hardly depends on how many shares there are. With virtual shards there are as many as those.
    """

    source: RowSource
    dtype: str
    validation: IntArray | None
    kernel: Kernel
    Z: HostArray
    targets: Targets
    part: slice
    device: str

    def __call__(self, T: HostArray) -> HostArray:
        rows = training_rows(self.source.open(self.dtype), self.validation)
        xp = namespace_with(
            self.device, _GRAM_TIMES * (_GRAM_ROWS * self.Z.shape[0] + self.Z.size + T.size + T.shape[1] ** 2) * 8
        )
        with exclusive_gpu(xp):
            Z, T = to_device(self.Z, xp), xp.asarray(T)
            points = self.kernel.points(Z, self.kernel.placement_for(self.Z).on(xp))
            total = xp.zeros((T.shape[1], T.shape[1]))
        for start in range(self.part.start, self.part.stop, _GRAM_ROWS):
            block = rows.read(start, min(start + _GRAM_ROWS, self.part.stop))
            weight = self.targets.weight(block)
            with exclusive_gpu(xp):
                phi = self.kernel.block(to_device(present(block), xp), points) @ T
                total += phi.T @ (phi if weight is None else phi * xp.asarray(weight))
        made: HostArray = to_host(total)
        free_unused_memory(xp)
        return made
