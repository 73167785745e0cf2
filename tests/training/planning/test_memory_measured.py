"""Measured peak <= planned <= budget: for every primitive and for whole fits, each in a process of its own."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, ended

NAMES = [
    "block",
    "block_widened",
    "matvec_widened",
    "points_widened",
    "fit_widened",
    "matvec",
    "matvec_wide",
    "points",
    "left_dense_csr",
    "spectrum",
    "factor",
    "learn_outputs",
    "learn_few",
    "learn_full",
    "learn_wide",
    "learn_pass",
    "fit_landmarks",
    "fit_landmarks_kept",
    "fit_landmarks_on_disk",
    "fit_all_rows",
    "fit_iterative",
    "fit_dense_csr",
    "fit_rows_kept",
    "fit_nystrom",
    "fit_falkon_kept",
    "fit_falkon_newton",
    "fit_direct",
    "fit_direct_all_rows",
    "fit_pcg",
    "fit_features",
    "fit_mapped",
    "fit_mapped_sgd",
    pytest.param("fit_doubly", marks=pytest.mark.slow),
    pytest.param("fit_block_cd", marks=pytest.mark.slow),
]

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of resident memory is read from Linux's /proc"
)


@pytest.mark.repeated
@pytest.mark.one_in(34, 15)
@pytest.mark.parametrize("name", NAMES)
def test_measured_memory_stays_below_the_plan(name: str) -> None:
    run = ended([sys.executable, "-m", "tests.support.children.memory", name], timeout=280, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert 0 <= found["measured"] <= found["planned"] <= found["budget"]
    # A plan that says too much refuses fits that would run; what tiles take is a matter of the engine.
    assert found["planned"] < 3 * found["measured"] + (32 << 20)


@pytest.mark.repeated
@pytest.mark.one_in(4, 2)
@pytest.mark.parametrize("n", [250, 2000])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_estimators_stay_below_the_plan_of_their_defaults(task: str, n: int) -> None:
    """A metric is learned, and the model is calibrated, in the process of the fit."""
    words = [sys.executable, "-m", "tests.support.children.memory_of_estimators", task, str(n)]
    run = ended(words, timeout=280, cwd=ROOT)
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["measured"] <= found["planned"] < 3 * found["measured"]
