"""The loop nest of all compiled products: pack, multiply in registers, apply the formula, consume the tile.

A call works on some rows of X and some blocks of columns. Rows go in tiles, columns in chunks of panels; a tile
and a chunk meet in a buffer that stays in the first- and second-level cache:

    for each tile of rows:          rows are packed [row group][feature][row]
      for each block of columns:
        for each chunk:             raw inner products -> formula in place -> one of
                                      write them out (block)
                                      scores += K A (in lanes, summed to float64 at the end of the block)
                                      pull^T += G^T K (float64 after each tile)
"""

from functools import partial

from daskkern.backend.machine_code.emitter import I64, Value
from daskkern.kernels.engines.native.epilogue import Epilogue
from daskkern.kernels.engines.native.frame import Chunk
from daskkern.kernels.engines.native.inner_products import InnerProducts


class Nest(InnerProducts, Epilogue):
    """Emits the function of one kind for one formula and one register shape."""

    def emit(self) -> None:
        """Write the whole function."""
        e = self.e
        if self.kind.makes == "stored":
            self._stored()
            e.b.ret_void()
            return
        tiles = e.b.sdiv(e.b.add(self.n["n_rows"], e.b.sub(self.n["tile_rows"], I64(1))), self.n["tile_rows"])
        with e.loop(0, tiles) as number:
            first = e.times(number, self.n["tile_rows"])
            self._tile(first, e.least(e.b.sub(self.n["n_rows"], first), self.n["tile_rows"]))
        e.b.ret_void()

    def _tile(self, first: Value, rows: Value) -> None:
        e, group = self.e, self.shape.rows
        groups = e.b.sdiv(e.b.add(rows, I64(group - 1)), I64(group))
        if not self.kind.sparse_rows:
            self._pack(first, rows, groups)  # once for all columns: a register tile reads its rows side by side
        with e.loop(self.n["first_block"], self.n["last_block"]) as block:
            panel, panels, column, width, number = self._block(block)
            # Within a block, scores are summed in vector lanes of the working dtype; only totals are float64. So the
            # rounding of a sum depends on the blocks, not on the tiles or the threads.
            if self.kind.makes in ("scores", "keep"):
                self._clear(e.times(e.times(groups, group), self.n["n_outputs"]))
            with e.loop(0, panels, self.chunk) as at:
                here = e.least(e.b.sub(panels, at), self.chunk)
                offset = e.times(at, self.shape.panel)
                wide = e.least(e.b.sub(width, offset), self.width)
                chunk = Chunk(e.b.add(panel, at), here, e.b.add(column, offset), wide, self._place(number, at))
                # CSR columns have no panels: the chunk at hand is laid out densely, and the next one overwrites it.
                source = self._spread(chunk) if self.kind.sparse_columns else self.p["z"]
                self._multiply(first, rows, groups, chunk, source, partial(self._profile, first, rows, chunk))
                self._use(first, rows, groups, chunk)
            if self.kind.makes in ("scores", "keep"):
                self._flush(first, rows, groups)
