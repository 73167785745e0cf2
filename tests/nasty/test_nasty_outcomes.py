"""Every fit to nasty data ends with a right answer or with a sentence; those that do not are listed."""

import zlib

import numpy as np
import pytest
from sklearn.kernel_ridge import KernelRidge
from sklearn.svm import LinearSVC

from daskkern.solvers import SOLVERS
from tests.nasty import misses as known
from tests.nasty.data import DATA_SETS, Problem
from tests.nasty.outcomes import compare, run
from tests.nasty.reference import Kernel, median_distance, solve
from tests.nasty.ways import METHODS, Case, cases

_CASES = list(cases())
_MISSES = known.misses()
_OTHERS = 150
"""One case in so many is run each time, chosen by its name, beside the next few."""
_ALWAYS = {
    "defaults / plain / regression / auto",
    "defaults / plain / classification / auto",
    "written out / plain / regression / sdca",
    "written out / offset 1e3 / regression / falkon",
    "written out / targets times 1e12 / regression / pcg",
}


def _marks(case: Case) -> list[pytest.MarkDecorator | pytest.Mark]:
    marks: list[pytest.MarkDecorator | pytest.Mark] = []
    if zlib.crc32(case.key.encode()) % _OTHERS and case.key not in _ALWAYS:
        marks.append(pytest.mark.slow)
    miss = _MISSES.get(case.key)
    if miss is not None:
        why = f"{miss.ratio:.3g} times the largest error that is right: {known.REASONS[miss.reason]}"
        marks.append(pytest.mark.xfail(reason=why, strict=miss.is_clear, raises=AssertionError))
    return marks


@pytest.mark.one_in(11)
@pytest.mark.parametrize("case", [pytest.param(case, marks=_marks(case), id=case.key) for case in _CASES])
def test_a_fit_ends_right_or_with_a_sentence(case: Case) -> None:
    outcome = run(case)
    if outcome.kind == "late":
        pytest.skip(f"not done after {outcome.seconds:.0f} s")
    assert outcome.kind in ("right", "sentence"), outcome
    assert "\n" not in outcome.said


def test_misses_name_cases_and_reasons() -> None:
    assert set(_MISSES) <= {case.key for case in _CASES}
    assert {miss.reason for miss in _MISSES.values()} <= set(known.REASONS)


def test_there_are_forty_data_sets_and_every_solver() -> None:
    assert len(DATA_SETS) >= 40
    assert {method.solver for method in METHODS.values()} == {"auto", *SOLVERS}


def _problem(task: str, n_classes: int = 2) -> Problem:
    problem = DATA_SETS["weights 1 and 100"].problem(task)
    y = problem.y if n_classes == 2 else np.digitize(problem.X[:, 0], np.linspace(-0.5, 0.5, n_classes - 1))
    return Problem(task, problem.X, y, problem.X_test, problem.y_test, problem.weight, False)


def test_the_reference_of_the_squared_loss_is_kernel_ridge() -> None:
    problem, kernel = _problem("regression"), Kernel("laplacian", 3.0)
    found = solve(problem, kernel, 1e-3, "squared", problem.X)
    weight = problem.weight / problem.weight.mean()
    centre = np.average(problem.y, weights=weight)
    ridge = KernelRidge(alpha=1e-3 * len(problem.y), kernel="precomputed")
    ridge.fit(kernel(problem.X, problem.X), problem.y - centre, sample_weight=weight)
    np.testing.assert_allclose(found, centre + ridge.predict(kernel(problem.X_test, problem.X)), rtol=1e-8)


@pytest.mark.parametrize(
    ("loss", "n_classes", "multi_class", "kind"),
    [
        ("squared_hinge", 2, "ovr", "squared_hinge"),
        ("squared_hinge", 4, "ovr", "squared_hinge"),
        ("multiclass_hinge", 4, "crammer_singer", "hinge"),
    ],
)
def test_the_reference_of_a_hinge_is_that_of_liblinear(loss: str, n_classes: int, multi_class: str, kind: str) -> None:
    problem, alpha, rank = _problem("classification", n_classes), 1e-2, 60
    kernel = Kernel("gaussian", median_distance(problem.X))
    points = problem.X[:rank]
    found = solve(problem, kernel, alpha, loss, points)
    values, vectors = np.linalg.eigh(kernel(points, points))
    features, features_test = (kernel(X, points) @ vectors / np.sqrt(values) for X in (problem.X, problem.X_test))
    machine = LinearSVC(
        C=1 / (len(problem.y) * alpha),
        loss=kind,
        multi_class=multi_class,
        fit_intercept=False,
        tol=1e-6,
        max_iter=100_000,
    )
    machine.fit(features, problem.y, sample_weight=problem.weight / problem.weight.mean())
    assert np.mean(found == machine.predict(features_test)) > 0.985


def test_errors_are_compared_on_one_side() -> None:
    problem = DATA_SETS["plain"].problem("regression")
    exact = problem.y_test + 0.1
    error, reference, allowed = compare(problem, problem.y_test + 0.105, exact)
    assert reference < error <= allowed
    error, _, allowed = compare(problem, problem.y_test + 0.12, exact)
    assert error > allowed
    error, _, allowed = compare(problem, problem.y_test, exact)
    assert error <= allowed
    error, _, allowed = compare(problem, np.full_like(exact, np.nan), exact)
    assert error > allowed
