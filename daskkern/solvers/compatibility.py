"""Checks that a solver supports a loss and a function space; errors name what is missing and an alternative."""

from collections.abc import Callable, Mapping
from typing import Any

from daskkern.errors import SpecError
from daskkern.losses import LOSSES, Loss, parse_loss
from daskkern.solvers.base import Solver


def check_pair(
    solver: Solver[Any], loss: Loss, basis: str, known: Callable[[], Mapping[str, type[Solver[Any]]]]
) -> None:
    """Raise SpecError when `solver` cannot minimise `loss`, or not over the function space `basis`.

    `known` returns the solvers to name instead.
    """
    if basis not in solver.bases:
        words = {
            "all rows": "all rows as centres",
            "landmarks": "Landmarks(n)",
            "random features": "RandomFeatures(n)",
            "nystrom features": "NystromFeatures(n)",
            "linear": "Linear()",
            "locally linear": "LocallyLinear(n)",
            "doubly stochastic": "DoublyStochastic()",
            "local rows": "LocalRows(leaf_rows)",
        }
        raise SpecError(
            f"got {words.get(basis, basis)} for solver {solver.name}; it needs "
            f"{' or '.join(words.get(name, name) for name in solver.bases)}; solvers for {words.get(basis, basis)}: "
            f"{_those(known(), loss, basis)}"
        )
    if solver.ability is not None and not isinstance(loss, solver.ability[0]):
        raise SpecError(
            f"solver {solver.name} needs a loss with {solver.ability[1]}, and the {loss.name} loss has none; "
            f"{_remedy(solver, known(), loss, basis)}"
        )


def _remedy(solver: Solver[Any], known: Mapping[str, type[Solver[Any]]], loss: Loss, basis: str) -> str:
    taken, loss_words = _supporting(known, loss, basis), f"choose the loss {_losses_of(type(solver), loss)}"
    return f"{loss_words}, or one of the solvers {', '.join(taken)}" if taken else loss_words


def _those(known: Mapping[str, type[Solver[Any]]], loss: Loss, basis: str) -> str:
    """Return the solvers over a function space that take the loss, or all of them, each with the losses it takes."""
    taken = _supporting(known, loss, basis)
    if taken:
        return ", ".join(taken)
    return ", ".join(
        f"{name}, with the loss {_losses_of(one, loss)}" for name, one in known.items() if basis in one.bases
    )


def _supporting(known: Mapping[str, type[Solver[Any]]], loss: Loss, basis: str) -> list[str]:
    over = {name: solver for name, solver in known.items() if basis in solver.bases}
    return [name for name, solver in over.items() if solver.ability is None or isinstance(loss, solver.ability[0])]


def _losses_of(solver: type[Solver[Any]], instead_of: Loss) -> str:
    """Return the losses that a solver takes: those for a task of `instead_of`, or all where there are none."""
    ability = solver.ability
    assert ability is not None
    taken = [name for name in LOSSES.working() if isinstance(parse_loss(name), ability[0])]
    alike = [name for name in taken if parse_loss(name).tasks & instead_of.tasks]
    return " or ".join(repr(name) for name in alike or taken)
