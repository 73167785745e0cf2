"""The epilogue of a tile of inner products in cache: the formula, then scores, transposed products or a copy."""

from collections.abc import Callable
from functools import partial

from llvmlite import ir

from daskkern.backend.machine_code.emitter import F64, I64, Value
from daskkern.kernels.engines.native.frame import Chunk, Frame
from daskkern.kernels.engines.native.profiles import ColumnStats, RowStats, emit_profile

_SHARE = 3  # of a register tile's rows, a formula works on this part at a time: enough vectors to hide its latency


class Epilogue(Frame):
    """Uses a chunk's buffer."""

    def _use(self, first: Value, rows: Value, groups: Value, chunk: Chunk) -> None:
        e, size = self.e, self.shape.rows
        if self.kind.makes == "block":
            self._copy(first, rows, chunk, chunk.width, self.p["out"], self.n["out_stride"])
            return
        if self.kind.makes == "pull":
            from_rows = e.times(first, self.n["right_stride"])
            self._pull(rows, chunk, from_rows)
            return
        with e.b.if_then(e.b.icmp_signed("<", chunk.column, self.n["n_head"])):
            wanted = e.least(e.b.sub(self.n["n_head"], chunk.column), chunk.width)
            self._copy(first, rows, chunk, wanted, self.p["head"], self.n["head_stride"])
        with e.loop(0, groups) as g:
            self._scores(e.times(g, size), chunk)

    def _profile(self, first: Value, rows: Value, chunk: Chunk, q: Value) -> None:
        """Replace the inner products of panel `q` by kernel values, for the valid rows and a few more."""
        e, lanes = self.e, self.shape.lanes
        at = e.times(q, self.shape.panel)
        column = e.b.add(e.times(chunk.panel, self.shape.panel), at)
        columns = [
            ColumnStats(*(
                e.load(self.p[f"z_{name}"], column, v * lanes) if self._needs(name) or self._completes(name) else None
                for name in ("squared", "norm", "inverse")
            ))
            for v in range(2)
        ]  # fmt: skip
        last, together = e.b.sub(rows, I64(1)), self.shape.rows // _SHARE
        with e.loop(0, rows, together) as i:
            members = [e.least(e.b.add(i, I64(u)), last) for u in range(together)]
            stats = [
                RowStats(*(
                    e.splat(e.scalar(self.p[f"x_{name}"], first, member)) if self._needs(name) else None
                    for name in ("squared", "norm", "inverse")
                ))
                for member in members
            ]  # fmt: skip
            line = e.at(chunk.buffer, e.times(i, self.width), at)
            places = [u * self.width + v * lanes for u in range(together) for v in range(2)]
            raw = [e.load(line, place) for place in places]
            values = emit_profile(
                e, self.what, self.constants, raw, [row for row in stats for _ in range(2)], columns * together
            )
            for place, value in zip(places, values, strict=True):
                e.store(value, line, place)

    def _needs(self, stat: str) -> bool:
        users = {
            "squared": {"squared_distance", "distance"},
            "norm": {"norms"},
            "inverse": {"cosine"},
        }
        return bool(users[stat] & self.used)

    def _completes(self, stat: str) -> bool:
        """Return whether sums of CSR rows lack this statistic of the columns."""
        return stat == "squared" and self.sums_differences and self.kind.sparse_rows

    def _copy(self, first: Value, rows: Value, chunk: Chunk, width: Value, out: Value, stride: Value) -> None:
        e, lanes = self.e, self.shape.lanes
        whole = e.b.and_(width, I64(-lanes))  # rounded down, as lanes are a power of two; the rest number by number
        with e.loop(0, rows) as i:
            line = e.at(chunk.buffer, e.times(i, self.width))
            target = e.at(out, e.times(e.b.add(first, i), stride), chunk.column)
            with e.loop(0, whole, lanes) as at:
                e.store(e.load(line, at), target, at)
            with e.loop(whole, width) as at:
                e.b.store(e.scalar(line, at), e.at(target, at))

    def _clear(self, count: Value) -> None:
        with self.e.loop(0, count) as at:
            self.e.store(self.e.const(0), self.p["lanes"], self.e.times(at, self.shape.lanes))

    def _flush(self, first: Value, rows: Value, groups: Value) -> None:
        """Add the block's sums, lane by lane until now, to the float64 scores."""
        e, size = self.e, self.shape.rows
        with e.loop(0, groups) as g:
            row = e.times(g, size)
            with e.loop(0, e.least(e.b.sub(rows, row), size)) as i:
                held = self._held(row, i)
                line = e.at(self.sums, e.times(e.b.add(first, e.b.add(row, i)), self.n["out_stride"]))
                self._in_groups(self.n["n_outputs"], (4, 2, 1), partial(self._flush_group, held, line))

    def _flush_group(self, held: Value, line: Value, c: Value, count: int) -> None:
        e, apart = self.e, self.shape.rows * self.shape.lanes
        sums = e.totals([e.load(held, e.times(c, apart), u * apart) for u in range(count)])
        place = e.b.bitcast(e.at(line, c), ir.VectorType(F64, count).as_pointer())
        # A row of scores begins anywhere: without align=8, LLVM would assume whole vectors, and some processors fault.
        e.b.store(e.b.fadd(e.b.load(place, align=8), sums), place, align=8)

    def _held(self, row: Value, i: Value) -> Value:
        """Return the place of the lanes of row + i and output 0: they lie [group of rows][output][row]."""
        e, lanes = self.e, self.shape.lanes
        return e.at(self.p["lanes"], e.times(e.times(row, self.n["n_outputs"]), lanes), e.times(i, lanes))

    def _scores(self, row: Value, chunk: Chunk) -> None:
        """lanes[row + i][c] += K[row + i] * A[:, c], for all outputs in groups that fill the registers."""
        outputs, size = self.n["n_outputs"], self.shape.rows
        self._in_groups(outputs, (4, 2, 1), lambda c, count: self._scores_group(row, chunk, c, count, size))

    def _scores_group(self, row: Value, chunk: Chunk, c: Value, count: int, size: int) -> None:
        e, lanes, panel = self.e, self.shape.lanes, self.shape.panel
        together = min(size, max(1, 2 * size // count))  # as many sums as a register tile has, whatever `count` is
        coefficients = e.at(self.p["right"], e.times(c, self.n["right_stride"]), e.times(chunk.panel, panel))
        held = e.at(self._held(row, I64(0)), e.times(c, size * lanes))
        values = e.at(chunk.buffer, e.times(row, self.width))
        for top in range(0, size, together):
            members = range(top, min(top + together, size))
            places = [e.at(held, (u * size + i) * lanes) for i in members for u in range(count)]

            def step(at: Value, sums: list[Value], members: range = members) -> list[Value]:
                for v in range(2):
                    right = [
                        e.load(coefficients, at, e.times(self.n["right_stride"], u), v * lanes) for u in range(count)
                    ]
                    rows = [e.load(values, at, i * self.width + v * lanes) for i in members]
                    terms = [(value, factor) for value in rows for factor in right]
                    sums = [e.fma(*term, total) for term, total in zip(terms, sums, strict=True)]
                return sums

            sums = e.accumulate(0, e.times(chunk.panels, panel), [e.load(place) for place in places], step, panel)
            for place, value in zip(places, sums, strict=True):
                e.store(value, place)

    def _stored(self) -> None:
        """The same for a tile of K that "keep" left in the buffers of its chunks."""
        e = self.e
        with e.loop(self.n["first_block"], self.n["last_block"]) as block:
            panel, panels, column, width, number = self._block(block)
            with e.loop(0, panels, self.chunk) as at:
                here = e.least(e.b.sub(panels, at), self.chunk)
                chunk = Chunk(e.b.add(panel, at), here, column, width, self._place(number, at))
                self._pull(self.n["n_rows"], chunk, I64(0))

    def _pull(self, rows: Value, chunk: Chunk, right: Value) -> None:
        """out[c][column] += sum over the tile's rows of G[row, c] K[row, column]."""
        e = self.e
        with e.loop(0, e.times(chunk.panels, self.shape.panel), self.shape.panel) as at:
            self._in_groups(
                self.n["n_outputs"], (8, 4, 2, 1), lambda c, count: self._pull_group(rows, chunk, right, at, c, count)
            )

    def _pull_group(self, rows: Value, chunk: Chunk, right: Value, at: Value, c: Value, count: int) -> None:
        e, lanes = self.e, self.shape.lanes
        weights = e.at(self.p["right"], right, c)

        def step(i: Value, sums: list[Value]) -> list[Value]:
            line = e.at(chunk.buffer, e.times(i, self.width), at)
            values = [e.load(line, v * lanes) for v in range(2)]
            out = []
            for u in range(count):
                weight = e.splat(e.scalar(weights, e.times(i, self.n["right_stride"]), u))
                out += [e.fma(values[v], weight, sums[2 * u + v]) for v in range(2)]
            return out

        sums = e.accumulate(0, rows, [e.const(0)] * (2 * count), step)
        first = e.b.add(e.times(chunk.panel, self.shape.panel), at)
        for u in range(count):
            line = e.at(self.sums, e.times(e.b.add(c, I64(u)), self.n["out_stride"]), first)
            for v in range(2):
                self._add_wide(sums[2 * u + v], e.at(line, v * lanes))

    def _add_wide(self, value: Value, place: Value) -> None:
        e = self.e
        kind = ir.VectorType(F64, self.shape.lanes)
        wide = value if self.shape.itemsize == 8 else e.b.fpext(value, kind)
        target = e.b.bitcast(place, kind.as_pointer())
        e.b.store(e.b.fadd(e.b.load(target, align=8), wide), target, align=8)

    def _in_groups(self, total: Value, sizes: tuple[int, ...], emit: Callable[[Value, int], None]) -> None:
        """Emit a loop over groups of each size in turn: most in the largest, the rest in smaller ones."""
        e = self.e
        start: Value = I64(0)
        for size in sizes:
            stop = e.b.and_(total, I64(-size))  # sizes are powers of two: rounded down to a multiple
            with e.loop(start, stop, size) as at:
                emit(at, size)
            start = stop
