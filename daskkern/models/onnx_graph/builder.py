"""Nodes and constants of an ONNX graph, collected one call at a time."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from daskkern.arrays import HostArray

AXES_AS_INPUT = ("ReduceSum", "Unsqueeze", "Squeeze")
"""Operators of this version of ONNX that take axes as an input."""


@dataclass(eq=False)
class GraphBuilder:
    """A graph that grows by :meth:`op`; the body of a loop shares the constants and the names of its `parent`.

    Attributes
    ----------
    onnx : module
        The package onnx, which is optional.
    parent : GraphBuilder or None
    nodes, initializers : list
        What the graph consists of, in order.
    """

    onnx: Any
    parent: "GraphBuilder | None" = None
    nodes: list[Any] = field(default_factory=list)
    initializers: list[Any] = field(default_factory=list)
    _numbers: Any = field(default_factory=count)

    def name(self, what: str = "t") -> str:
        """Return a new name, which no column of a table has."""
        return f"daskkern/{what}{next(self._root._numbers)}"

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> str:
        """Return the name of a constant, a copy of `values`; texts are written as UTF-8."""
        array: HostArray = np.ascontiguousarray(np.asarray(values, dtype)).reshape(np.shape(values))
        root = self._root
        name = root.name("c")
        helper = self.onnx.helper
        if array.dtype.kind in "OUS":
            texts = [str(text).encode() for text in array.ravel()]
            tensor = helper.make_tensor(name, self.onnx.TensorProto.STRING, array.shape, texts)
        else:
            tensor = self.onnx.numpy_helper.from_array(array, name)
        root.initializers.append(tensor)
        return name

    def op(self, kind: str, *inputs: str, axes: Sequence[int] | None = None, **attributes: Any) -> str:
        """Add a node of one output, and return that output's name."""
        return self.ops(kind, 1, *inputs, axes=axes, **attributes)[0]

    def ops(
        self, kind: str, n_outputs: int, *inputs: str, axes: Sequence[int] | None = None, **attributes: Any
    ) -> list[str]:
        """Add a node, and return the names of its outputs."""
        given = list(inputs)
        if axes is not None:
            if kind in AXES_AS_INPUT:
                given.append(self.constant(list(axes), np.int64))
            else:
                attributes["axes"] = list(axes)
        outputs = [self.name() for _ in range(n_outputs)]
        self.nodes.append(self.onnx.helper.make_node(kind, given, outputs, **attributes))
        return outputs

    def cast(self, value: str, dtype: npt.DTypeLike) -> str:
        """Return `value` in another dtype."""
        return self.op("Cast", value, to=self.type_of(dtype))

    def type_of(self, dtype: npt.DTypeLike) -> int:
        """Return ONNX's number of a dtype; those of texts are of kind "U" or "O"."""
        if np.dtype(dtype).kind in "OUS":
            return int(self.onnx.TensorProto.STRING)
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def value_info(self, name: str, dtype: npt.DTypeLike, shape: Sequence[int | str | None]) -> Any:
        """Return the declaration of an input or output."""
        return self.onnx.helper.make_tensor_value_info(name, self.type_of(dtype), list(shape))

    def body(self) -> "GraphBuilder":
        """Return a builder for the body of a loop in this graph."""
        return GraphBuilder(self.onnx, self)

    @property
    def _root(self) -> "GraphBuilder":
        return self if self.parent is None else self.parent._root
