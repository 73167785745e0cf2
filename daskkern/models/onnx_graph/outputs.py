"""The outputs of an ONNX graph: predictions, or labels with scores and probabilities."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskkern.calibration import ScoreScaling
from daskkern.data.schema.schema import ClassLabel
from daskkern.errors import ModelError
from daskkern.losses import Logistic, Loss, MultinomialLogistic, Probabilistic
from daskkern.models.onnx_graph.builder import GraphBuilder

Output = tuple[str, str, Any, list[int | None]]
"""An output: its name for users, the tensor, dtype and shape."""

Named = list[Output]


def label_array(classes: Sequence[ClassLabel]) -> Any:
    """Return the class labels as one array, or raise ModelError where they are of several kinds."""
    kinds = sorted({type(label).__name__ for label in classes})
    if len(kinds) > 1:
        raise ModelError(
            f"the model has class labels of kinds {', '.join(kinds)}, which no tensor of ONNX holds; fit with labels "
            "of one kind"
        )
    return np.asarray(classes)


def label_nodes(graph: GraphBuilder, scores: str, n_scores: int, classes: Sequence[ClassLabel]) -> str:
    """Return the labels (n,) of scores (n, c) float64: the sign of a single one, else the largest.

    Looking up a label fails where a score is not a number.
    """
    labels = label_array(classes)
    if len(classes) == 1:
        first = graph.op("Gather", scores, graph.constant(0, np.int64), axis=1)
        code = graph.op("Mul", graph.cast(graph.op("IsNaN", first), np.int64), graph.constant(0, np.int64))
    elif n_scores == 1:
        first = graph.op("Gather", scores, graph.constant(0, np.int64), axis=1)
        code = graph.cast(graph.op("Greater", first, graph.constant(0.0, np.float64)), np.int64)
    else:
        code = graph.op("ArgMax", scores, axis=1, keepdims=0)
    differences = graph.op("ReduceSum", graph.op("Sub", scores, scores), axes=[1], keepdims=0)  # NaN for infinity too
    unknown = graph.op("IsNaN", differences)
    code = graph.op("Where", unknown, graph.constant(len(classes), np.int64), code)
    return graph.op("Gather", graph.constant(labels), code)


def scaled_probabilities(graph: GraphBuilder, scores: str, n_scores: int, scaling: ScoreScaling) -> str:
    """Return ``softmax(scale s + offset)`` of scores s; see :class:`daskkern.calibration.ScoreScaling`."""
    logits = graph.op("Mul", _two_columns(graph, scores, n_scores), graph.constant(scaling.scale, np.float64))
    if scaling.offset:
        logits = graph.op("Add", logits, graph.constant(scaling.offset, np.float64))
    return graph.op("Softmax", logits, axis=1)


def each_probability(graph: GraphBuilder, scores: str, scaling: ScoreScaling) -> str:
    """Return the probability of each of several labels."""
    return graph.op("Sigmoid", graph.op("Mul", scores, graph.constant(scaling.scale, np.float64)))


def _two_columns(graph: GraphBuilder, scores: str, n_scores: int) -> str:
    if n_scores > 1:
        return scores
    return graph.op("Concat", graph.op("Sub", scores, scores), scores, axis=1)


def _logistic(graph: GraphBuilder, scores: str, n_scores: int) -> str:
    positive = graph.op("Sigmoid", scores)
    if n_scores == 1:
        rest = graph.op("Sigmoid", graph.op("Neg", scores))
        return graph.op("Concat", rest, positive, axis=1)
    total = graph.op("ReduceSum", positive, axes=[1], keepdims=1)
    none = graph.op("Equal", total, graph.constant(0.0, np.float64))
    safe = graph.op("Where", none, graph.constant(1.0, np.float64), total)
    return graph.op("Where", none, graph.constant(1 / n_scores, np.float64), graph.op("Div", positive, safe))


def _multinomial(graph: GraphBuilder, scores: str, n_scores: int) -> str:
    del n_scores
    return graph.op("Softmax", scores, axis=1)


PROBABILITIES: dict[type[Loss], Callable[[GraphBuilder, str, int], str]] = {
    Logistic: _logistic,
    MultinomialLogistic: _multinomial,
}
"""Class probabilities of the losses that have some, from scores (n, c) float64."""


def loss_probabilities(graph: GraphBuilder, scores: str, n_scores: int, loss: Loss) -> str:
    """Return probabilities by the loss itself. Raises ModelError for a loss whose formula is not known here."""
    made = PROBABILITIES.get(type(loss))
    if made is None:
        assert isinstance(loss, Probabilistic)
        raise ModelError(
            f"the probabilities of the {loss.name} loss are computed by functions of its own, which ONNX cannot "
            "express; fit with calibrate=True, whose probabilities it can"
        )
    return made(graph, scores, n_scores)
