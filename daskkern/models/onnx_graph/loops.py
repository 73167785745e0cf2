"""The sum over the points of a model as an ONNX loop over blocks of points, in bounded memory."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray
from daskkern.models.onnx_graph.builder import GraphBuilder

PIECE = 512
"""Points of a piece, as in products of kernels: sums within it are in the dtype of the points, those over pieces in
float64."""
_PIECE_NUMBERS = 1 << 14


def piece_size(differences: int) -> int:
    """Return the points of a piece, fewer where `differences` numbers are held for each pair of rows."""
    return max(1, min(PIECE, _PIECE_NUMBERS // max(1, differences)))


@dataclass(eq=False)
class PointLoop:
    """A loop (ONNX's Scan) over pieces of `size` points, with what each step reads.

    Attributes
    ----------
    outer, body : GraphBuilder
        The graph around the loop, whose tensors a step may read, and a step.
    rows : str
        The rows (n, ...) of the outer graph.
    n_points, size : int
    dtype : numpy dtype
        Of the points and their products.
    """

    outer: GraphBuilder
    rows: str
    n_points: int
    size: int
    dtype: npt.DTypeLike
    body: GraphBuilder = field(init=False)
    _scanned: list[tuple[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.body = self.outer.body()

    def pieces(self, values: HostArray, *, transposed: bool = False) -> str:
        """Return the name, in a step, of the rows of `values` (p, ...) that belong to its piece.

        Rows of 0 follow the last point. `transposed` gives (k, size) for values (p, k).
        """
        padded = np.zeros((-(-self.n_points // self.size) * self.size, *values.shape[1:]), values.dtype)
        padded[: self.n_points] = values
        cut = padded.reshape(-1, self.size, *values.shape[1:])
        cut = cut.swapaxes(1, 2) if transposed else cut
        name = self.body.name("piece")
        info = self.outer.value_info(name, values.dtype, cut.shape[1:])
        self._scanned.append((self.outer.constant(cut), info))
        return name

    def total(self, values: str, coef: HostArray) -> str:
        """Close the loop: return the sum over all pieces of ``values @ coef`` in the outer graph, (n, c) float64.

        `values` (n, size) are a step's, `coef` is (p, c).
        """
        body, outer = self.body, self.outer
        product = body.op("MatMul", values, self.pieces(coef.astype(self.dtype)))
        so_far, after = body.name("sum"), body.name("sum")
        body.nodes.append(body.onnx.helper.make_node("Add", [so_far, body.cast(product, np.float64)], [after]))
        state = [outer.value_info(name, np.float64, [None, coef.shape[1]]) for name in (so_far, after)]
        step = body.onnx.helper.make_graph(
            body.nodes, "piece of the points", [state[0], *(info for _, info in self._scanned)], [state[1]]
        )
        names = [name for name, _ in self._scanned]
        return outer.op("Scan", self.start(coef.shape[1]), *names, body=step, num_scan_inputs=len(names))

    def start(self, width: int) -> str:
        """Return zeros (n, width) float64 in the outer graph."""
        outer = self.outer
        count = outer.op("Gather", outer.op("Shape", self.rows), outer.constant([0], np.int64))
        shape = outer.op("Concat", count, outer.constant([width], np.int64), axis=0)
        return outer.op("Expand", outer.constant(0.0, np.float64), shape)
