"""Solvers and function spaces answer for themselves: nothing outside asks which one it has."""

import ast
from functools import cache
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

from daskkern import KernelRegressor
from daskkern.basis import RandomFeatures
from daskkern.errors import SpecError
from daskkern.kernels import Gaussian
from daskkern.losses import Logistic, Squared
from daskkern.solvers import SGD, SOLVERS, Problem, Solver
from daskkern.solvers.preparation import PREPARATIONS
from daskkern.solvers.setup import ColumnSetup, RankSetup
from tests.support.source_trees import trees

OWNERS = ("solvers", "basis", "preconditioners")
SUBJECTS = {"solver", "basis", "state"}
MOST = 0


@cache
def _owned() -> set[str]:
    """Return the names of the classes that solvers and function spaces are made of."""
    owners = (tree for path, tree in trees().items() if path.parts[0] in OWNERS)
    return {node.name for tree in owners for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}


def _names(node: ast.AST) -> set[str]:
    """Return the last parts of all names in an expression."""
    found = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


def _asks(node: ast.AST) -> bool:
    """Return whether `node` asks for the type of a solver, a function space or a state."""
    if isinstance(node, ast.MatchClass):
        return bool(_names(node.cls) & _owned())
    if isinstance(node, ast.Compare):  # by name is by type, too
        sides = [node.left, *node.comparators]
        named = [side for side in sides if isinstance(side, ast.Attribute) and side.attr == "name"]
        known = any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in sides)
        known |= any(_names(side.value) & _owned() for side in named)
        return known and any(_names(side.value) & SUBJECTS for side in named)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    if node.func.id in ("isinstance", "issubclass"):
        return bool(_names(node.args[1]) & _owned())
    return node.func.id == "type" and len(node.args) == 1 and bool(_names(node.args[0]) & SUBJECTS)


@pytest.mark.parametrize(
    "asking",
    [
        "isinstance(settings.solver, EigenPro | NystromSGD)",
        "isinstance(state, preconditioners.EigenProState)",
        "issubclass(kind, (AllRows, Landmarks))",
        "{Landmarks: 1}.get(type(chosen.basis))",
        "settings.solver.name == 'pcg'",
        "'linear' != basis.name",
        "settings.basis.name != AllRows.name",
        "match basis:\n    case Landmarks(): pass",
    ],
)
def test_the_count_sees_what_asks(asking: str) -> None:
    assert sum(_asks(node) for node in ast.walk(ast.parse(asking))) == 1


@pytest.mark.parametrize("plain", ["isinstance(loss, Squared)", "solver.name == other", "type(error).__name__"])
def test_the_count_leaves_the_rest_alone(plain: str) -> None:
    assert not any(_asks(node) for node in ast.walk(ast.parse(plain)))


def test_nothing_outside_asks_for_the_type_of_a_solver_a_space_or_a_state() -> None:
    assert {"EigenPro", "Landmarks", "NystromState", "PCGSetup"} <= _owned()
    asking = [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, tree in trees().items()
        if path.parts[0] not in OWNERS
        for node in ast.walk(tree)
        if _asks(node)
    ]
    assert len(asking) <= MOST, asking


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_a_problem_has_the_set_up_that_its_solver_makes(solver: type[Solver[Any]]) -> None:
    made = get_type_hints(solver.rank_setup)["return"]
    made = ColumnSetup if solver.rank_setup is Solver.rank_setup else made
    assert all(issubclass(kind, RankSetup) for kind in get_args(made) or (made,))
    for method in (solver.init, solver.step, solver.finish, solver.snapshot, solver.restore):
        assert get_type_hints(method)["problem"] == Problem[made]


@pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)
def test_what_a_solver_declares_is_known_and_agrees(solver: type[Solver[Any]]) -> None:
    assert solver.preparation in PREPARATIONS
    assert solver().storage in ("never", "auto", "always")
    assert solver().projection_factor in ("never", "auto", "always")
    for loss in (Squared(), Logistic()):
        assert solver().costs(1000, loss).by_rows is (solver.parallelism != "columns")


class _OfRows(SGD):
    parallelism = "rows"


class _Unprepared(SGD):
    preparation = "prayer"


class _WithoutSize(SGD):
    preparation = "spectrum"


@pytest.mark.parametrize(
    ("solver", "said"),
    [
        (
            _OfRows(),
            r"got parallelism='rows' of solver sgd, and ColumnCosts with by_rows=False for its costs; make them agree",
        ),
        (_WithoutSize(), r"got preparation='spectrum' of solver sgd, which has no method spectrum\(\)"),
        (_Unprepared(), r"got preparation='prayer' of solver sgd; expected one of statistics, spectrum, "),
    ],
)
def test_what_a_solver_declares_wrongly_is_refused(solver: Solver[Any], said: str) -> None:
    X = np.random.default_rng(0).standard_normal((40, 3))
    with pytest.raises(SpecError, match=said):
        KernelRegressor(Gaussian(2.0), "squared", RandomFeatures(10), solver, max_epochs=1).fit(X, X[:, 0])
