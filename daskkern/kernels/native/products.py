"""The loop nest of all products, as LLVM instructions: pack, multiply in registers, apply the formula, use at once.

A call works on some rows of X and some blocks of columns. Rows go in tiles, columns in chunks of four panels; a tile
and a chunk meet in a buffer that stays in the first- and second-level cache:

    for each tile of rows:          rows are packed [row group][feature][row]
      for each block of columns:
        for each chunk:             raw inner products -> formula in place -> one of
                                      write them out (block)
                                      scores += K A (in lanes, summed to float64 at the end of the block)
                                      pull^T += G^T K (float64 after each tile)
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llvmlite import ir

from daskkern.kernels.native.call import FIELDS, Kind
from daskkern.kernels.native.emitter import F64, I64, Emitter, Value
from daskkern.kernels.native.profiles import ColumnStats, Lowered, RowStats, emit_profile
from daskkern.kernels.native.shape import CHUNK, Shape

DEPTH = 256
"""Features that are summed in a register before the sum is added to the buffer: two levels of sums err less."""
_SPARSE_PANELS = 2  # panels that an entry of a sparse row is multiplied into at once
_SIDE_BY_SIDE = 4  # vectors that a formula works on at a time, to hide its latency


class Nest:
    """Emits the function of one kind for one formula and one register shape."""

    def __init__(self, module: ir.Module, shape: Shape, what: Lowered, kind: Kind) -> None:
        self.kind, self.what, self.shape = kind, what, shape
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()]), kind.name)
        function.attributes.add("nounwind")
        self.e = e = Emitter(module, ir.IRBuilder(function.append_basic_block("entry")), shape)
        self.width = CHUNK * shape.panel
        words = {name: e.b.load(e.at(function.args[0], at)) for at, name in enumerate(FIELDS)}
        pointer = e.element.as_pointer()
        integers = {"x_starts", "x_columns", "z_starts", "z_columns", "blocks", "slots"}
        numbers = {"x_stride", "n_rows", "n_features", "z_rows", "first_block", "last_block", "tile_rows", "out_stride",
                   "head_stride", "n_head", "n_outputs", "right_stride"}  # fmt: skip
        self.n = {name: words[name] for name in numbers}
        self.p = {
            name: e.b.inttoptr(word, I64.as_pointer() if name in integers else pointer)
            for name, word in words.items()
            if name not in numbers
        }
        self.sums = e.b.inttoptr(words["out"], F64.as_pointer())
        count = sum(step.op == "constant" for step in what.instructions)
        self.constants = [e.splat(e.scalar(self.p["constants"], k)) for k in range(count)]
        self.used = {step.op for step in what.instructions}

    def emit(self) -> None:
        """Write the whole function."""
        e = self.e
        tiles = e.b.sdiv(e.b.add(self.n["n_rows"], e.b.sub(self.n["tile_rows"], I64(1))), self.n["tile_rows"])
        with e.loop(0, tiles) as number:
            first = e.times(number, self.n["tile_rows"])
            self._tile(first, e.least(e.b.sub(self.n["n_rows"], first), self.n["tile_rows"]))
        e.b.ret_void()

    def _tile(self, first: Value, rows: Value) -> None:
        e, group = self.e, self.shape.rows
        groups = e.b.sdiv(e.b.add(rows, I64(group - 1)), I64(group))
        if not self.kind.sparse_rows:
            self._pack(first, rows, groups)
        with e.loop(self.n["first_block"], self.n["last_block"]) as block:
            panel, panels, column, width = (e.b.load(e.at(self.p["blocks"], e.times(block, 4), k)) for k in range(4))
            if self.kind.makes == "scores":
                self._clear(e.times(e.times(groups, group), self.n["n_outputs"]))
            with e.loop(0, panels, CHUNK) as at:
                here = e.least(e.b.sub(panels, at), CHUNK)
                offset = e.times(at, self.shape.panel)
                chunk = Chunk(
                    e.b.add(panel, at), here, e.b.add(column, offset), e.least(e.b.sub(width, offset), self.width)
                )
                source = self._spread(chunk) if self.kind.sparse_columns else self.p["z"]
                self._multiply(first, rows, groups, chunk, source)
                self._use(first, rows, groups, chunk)
            if self.kind.makes == "scores":
                self._flush(first, rows)

    def _pack(self, first: Value, rows: Value, groups: Value) -> None:
        """Copy rows to [group][feature][row]; the last row fills what is left, so that no new values appear."""
        e, size = self.e, self.shape.rows
        with e.loop(0, groups) as g:
            for i in range(size):
                row = e.b.add(first, e.least(e.b.add(e.times(g, size), I64(i)), e.b.sub(rows, I64(1))))
                source = e.at(self.p["x"], e.times(row, self.n["x_stride"]))
                target = e.at(self.p["packed"], e.times(e.times(g, size), self.n["n_features"]), i)
                with e.loop(0, self.n["n_features"]) as k:
                    e.b.store(e.scalar(source, k), e.at(target, e.times(k, size)))

    def _multiply(self, first: Value, rows: Value, groups: Value, chunk: "Chunk", source: Value) -> None:
        if self.kind.sparse_rows:
            self._multiply_sparse(first, rows, chunk, source)
            return
        e, size = self.e, self.shape.rows
        with e.loop(0, self.n["n_features"], DEPTH) as k0:
            k1 = e.least(e.b.add(k0, I64(DEPTH)), self.n["n_features"])
            fresh = e.b.icmp_signed("==", k0, I64(0))
            with e.loop(0, chunk.panels) as q:
                number = q if self.kind.sparse_columns else e.b.add(chunk.panel, q)
                panel = e.at(source, e.times(e.times(number, self.n["n_features"]), self.shape.panel))
                with e.loop(0, groups) as g:
                    packed = e.at(self.p["packed"], e.times(e.times(g, size), self.n["n_features"]))
                    target = e.at(self.p["buffer"], e.times(g, size * self.width), e.times(q, self.shape.panel))
                    self._register_tile(packed, panel, target, k0, k1, fresh)

    def _register_tile(self, packed: Value, panel: Value, target: Value, k0: Value, k1: Value, fresh: Value) -> None:
        e, size, lanes = self.e, self.shape.rows, self.shape.lanes

        def step(k: Value, sums: list[Value]) -> list[Value]:
            columns = [e.load(panel, e.times(k, self.shape.panel), v * lanes) for v in range(2)]
            out = []
            for i in range(size):
                x = e.splat(e.scalar(packed, e.times(k, size), i))
                out += [e.fma(x, columns[v], sums[2 * i + v]) for v in range(2)]
            return out

        sums = e.accumulate(k0, k1, [e.const(0)] * (2 * size), step)
        with e.b.if_else(fresh) as (then, otherwise):
            with then:
                for i in range(size):
                    for v in range(2):
                        e.store(sums[2 * i + v], target, i * self.width + v * lanes)
            with otherwise:
                for i in range(size):
                    for v in range(2):
                        place = i * self.width + v * lanes
                        e.store(e.b.fadd(sums[2 * i + v], e.load(target, place)), target, place)

    def _multiply_sparse(self, first: Value, rows: Value, chunk: "Chunk", source: Value) -> None:
        e, count = self.e, _SPARSE_PANELS
        with e.loop(0, rows) as i:
            row = e.b.add(first, i)
            start, stop = (e.b.load(e.at(self.p["x_starts"], row, k)) for k in range(2))
            target = e.at(self.p["buffer"], e.times(i, self.width))
            with e.loop(0, chunk.panels, count) as q:
                self._sparse_row(start, stop, e.at(target, e.times(q, self.shape.panel)), chunk, q, source, count)

    def _sparse_row(
        self, start: Value, stop: Value, target: Value, chunk: "Chunk", q: Value, source: Value, count: int
    ) -> None:
        """Add a row's entries, each times the vectors of its feature, for `count` panels side by side."""
        e, lanes, vectors = self.e, self.shape.lanes, 2 * count
        for v in range(vectors):
            e.store(e.const(0), target, v * lanes)

        def step(at: Value, sums: list[Value]) -> list[Value]:
            feature = e.b.load(e.at(self.p["x_columns"], at))
            if self.kind.sparse_columns:
                slot = e.b.load(e.at(self.p["slots"], feature))
                place = e.b.add(e.times(slot, self.width), e.times(q, self.shape.panel))
                apart: Value = I64(self.shape.panel)
            else:
                features = e.times(e.b.add(chunk.panel, q), self.n["n_features"])
                place = e.times(e.b.add(features, feature), self.shape.panel)
                apart = e.times(self.n["n_features"], self.shape.panel)
            x = e.splat(e.scalar(self.p["x"], at))
            return [
                e.fma(x, e.load(source, place, e.times(apart, v // 2), v % 2 * lanes), sums[v]) for v in range(vectors)
            ]

        with e.b.if_then(e.b.icmp_signed("<", start, stop)):
            sums = e.accumulate(start, stop, [e.const(0)] * vectors, step)
            for v in range(vectors):
                e.store(sums[v], target, v * lanes)

    def _spread(self, chunk: "Chunk") -> Value:
        """Lay out a chunk of CSR columns densely: whole panels for dense rows, else only the features that occur.

        For CSR rows `slots` maps a feature to its line of the spread chunk; line 0 is zero and stands for absence.
        """
        e, spread = self.e, self.p["spread"]
        last = e.b.sub(self.n["z_rows"], I64(1))
        dense = not self.kind.sparse_rows
        # The z_rows of the previous chunk are forgotten first: its features' slots go back to 0.
        if dense:
            length = e.times(e.times(chunk.panels, self.shape.panel), self.n["n_features"])
            with e.loop(0, length, self.shape.lanes) as at:
                e.store(e.const(0), spread, at)
        else:
            before = e.b.load(e.at(self.p["slots"], self.n["n_features"]))
            with e.loop(0, e.b.load(e.at(self.p["slots"], self.n["n_features"], 1))) as j:
                self._each_entry(e.least(e.b.add(before, j), last), self._forget)
            e.b.store(chunk.column, e.at(self.p["slots"], self.n["n_features"]))
            e.b.store(chunk.width, e.at(self.p["slots"], self.n["n_features"], 1))
            e.b.store(I64(0), e.at(self.p["slots"], self.n["n_features"], 2))
            for v in range(2 * CHUNK):
                e.store(e.const(0), spread, v * self.shape.lanes)
        with e.loop(0, e.times(chunk.panels, self.shape.panel)) as j:
            row = e.least(e.b.add(chunk.column, e.least(j, e.b.sub(chunk.width, I64(1)))), last)
            self._each_entry(row, partial(self._lay, j=j))
        return spread

    def _each_entry(self, row: Value, use: Callable[..., None]) -> None:
        e = self.e
        start, stop = (e.b.load(e.at(self.p["z_starts"], row, k)) for k in range(2))
        with e.loop(start, stop) as at:
            use(at=at, feature=e.b.load(e.at(self.p["z_columns"], at)))

    def _forget(self, at: Value, feature: Value) -> None:
        del at
        self.e.b.store(I64(0), self.e.at(self.p["slots"], feature))

    def _lay(self, at: Value, feature: Value, j: Value) -> None:
        e, spread = self.e, self.p["spread"]
        value = e.scalar(self.p["z_values"], at)
        if not self.kind.sparse_rows:
            panel, lane = e.b.sdiv(j, I64(self.shape.panel)), e.b.srem(j, I64(self.shape.panel))
            features = e.b.add(e.times(panel, self.n["n_features"]), feature)
            e.b.store(value, e.at(spread, e.times(features, self.shape.panel), lane))
            return
        place = e.at(self.p["slots"], feature)
        with e.b.if_then(e.b.icmp_signed("==", e.b.load(place), I64(0))):
            counter = e.at(self.p["slots"], self.n["n_features"], 2)
            slot = e.b.add(e.b.load(counter), I64(1))
            e.b.store(slot, counter)
            e.b.store(slot, place)
            for v in range(2 * CHUNK):
                e.store(e.const(0), e.at(spread, e.times(slot, self.width)), v * self.shape.lanes)
        e.b.store(value, e.at(spread, e.times(e.b.load(place), self.width), j))

    def _use(self, first: Value, rows: Value, groups: Value, chunk: "Chunk") -> None:
        e, size = self.e, self.shape.rows
        self._profile(first, rows, chunk)
        if self.kind.makes == "block":
            self._copy(first, rows, chunk.column, chunk.width, self.p["out"], self.n["out_stride"])
            return
        if self.kind.makes == "pull":
            from_rows = e.times(first, self.n["right_stride"])
            self._pull(rows, chunk, from_rows)
            return
        with e.b.if_then(e.b.icmp_signed("<", chunk.column, self.n["n_head"])):
            wanted = e.least(e.b.sub(self.n["n_head"], chunk.column), chunk.width)
            self._copy(first, rows, chunk.column, wanted, self.p["head"], self.n["head_stride"])
        with e.loop(0, groups) as g:
            self._scores(e.times(g, size), chunk)

    def _profile(self, first: Value, rows: Value, chunk: "Chunk") -> None:
        """Replace inner products by kernel values, for the rows that are there."""
        e, lanes = self.e, self.shape.lanes
        column = e.times(chunk.panel, self.shape.panel)
        vectors = e.times(chunk.panels, self.shape.panel)
        with e.loop(0, rows) as i:
            row = RowStats(*(
                e.splat(e.scalar(self.p[f"x_{name}"], first, i)) if self._needs(name) else None
                for name in ("squared", "norm", "inverse")
            ))  # fmt: skip
            line = e.at(self.p["buffer"], e.times(i, self.width))
            with e.loop(0, vectors, _SIDE_BY_SIDE * lanes) as at:
                raw = [e.load(line, at, u * lanes) for u in range(_SIDE_BY_SIDE)]
                stats = [
                    ColumnStats(*(
                        e.load(self.p[f"z_{name}"], column, at, u * lanes) if self._needs(name) else None
                        for name in ("squared", "norm", "inverse")
                    ))
                    for u in range(_SIDE_BY_SIDE)
                ]  # fmt: skip
                values = emit_profile(e, self.what, self.constants, raw, row, stats)
                for u in range(_SIDE_BY_SIDE):
                    e.store(values[u], line, at, u * lanes)

    def _needs(self, stat: str) -> bool:
        users = {
            "squared": {"squared_distance", "distance"},
            "norm": {"norms"},
            "inverse": {"cosine"},
        }
        return bool(users[stat] & self.used)

    def _copy(self, first: Value, rows: Value, column: Value, width: Value, out: Value, stride: Value) -> None:
        e, lanes = self.e, self.shape.lanes
        whole = e.b.and_(width, I64(-lanes))
        with e.loop(0, rows) as i:
            line = e.at(self.p["buffer"], e.times(i, self.width))
            target = e.at(out, e.times(e.b.add(first, i), stride), column)
            with e.loop(0, whole, lanes) as at:
                e.store(e.load(line, at), target, at)
            with e.loop(whole, width) as at:
                e.b.store(e.scalar(line, at), e.at(target, at))

    def _clear(self, count: Value) -> None:
        with self.e.loop(0, count) as at:
            self.e.store(self.e.const(0), self.p["lanes"], self.e.times(at, self.shape.lanes))

    def _flush(self, first: Value, rows: Value) -> None:
        """Add the block's sums, lane by lane until now, to the float64 scores."""
        e = self.e
        with e.loop(0, rows) as i, e.loop(0, self.n["n_outputs"]) as c:
            held = e.at(self.p["lanes"], e.times(e.b.add(e.times(i, self.n["n_outputs"]), c), self.shape.lanes))
            place = e.at(self.sums, e.times(e.b.add(first, i), self.n["out_stride"]), c)
            e.b.store(e.b.fadd(e.b.load(place), e.total(e.load(held))), place)

    def _scores(self, row: Value, chunk: "Chunk") -> None:
        """lanes[row + i][c] += K[row + i] * A[:, c], for all outputs in groups that fill the registers."""
        outputs, size = self.n["n_outputs"], self.shape.rows
        self._in_groups(outputs, (4, 2, 1), lambda c, count: self._scores_group(row, chunk, c, count, size))

    def _scores_group(self, row: Value, chunk: "Chunk", c: Value, count: int, size: int) -> None:
        e, lanes = self.e, self.shape.lanes
        together = min(size, max(1, 2 * size // count))
        coefficients = e.at(self.p["right"], e.times(c, self.n["right_stride"]), e.times(chunk.panel, self.shape.panel))
        for top in range(0, size, together):
            members = range(top, min(top + together, size))
            lines = [e.b.add(e.times(e.b.add(row, I64(i)), self.n["n_outputs"]), c) for i in members]
            places = [e.at(self.p["lanes"], e.times(line, lanes), u * lanes) for line in lines for u in range(count)]

            def step(at: Value, sums: list[Value], members: range = members) -> list[Value]:
                right = [e.load(coefficients, at, e.times(self.n["right_stride"], u)) for u in range(count)]
                out = []
                for n, i in enumerate(members):
                    value = e.load(self.p["buffer"], e.times(e.b.add(row, I64(i)), self.width), at)
                    out += [e.fma(value, right[u], sums[n * count + u]) for u in range(count)]
                return out

            sums = e.accumulate(
                0, e.times(chunk.panels, self.shape.panel), [e.load(place) for place in places], step, lanes
            )
            for place, value in zip(places, sums, strict=True):
                e.store(value, place)

    def _pull(self, rows: Value, chunk: "Chunk", right: Value) -> None:
        """out[c][column] += sum over the tile's rows of G[row, c] K[row, column]."""
        e = self.e
        with e.loop(0, e.times(chunk.panels, self.shape.panel), self.shape.panel) as at:
            self._in_groups(
                self.n["n_outputs"], (8, 4, 2, 1), lambda c, count: self._pull_group(rows, chunk, right, at, c, count)
            )

    def _pull_group(self, rows: Value, chunk: "Chunk", right: Value, at: Value, c: Value, count: int) -> None:
        e, lanes = self.e, self.shape.lanes
        weights = e.at(self.p["right"], right, c)

        def step(i: Value, sums: list[Value]) -> list[Value]:
            line = e.at(self.p["buffer"], e.times(i, self.width), at)
            values = [e.load(line, v * lanes) for v in range(2)]
            out = []
            for u in range(count):
                weight = e.splat(e.scalar(weights, e.times(i, self.n["right_stride"]), u))
                out += [e.fma(values[v], weight, sums[2 * u + v]) for v in range(2)]
            return out

        sums = e.accumulate(0, rows, [e.const(0)] * (2 * count), step)
        for u in range(count):
            for v in range(2):
                start = e.at(
                    self.sums, e.times(e.b.add(c, I64(u)), self.n["out_stride"]), e.times(chunk.panel, self.shape.panel)
                )
                self._add_wide(sums[2 * u + v], e.at(start, at, v * lanes))

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
            stop = e.b.and_(total, I64(-size))
            with e.loop(start, stop, size) as at:
                emit(at, size)
            start = stop


@dataclass(frozen=True)
class Chunk:
    """Some panels of a block: number of the first, how many, first column, how many columns are real."""

    panel: Value
    panels: Value
    column: Value
    width: Value
