"""Inner products of a tile of rows with a chunk of columns: of packed dense rows, or CSR rows in place.

For formulas of differences, sums of ``t(x_j - z_j)`` take their place, with t a power of the size, or what saturates. A
CSR row sums ``t(x_j - z_j) - t(z_j)`` over its entries, to which the formula adds ``sum_j t(z_j)``: what lies in
features that the row lacks. Capped sums take ``min(|x_j - z_j|, cap_j)`` in place of each size.
"""

from collections.abc import Callable
from functools import partial

from daskkern.backend.machine_code.emitter import I64, Value
from daskkern.kernels.engines.native.chunks import LINE, WIDE
from daskkern.kernels.engines.native.frame import Chunk, Frame
from daskkern.kernels.engines.native.profiles import power, saturated

DEPTH = 256
"""Features that are summed in a register before the sum is added to the buffer: two levels reduce rounding."""
_AHEAD = 16  # features by which rows and panels are prefetched before they are multiplied


class InnerProducts(Frame):
    """Fills a chunk's buffer."""

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

    def _multiply(
        self, first: Value, rows: Value, groups: Value, chunk: Chunk, source: Value, finish: Callable[[Value], None]
    ) -> None:
        """Fill a chunk panel by panel, and call `finish` with the number of each one while it is in cache."""
        if self.kind.sparse_rows:
            self._multiply_sparse(first, rows, chunk, source, finish)
            return
        e, size = self.e, self.shape.rows
        # Panels outside, groups of rows inside: a panel is fetched once, and meets all rows while it is in cache.
        passes = e.b.sdiv(e.b.add(self.n["n_features"], I64(DEPTH - 1)), I64(DEPTH))
        with e.loop(0, passes) as number:
            k0 = e.b.sdiv(e.b.mul(self.n["n_features"], number), passes)
            k1 = e.b.sdiv(e.b.mul(self.n["n_features"], e.b.add(number, I64(1))), passes)
            fresh = e.b.icmp_signed("==", k0, I64(0))
            share = self._share_of_lines(e.b.sub(k1, k0), groups)
            last = e.b.icmp_signed("==", number, e.b.sub(passes, I64(1)))
            with e.loop(0, chunk.panels) as q:
                place = q if self.kind.sparse_columns else e.b.add(chunk.panel, q)
                panel = e.at(source, e.times(e.times(place, self.n["n_features"]), self.shape.panel))
                with e.loop(0, groups) as g:
                    self._prefetch(panel, k0, e.times(g, share), share)
                    packed = e.at(self.p["packed"], e.times(e.times(g, size), self.n["n_features"]))
                    target = e.at(chunk.buffer, e.times(g, size * self.width), e.times(q, self.shape.panel))
                    self._register_tile(packed, panel, target, k0, k1, fresh)
                with e.b.if_then(last):
                    finish(q)

    def _share_of_lines(self, features: Value, groups: Value) -> Value:
        """Return the cache lines of the next panel that one group of rows prefetches; none for narrow rows."""
        e, per_feature = self.e, self.shape.panel * self.shape.itemsize // LINE
        lines = e.times(features, per_feature)
        share = e.b.sdiv(e.b.add(lines, e.b.sub(groups, I64(1))), groups)
        return e.b.select(e.b.icmp_signed("<", self.n["n_features"], I64(WIDE)), I64(0), share)

    def _prefetch(self, panel: Value, k0: Value, start: Value, count: Value) -> None:
        """Prefetch `count` lines of the same features in the next panel."""
        e = self.e
        following = e.at(panel, e.times(e.b.add(self.n["n_features"], k0), self.shape.panel))
        with e.loop(start, e.b.add(start, count)) as line:
            e.prefetch(following, e.times(line, LINE // self.shape.itemsize))

    def _register_tile(self, packed: Value, panel: Value, target: Value, k0: Value, k1: Value, fresh: Value) -> None:
        e, size, lanes = self.e, self.shape.rows, self.shape.lanes
        line = LINE // self.shape.itemsize

        def step(k: Value, sums: list[Value]) -> list[Value]:
            ahead = e.b.add(k, I64(_AHEAD))
            for source, width in ((panel, self.shape.panel), (packed, size)):
                for at in range(0, width, line):
                    e.prefetch(source, e.times(ahead, width), at)
            columns = [e.load(panel, e.times(k, self.shape.panel), v * lanes) for v in range(2)]
            cap, out = self._cap(k), []
            for i in range(
                size
            ):  # 2 * size sums stay in registers, so that each loaded number is used 2 or `size` times
                x = e.splat(e.scalar(packed, e.times(k, size), i))
                out += [self._with_term(x, columns[v], cap, sums[2 * i + v]) for v in range(2)]
            return out

        sums = e.accumulate(k0, k1, [e.const(0)] * (2 * size), step)
        # The first pass over the features stores, later ones add: the buffer is never cleared.
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

    def _cap(self, feature: Value) -> Value | None:
        return self.e.splat(self.e.scalar(self.p["caps"], feature)) if self.is_capped else None

    def _with_term(self, x: Value, z: Value, cap: Value | None, total: Value) -> Value:
        """Return `total` with the term of one feature."""
        if not self.sums_differences:
            return self.e.fma(x, z, total)
        return self.e.b.fadd(total, self._size_of(self.e.b.fsub(x, z), cap))

    def _with_entry(self, x: Value, z: Value, cap: Value | None, total: Value) -> Value:
        """Return `total` with the term of one entry of a CSR row."""
        if not self.sums_differences:
            return self.e.fma(x, z, total)
        e = self.e
        return e.b.fadd(total, e.b.fsub(self._size_of(e.b.fsub(x, z), cap), self._size_of(z, cap)))

    def _size_of(self, gap: Value, cap: Value | None) -> Value:
        size = self.e.call("fabs", gap)
        if cap is not None:
            size = self.e.smaller(size, cap)
        if self.saturates:
            return saturated(self.e, size)
        return size if self.exponent is None else power(self.e, size, self.exponent)

    def _multiply_sparse(
        self, first: Value, rows: Value, chunk: Chunk, source: Value, finish: Callable[[Value], None]
    ) -> None:
        """Sparse rows: one panel after the other stays in cache, or the whole chunk where it was spread for this."""
        e = self.e
        count = self.chunk if self.kind.sparse_columns else 1
        with e.loop(0, chunk.panels, count) as q, e.loop(0, rows) as i:
            row = e.b.add(first, i)
            start, stop = (e.b.load(e.at(self.p["x_starts"], row, k)) for k in range(2))
            target = e.at(chunk.buffer, e.times(i, self.width), e.times(q, self.shape.panel))
            self._sparse_row(start, stop, target, chunk, q, source, count)
        with e.loop(0, chunk.panels) as q:
            finish(q)

    def _sparse_row(
        self, start: Value, stop: Value, target: Value, chunk: Chunk, q: Value, source: Value, count: int
    ) -> None:
        """Add a row's entries, each times the vectors of its feature, for `count` panels side by side."""
        e, lanes, vectors = self.e, self.shape.lanes, 2 * count
        # Rows without entries keep these zeros: `accumulate` takes at least one turn, so it is skipped for them.
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
            x, cap = e.splat(e.scalar(self.p["x"], at)), self._cap(feature)
            return [
                self._with_entry(x, e.load(source, place, e.times(apart, v // 2), v % 2 * lanes), cap, sums[v])
                for v in range(vectors)
            ]

        with e.b.if_then(e.b.icmp_signed("<", start, stop)):
            sums = e.accumulate(start, stop, [e.const(0)] * vectors, step)
            for v in range(vectors):
                e.store(sums[v], target, v * lanes)

    def _spread(self, chunk: Chunk) -> Value:
        """Lay out a chunk of CSR columns densely: whole panels for dense rows, else only the features that occur.

        For CSR rows `slots` maps a feature to its line of the spread chunk; line 0 is zero and stands for absence.
        """
        e, spread = self.e, self.p["spread"]
        last = e.b.sub(self.n["z_rows"], I64(1))
        dense = not self.kind.sparse_rows
        # The z_rows of the previous chunk are cleared first: its features' slots are reset to 0.
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
            for v in range(2 * self.chunk):
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
            for v in range(2 * self.chunk):
                e.store(e.const(0), e.at(spread, e.times(slot, self.width)), v * self.shape.lanes)
        e.b.store(value, e.at(spread, e.times(e.b.load(place), self.width), j))
