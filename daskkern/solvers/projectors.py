"""Projection on many centres: EigenPro on the centres themselves, where a factor would not fit.

``K_ZZ t = h`` is least squares with all rows as centres, so the step is the one of :mod:`daskkern.solvers.eigenpro`
for all rows with the squared loss, on the batches of a fixed random order of the centres. The preconditioner of the
data serves again: S lies inside Z.

References
----------
Abedsoltan et al., "Fast training of large kernel models with delayed projections", NeurIPS 2025, section 4.
"""

from dataclasses import dataclass

import numpy as np

from daskkern.arrays import Array, HostArray
from daskkern.backend.communicator import Communicator, allgather_rows
from daskkern.backend.namespace import namespace_of
from daskkern.basis import KernelPart
from daskkern.kernels.products import multiply_transposed
from daskkern.preconditioners import EigenProPart, EigenProState


@dataclass(frozen=True)
class EigenProProjector:
    """Solve ``K_ZZ t = h`` by `epochs` passes of EigenPro from zero.

    Attributes
    ----------
    part : KernelPart
    rows : (p_r, d) array
        The rank's own centres, in the order of its columns.
    state, preconditioner
        The preconditioner of the data, and the rank's rows of it.
    batches : tuple of (b,) int64 arrays
        Column numbers of each batch, the same on every rank.
    epochs : int
    weights : (p, 1) array or None
        Weights of all centres, where the preconditioner has them - those of the samples, and those with which landmarks
        stand for all rows: its step is safe for the weighted problem only, whose solution is the same.
    """

    part: KernelPart
    rows: Array
    state: EigenProState
    preconditioner: EigenProPart
    batches: tuple[HostArray, ...]
    epochs: int = 2
    weights: Array | None = None

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of the solution; three collectives of (b, d), (b, c) and (q, c) a step."""
        xp = namespace_of(h)
        t = xp.zeros_like(h)
        n_head = self.part.columns.n_head
        for batch in self.batches * self.epochs:
            local, order = self._members(batch, comm)
            here, order = xp.asarray(local), xp.asarray(order)
            X = allgather_rows(self.rows[here], comm)[order]
            wanted = xp.concatenate(list(comm.allgather(h[here])))[order]
            head = xp.empty((batch.size, n_head), h.dtype)
            g = comm.allreduce(self.part.scores(X, t, head)).astype(h.dtype) - wanted
            if self.weights is not None:
                g *= self.weights[xp.asarray(batch)]
            eta = self.state.step_size(batch.size, 1.0)
            pulled = multiply_transposed(head, g, xp, self.part.columns.head_blocks)
            u = comm.allreduce(self.preconditioner.project(pulled, self.part.columns.head_blocks)).astype(h.dtype)
            own = np.isin(batch, self.part.columns.ids, assume_unique=True).nonzero()[0]
            t[xp.asarray(self._local(batch[own]))] -= (eta / batch.size) * g[xp.asarray(own)]
            t[:n_head] += (eta / batch.size) * self.preconditioner.apply(u, self.part.columns.head_blocks)
        return t

    def _members(self, batch: HostArray, comm: Communicator) -> tuple[HostArray, HostArray]:
        """Return local columns of the batch here, and the order that puts the gathered rows back in its order."""
        own = batch[np.isin(batch, self.part.columns.ids, assume_unique=True)]
        gathered = np.concatenate([np.asarray(part) for part in comm.allgather(own)])
        position = {int(column): at for at, column in enumerate(gathered)}
        return self._local(own), np.array([position[int(column)] for column in batch], np.int64)

    def _local(self, ids: HostArray) -> HostArray:
        order = np.argsort(self.part.columns.ids)
        return order[np.searchsorted(self.part.columns.ids[order], ids)]
