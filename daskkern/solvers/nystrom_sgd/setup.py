"""The set-up of Nystrom-SGD on one rank: its rows of M, or its eigenfeatures."""

from dataclasses import dataclass

from daskkern.backend.shares import Shares, share_edges
from daskkern.linalg import column_blocks
from daskkern.preconditioners import NystromPart, NystromState
from daskkern.solvers.setup import RankInputs, RankSetup


@dataclass(frozen=True)
class NystromSetup(RankSetup):
    """What a rank needs: the spectrum, its rows of M, and in stored mode its range of eigenfeatures."""

    state: NystromState
    part: NystromPart
    features: slice | None
    """Stored: which columns of psi are this rank's. None: streamed."""
    blocks: tuple[slice, ...] = ()
    """Stored: the pieces of those columns over which sums are taken."""

    @property
    def stored_columns(self) -> slice | None:
        return self.features


def nystrom_setup(inputs: RankInputs) -> NystromSetup:
    """Return what Nystrom-SGD needs on a rank."""
    state, comm = inputs.state, inputs.comm
    assert isinstance(state, NystromState)
    features: slice | None = None
    blocks: tuple[slice, ...] = ()
    if inputs.features_stored:
        features, blocks = feature_columns(state.preconditioner.size, comm.rank, comm.size, inputs.basis.shares)
    return NystromSetup(state, state.part(inputs.columns.ids, inputs.dtype, inputs.xp), features, blocks)


def feature_columns(r: int, rank: int, size: int, shares: Shares = ()) -> tuple[slice, tuple[slice, ...]]:
    """Return a rank's range of r eigenfeatures, and the pieces of it, which are the same for up to 24 ranks."""
    pieces = column_blocks(r, 0, size).blocks
    edges = share_edges(len(pieces), size, shares)
    own = pieces[edges[rank] : edges[rank + 1]]
    start, stop = (own[0].start, own[-1].stop) if own else (0, 0)
    return slice(start, stop), tuple(slice(piece.start - start, piece.stop - start) for piece in own)
