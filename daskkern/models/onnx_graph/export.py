"""Export of a fitted model to one ONNX file: inputs, scaling, scores and outputs."""

from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np

from daskkern.arrays import FloatArray, HostArray
from daskkern.calibration import Calibration, ScoreScaling
from daskkern.data.schema.encoding import Encoding
from daskkern.data.schema.schema import ClassLabel, Scaling
from daskkern.data.transactions.atomic import write_bytes
from daskkern.data.transactions.overwrite_guard import FileKind, check_file
from daskkern.errors import ModelError, SpecError
from daskkern.kernels import Kernel
from daskkern.losses import Loss
from daskkern.models.onnx_graph.builder import GraphBuilder
from daskkern.models.onnx_graph.inputs import FEATURES, column_inputs, matrix_input, scaled_rows
from daskkern.models.onnx_graph.outputs import (
    Named,
    Output,
    each_probability,
    label_array,
    label_nodes,
    loss_probabilities,
    scaled_probabilities,
)
from daskkern.models.onnx_graph.scores import score_nodes

OPSET, ML_OPSET, IR_VERSION = 17, 3, 8
"""Versions that runtimes since 2022 read."""
InputChoice: TypeAlias = Literal["auto", "features", "columns"]


class Exportable(Protocol):
    """What is exported of a model; see :class:`daskkern.models.KernelModel`."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def points(self) -> Any: ...
    @property
    def coef(self) -> HostArray: ...
    @property
    def loss(self) -> str: ...
    @property
    def task(self) -> str: ...
    @property
    def classes(self) -> tuple[ClassLabel, ...] | None: ...
    @property
    def scaling(self) -> Scaling: ...
    @property
    def target_shift(self) -> HostArray | None: ...
    @property
    def target_scale(self) -> HostArray | None: ...
    @property
    def single_target(self) -> bool: ...
    @property
    def encoding(self) -> Encoding | None: ...
    @property
    def scores_each(self) -> int: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def n_features(self) -> int: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def loss_function(self) -> Loss: ...
    @property
    def has_probabilities(self) -> bool: ...
    def widening(self, confidence: float) -> FloatArray: ...


def check_onnx() -> Any:
    """Return the package onnx. Raises ModelError where it is not installed."""
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError:
        raise ModelError(
            "the package onnx is not installed, which writes ONNX files; run: pip install 'daskkern[onnx]'"
        ) from None
    return onnx


def write_onnx(
    model: Exportable,
    path: str | Path,
    inputs: str = "auto",
    *,
    confidence: float | None = None,
    overwrite: bool = False,
) -> None:
    """Write `model` to an ONNX file, which appears when it is complete.

    Predictions are those of the model up to rounding, for the settings of :meth:`KernelModel.predict`. The sum over the
    points is a loop over pieces of 512 of them: memory is about (rows, 512) numbers, whatever the number of points.

    Parameters
    ----------
    model : KernelModel
    path : str or Path
        A local file; an older one is replaced if daskkern wrote it.
    inputs : "auto", "features" or "columns"
        "features" is one input ``X``, (n, d) float64, in the units of the training data. "columns" is one input (n, 1)
        for each column of the table that the model learned from, by its name: float64 for numbers (NaN where missing;
        dates as days since 1970-01-01), texts for categories ("" where missing). "auto" takes columns where the model
        has an encoding.
    confidence : float, optional
        Between 0 and 1: of a calibrated model of regression, also write intervals with this confidence, as
        :meth:`KernelModel.predict_interval` returns them.
    overwrite : bool
        Replace any other file, too.

    Notes
    -----
    Outputs are ``prediction``, (n,) or (n, t) float64, of regression, of several quantiles in ascending order; or
    ``label``, (n,) in the kind of the labels, or (n, t) int64 of several labels, ``scores`` (n, c) float64 and, of
    models that have some, ``probabilities`` (n, n_classes). An output with the name of a column has "model " before
    it. With a confidence, regression also has ``lower`` and ``upper``, (n,) or (n, t) float64; of several quantiles
    (n,). Where the model raises DataError - a score that is not a number, a category that the training data do not
    have - the runtime fails too, or predicts NaN for numbers. Scaling is part of the graph; sets and standard
    deviations are not.

    Raises
    ------
    ModelError
        Without the package onnx, for a confidence where the model has no intervals, and for what ONNX cannot express:
        a kernel or loss with functions of its own, labels of several kinds, points of more than 2 GB.
    SpecError, DataError, StoreError
        For another `inputs`, a confidence that is not between 0 and 1 or needs more calibration rows, and a path that
        cannot be written.
    """
    check_file(path, FileKind.ONNX, overwrite=overwrite)
    write_bytes(path, onnx_bytes(model, inputs, confidence))


def onnx_bytes(model: Exportable, inputs: str = "auto", confidence: float | None = None) -> bytes:
    """Return an ONNX file that predicts as `model` does.

    See :func:`write_onnx` for parameters, inputs, outputs and errors.
    """
    if inputs not in get_args(InputChoice):
        raise SpecError(f"got inputs {inputs!r}; choose one of {', '.join(get_args(InputChoice))}")
    widening = None if confidence is None else model.widening(confidence)
    onnx = check_onnx()
    graph = GraphBuilder(onnx)
    infos, rows = _inputs(graph, model, inputs)
    scaled = scaled_rows(graph, model.scaling, rows, model.points.dtype)
    scores = _scores(graph, model, score_nodes(graph, model.kernel, model.points, model.coef, scaled))
    taken = {info.name for info in infos}
    outputs = []
    for name, tensor, dtype, shape in _outputs(graph, model, scores, widening):
        name = f"model {name}" if name in taken else name
        graph.nodes.append(onnx.helper.make_node("Identity", [tensor], [name]))
        outputs.append(graph.value_info(name, dtype, shape))
    made = onnx.helper.make_graph(graph.nodes, "daskkern", infos, outputs, graph.initializers)
    versions = [onnx.helper.make_opsetid("", OPSET), onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    whole = onnx.helper.make_model(made, opset_imports=versions, ir_version=IR_VERSION, producer_name="daskkern")
    facts = {"task": model.task, "kernel": model.kernel.name, "loss": model.loss}
    onnx.helper.set_model_props(whole, facts)
    written: bytes = whole.SerializeToString()
    return written


def _inputs(graph: GraphBuilder, model: Exportable, inputs: str) -> tuple[list[Any], str]:
    if inputs == "columns" and model.encoding is None:
        raise SpecError(
            "got inputs 'columns', but the model records no columns: it was trained on arrays, or on plain numbers; "
            f"choose 'features', a matrix {FEATURES!r}"
        )
    if model.encoding is not None and inputs != "features":
        return column_inputs(graph, model.encoding)
    return matrix_input(graph, model.n_features)


def _scores(graph: GraphBuilder, model: Exportable, sums: str) -> str:
    """Return scores (n, c) float64, rounded as the model's, with the constants of its classes."""
    scores = sums
    if model.scores_each > 1:
        shape = graph.constant([-1, model.n_outputs, model.scores_each], np.int64)
        scores = graph.op("ReduceMax", graph.op("Reshape", scores, shape), axes=[2], keepdims=0)
    if model.task != "regression" and model.target_shift is not None:
        scores = graph.op("Add", scores, graph.constant(model.target_shift, np.float64))
    return graph.cast(graph.cast(scores, model.coef.dtype), np.float64)


def _outputs(graph: GraphBuilder, model: Exportable, scores: str, widening: FloatArray | None) -> Named:
    c = model.n_outputs
    if model.task == "regression":
        values = _target_values(graph, model, scores)
        bounds = [] if widening is None else _bounds(graph, model, values, widening)
        return [_of_targets(graph, model, "prediction", values), *bounds]
    found: Named = []
    if model.task == "multilabel":
        labels = graph.cast(graph.op("Greater", scores, graph.constant(0.0, np.float64)), np.int64)
        found.append(("label", labels, np.int64, [None, c]))
    else:
        assert model.classes is not None
        kind = label_array(model.classes).dtype
        found.append(("label", label_nodes(graph, scores, c, model.classes), kind, [None]))
    found.append(("scores", scores, np.float64, [None, c]))
    if model.has_probabilities:
        width = c if model.task == "multilabel" else len(model.classes or ())
        found.append(("probabilities", _probabilities(graph, model, scores), np.float64, [None, width]))
    return found


def _probabilities(graph: GraphBuilder, model: Exportable, scores: str) -> str:
    scaling = None if model.calibration is None else model.calibration.scaling
    if model.task == "multilabel":
        return each_probability(graph, scores, scaling or ScoreScaling(1.0))
    if scaling is not None:
        return scaled_probabilities(graph, scores, model.n_outputs, scaling)
    return loss_probabilities(graph, scores, model.n_outputs, model.loss_function)


def _target_values(graph: GraphBuilder, model: Exportable, scores: str) -> str:
    """Return predictions (n, c) in the units of the targets; of several quantiles, ascending."""
    values = scores
    if model.target_scale is not None:
        values = graph.op("Mul", values, graph.constant(model.target_scale, np.float64))
    if model.target_shift is not None:
        values = graph.op("Add", values, graph.constant(model.target_shift, np.float64))
    if model.loss_function.heads > 1:
        count = graph.constant([model.n_outputs], np.int64)
        values = graph.ops("TopK", 2, values, count, axis=1, largest=0, sorted=1)[0]
    return values


def _of_targets(graph: GraphBuilder, model: Exportable, name: str, values: str) -> Output:
    """Return values (n, c) as an output with the shape of predictions."""
    if model.loss_function.heads == 1 and model.single_target:
        return (name, _squeezed(graph, values), np.float64, [None])
    return (name, values, np.float64, [None, model.n_outputs])


def _bounds(graph: GraphBuilder, model: Exportable, values: str, widening: FloatArray) -> Named:
    """Return lower and upper bounds for predictions (n, c); see :meth:`KernelModel.intervals`."""
    width = graph.constant(widening, np.float64)
    if model.loss_function.heads == 1:
        names = (("lower", "Sub"), ("upper", "Add"))
        return [_of_targets(graph, model, name, graph.op(move, values, width)) for name, move in names]
    first, last = (graph.constant([at], np.int64) for at in (0, model.n_outputs - 1))
    low = graph.op("Sub", graph.op("Gather", values, first, axis=1), width)
    high = graph.op("Add", graph.op("Gather", values, last, axis=1), width)
    middle = graph.op("Div", graph.op("Add", low, high), graph.constant(2.0, np.float64))
    ends = (("lower", graph.op("Min", low, middle)), ("upper", graph.op("Max", high, middle)))
    return [(name, _squeezed(graph, end), np.float64, [None]) for name, end in ends]


def _squeezed(graph: GraphBuilder, column: str) -> str:
    return graph.op("Squeeze", column, axes=[1])
