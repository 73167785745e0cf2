"""Projection on many centres by iteration, where a factor of K_ZZ would not fit.

``K_ZZ t = h`` by conjugate gradient from 0, whose preconditioner is made of the eigenvectors that EigenPro has of the
subsample S of the centres: with ``K_SS = V' (s L) V'^T`` on the leading q of them,

    P = F F^T + mu ,   F = K_ZS V' (s L)^(-1/2) ,   mu = p l_(q+1) ,

the Nystrom approximation of K_ZZ plus what it leaves. An iteration multiplies with K_ZZ once: about 2 p^2 d operations
and, on several ranks, p (d + c) numbers of traffic. It ends at a stated residual, whatever the landmarks are.
Other numbers of ranks round its sums, and with them the last bits of a model, otherwise.

References
----------
Abedsoltan et al., "Fast training of large kernel models with delayed projections", NeurIPS 2025, section 4 (iterative
projection, there by EigenPro's own steps); Frangella, Tropp and Udell, "Randomized Nystrom preconditioning", SIMAX
2023.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from daskkern.arrays import Array, FloatArray
from daskkern.backend.communicator import Communicator, allgather_rows
from daskkern.backend.namespace import namespace_of, to_host
from daskkern.basis import KernelPart
from daskkern.kernels.engines.block_products import multiply, multiply_transposed_blocks
from daskkern.preconditioners import EigenProState
from daskkern.solvers.base import ratio

MOST_ITERATIONS = 100
_EVALUATE = 10
_LEAST_DAMPING = 1e-3


@dataclass(frozen=True)
class Projection:
    """This rank's part t (p_r, c) of a solution, the iterations that it took, and its relative residual."""

    t: Array
    iterations: int
    residual: float


@dataclass(frozen=True)
class LeadingDirections:
    """The preconditioner P on one rank, up to a factor.

    Attributes
    ----------
    damped : (p_r, q) array
        ``K_ZS V D`` of the rank's centres, as EigenPro's steps have it.
    scale : (q, 1) array
        What makes it F.
    blocks : tuple of slices
        Of the rank's centres, over which sums are taken.
    inner : (q, q) float64
        ``(F^T F + mu)^-1``.
    """

    damped: Array
    scale: Array
    blocks: tuple[slice, ...]
    inner: Array

    @classmethod
    def of(
        cls, state: EigenProState, damped: Array, blocks: tuple[slice, ...], p: int, comm: Communicator
    ) -> "LeadingDirections":
        """Return P for `p` centres. Every rank must call it."""
        xp, q = namespace_of(damped), state.damping.size
        s, values = state.vectors.shape[0], state.eigenvalues
        # Directions that EigenPro hardly damps are left out of P: dividing by their damping would be rounding.
        kept = state.damping * s * values[:q] > _LEAST_DAMPING
        root = np.sqrt(s * values[:q])
        scale = np.divide(1.0, state.damping * root, out=np.zeros(q), where=kept)
        gram = multiply_transposed_blocks(damped, damped, blocks, xp) if q else xp.zeros((0, 0))
        whole: FloatArray = to_host(comm.allreduce(gram)) * scale[:, None] * scale
        # The largest eigenvalue that P does not have: of the first direction left out, else the one after all q.
        mu = p * float(values[q] if kept.all() else values[np.flatnonzero(~kept)[0]])
        inner = scipy.linalg.inv(whole + mu * np.eye(q), check_finite=False) if q else whole
        # Conjugate gradient needs a symmetric P; the inverse is symmetric up to rounding only.
        return cls(damped, xp.asarray(scale[:, None]), blocks, xp.asarray(0.5 * (inner + inner.T)))

    def solve(self, v: Array, comm: Communicator) -> Array:
        """Return this rank's rows of ``mu P^-1 v`` for its rows `v` (p_r, c) float64."""
        xp, dtype = namespace_of(v), self.damped.dtype
        if not self.damped.shape[1]:
            return v
        pulled = comm.allreduce(multiply_transposed_blocks(self.damped, v.astype(dtype), self.blocks, xp))
        inside = self.scale * (self.inner @ (self.scale * pulled))
        return v - multiply(self.damped, inside.astype(dtype), xp, self.blocks)


@dataclass(frozen=True)
class IterativeProjector:
    """Solve ``K_ZZ t = h`` to a relative residual of `tol`, for every output.

    Attributes
    ----------
    part : KernelPart
    rows : (p_r, d) array
        The rank's own centres, in the order of its columns.
    counts : tuple of int
        How many centres each rank has.
    directions : LeadingDirections
    chunk : int
        Centres that meet the others at once, on all ranks together.
    tol : float
    most : int
        Iterations after which it ends anyhow.
    """

    part: KernelPart
    rows: Array
    counts: tuple[int, ...]
    directions: LeadingDirections
    chunk: int
    tol: float = 0.1
    most: int = MOST_ITERATIONS

    def solve(self, h: Array, comm: Communicator) -> Array:
        """Return this rank's part (p_r, c) of the solution, in the dtype of `h`."""
        return self.iterate(h, comm).t

    def iterate(self, h: Array, comm: Communicator) -> Projection:
        """Return the same with its residual, which is evaluated every ten iterations and else from the recursion."""
        xp, c = namespace_of(h), h.shape[1]
        b = h.astype(np.float64)
        t, r = xp.zeros_like(b), b
        z = self.directions.solve(r, comm)
        d = z
        norm, square = comm.allreduce(xp.stack([(b * b).sum(axis=0), (r * z).sum(axis=0)]))
        residual, iterations = float((norm > 0).any()), 0  # t = 0 has the residual 1; for h = 0 it is the solution
        while residual > self.tol and iterations < self.most:
            evaluate = iterations % _EVALUATE == _EVALUATE - 1
            # K_ZZ d and K_ZZ t from one pass over the kernel values, which are what takes the time.
            product = self._times(xp.concatenate([d, t], axis=1) if evaluate else d, h.dtype, comm)
            r = b - product[:, c:] if evaluate else r
            # In exact arithmetic d^T r is r^T z. Where r was evaluated, z belongs to the r before, so that only d^T r
            # gives the minimum along d.
            curvature, slope = comm.allreduce(xp.stack([(d * product[:, :c]).sum(axis=0), (d * r).sum(axis=0)]))
            length = ratio(slope, curvature)
            if not bool((length != 0).any()):
                break  # rounding has made K_ZZ indefinite along d: t is as near as it comes
            t, r = t + length * d, r - length * product[:, :c]
            z = self.directions.solve(r, comm)
            left, after = comm.allreduce(xp.stack([(r * r).sum(axis=0), (r * z).sum(axis=0)]))
            d, square = z + ratio(after, square) * d, after
            residual, iterations = float(xp.sqrt(ratio(left, norm)).max()), iterations + 1
        return Projection(t.astype(h.dtype), iterations, residual)

    def _times(self, d: Array, dtype: str, comm: Communicator) -> Array:
        """Return this rank's rows of ``K_ZZ d``, (p_r, k) float64, for its rows of d."""
        xp, own = namespace_of(d), d.astype(dtype)
        out = xp.empty(d.shape)
        for places in self._rounds:
            here = places[comm.rank]
            X = allgather_rows(self.rows[here], comm) if comm.size > 1 else self.rows[here]
            sums = comm.allreduce(self.part.scores(X, own))
            start = sum(place.stop - place.start for place in places[: comm.rank])
            out[here] = sums[start : start + here.stop - here.start]
        return out

    @cached_property
    def _rounds(self) -> list[tuple[slice, ...]]:
        """The local centres of every rank that meet all others in each round; the last rounds have none of some."""
        each = max(1, self.chunk // len(self.counts))
        starts = range(0, max(self.counts, default=0), each)
        return [tuple(slice(min(a, k), min(a + each, k)) for k in self.counts) for a in starts]
