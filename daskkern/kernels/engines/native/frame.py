"""The base class of the parts of a compiled product: its arguments, and the current chunk of columns."""

from dataclasses import dataclass

from llvmlite import ir

from daskkern.backend.machine_code.emitter import F64, I64, Emitter, Value
from daskkern.backend.machine_code.shape import Shape
from daskkern.kernels.engines.native.call import FIELDS, CallKind
from daskkern.kernels.engines.native.chunks import chunk_panels
from daskkern.kernels.engines.native.profiles import Lowered
from daskkern.kernels.formula import DIFFERENCES, is_capped


@dataclass(frozen=True)
class Chunk:
    """Some panels of a block: number of the first, how many, first column, how many columns are real, its buffer."""

    panel: Value
    panels: Value
    column: Value
    width: Value
    buffer: Value


class Frame:
    """A function under construction: its emitter, its words as pointers (`p`) and numbers (`n`), its constants."""

    def __init__(self, module: ir.Module, shape: Shape, what: Lowered, kind: CallKind) -> None:
        self.kind, self.what, self.shape = kind, what, shape
        function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64.as_pointer()]), kind.name)
        function.attributes.add("nounwind")
        self.e = e = Emitter(module, ir.IRBuilder(function.append_basic_block("entry")), shape)
        self.chunk = chunk_panels(sparse_columns=kind.sparse_columns)
        self.width = self.chunk * shape.panel
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
        self.sums_differences = bool(self.used & set(DIFFERENCES))
        self.saturates = any(op.endswith("saturated_sum") for op in self.used)
        self.is_capped = is_capped(what.instructions)
        self.exponent = self._exponent()

    def _exponent(self) -> Value | None:
        """Return p of the sum of powers that the formula reads, or None."""
        places = [at for at, step in enumerate(self.what.instructions) if step.op == "constant"]
        args = [step.args[0] for step in self.what.instructions if step.op.endswith("power_sum")]
        return self.constants[places.index(args[0])] if args else None

    def _block(self, block: Value) -> list[Value]:
        """Return the words of a block: first panel, panels, first column, columns, number of its first chunk."""
        return [self.e.b.load(self.e.at(self.p["blocks"], self.e.times(block, 5), k)) for k in range(5)]

    def _place(self, number: Value, at: Value) -> Value:
        """Return the buffer of the chunk at panel `at` of a block: one for all, or one for each that is kept."""
        if self.kind.makes not in ("keep", "stored"):
            return self.p["buffer"]
        e = self.e
        chunk = e.b.add(number, e.b.sdiv(at, I64(self.chunk)))
        return e.at(self.p["buffer"], e.times(e.times(chunk, self.n["tile_rows"]), self.width))
