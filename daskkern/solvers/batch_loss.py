"""The loss of a batch and its gradient by the scores, with sample weights."""

import numpy as np

from daskkern.arrays import Array
from daskkern.backend.namespace import namespace_of
from daskkern.backend.reductions import sum_all
from daskkern.solvers.problem import AnyProblem, Batch


def loss_and_gradient(problem: AnyProblem, scores: Array, batch: Batch) -> tuple[float, Array]:
    """Return the summed loss and g (m, c), both with the sample weights inside. Waits for a GPU."""
    loss, gradient = pending_loss_and_gradient(problem, scores, batch)
    return float(loss), gradient


def pending_loss_and_gradient(problem: AnyProblem, scores: Array, batch: Batch) -> tuple[float | Array, Array]:
    """Return the same; on a GPU the loss is an array () float64 of it, so that nothing waits."""
    value, gradient = problem.loss.value_and_gradient(scores, batch.y)
    if batch.weight is not None:
        value = value * batch.weight[:, 0]
        gradient = gradient * batch.weight
    total = sum_all(value)
    return float(total) if namespace_of(total) is np else total, gradient
