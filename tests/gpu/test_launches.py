"""How often a step waits for a GPU, and how much it gives it: where steps are short, that is what takes the time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from types import ModuleType
from typing import Any, Literal

import numpy as np
import pytest
import scipy.sparse

from daskkern.backend.communicator import Communicator
from daskkern.backend.summation import add_in_order, add_stacked
from daskkern.basis import AllRows, BasisSpec, Landmarks
from daskkern.data.schema.schema import Scaling
from daskkern.kernels import Gaussian
from daskkern.kernels.engines import block_products as products
from daskkern.linalg import column_blocks, distributed_factor
from daskkern.linalg.joined_factor import joined_factor
from daskkern.losses import SquaredHinge
from daskkern.solvers import Batch, EigenPro, NystromSGD, Solver
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.run.fit import FitResult, fit
from daskkern.training.run.settings import FitSettings
from tests.support.gpu.fake_arrays import launches_counted, waits_counted
from tests.support.gpu.fake_gpu import FakeGpu
from tests.support.threads import run_threads

N, M, P = 480, 24, 640
BLOCKS = 10  # of the columns
SIGNALS = 8  # batches between two readings of the loss


@pytest.fixture
def cupy_here(stand_in: FakeGpu) -> Iterator[ModuleType]:
    with stand_in.installed() as module:
        yield module


def _fit(
    solver: Solver[Any],
    basis: BasisSpec,
    epochs: int,
    dtype: Literal["float32", "float64"] = "float32",
    m: int = M,
    alpha: float = 0.0,
    sparse: bool = False,
) -> tuple[FitResult, Counter[str]]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 6))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    rows = scipy.sparse.csr_array(X * (np.abs(X) > 0.7)) if sparse else X
    info = SourceInfo(N, 6, "classification", (0, 1, 2), Scaling(), None, 1, True, rows.nnz if sparse else None)
    source = ArraySource(rows, y, None, info)
    settings = FitSettings(
        Gaussian(3.0), SquaredHinge(), basis, solver, max_epochs=epochs, batch_size=m, device="gpu",
        keep_blocks="never", dtype=dtype, alpha=alpha,
    )  # fmt: skip
    with launches_counted() as names:
        result = fit(source, settings)
    return result, Counter(names)


@dataclass(frozen=True)
class Step:
    """A step and the making of its batch: what it launched, why it waited, and what came with it."""

    launches: Counter[str]
    waits: list[str]
    projects: bool
    signals: bool


def _steps(
    solver: Solver[Any], basis: BasisSpec, epochs: int = 2, alpha: float = 0.0, sparse: bool = False
) -> list[Step]:
    """Return the steps of the last epoch of a fit."""
    steps: list[Step] = []

    class Watched(type(solver)):  # type: ignore[misc]
        def step(self, problem: Any, state: Any, batch: Batch, comm: Any) -> Any:
            after, loss = super().step(problem, state, batch, comm)
            number = len(steps) % problem.batches_per_epoch
            signals = number % SIGNALS == 0 or batch.last
            steps.append(Step(Counter(launched), list(waited), not getattr(after, "in_window", 1), signals))
            launched.clear()
            waited.clear()
            return after, loss

    watched = Watched(**{field.name: getattr(solver, field.name) for field in fields(solver)})
    with launches_counted() as launched, waits_counted() as waited:
        _fit(watched, basis, epochs, alpha=alpha, sparse=sparse)
    return steps[-N // M :]


SOLVERS = {
    "window": (EigenPro(window=10, averaging=0.0), Landmarks(P), 40),
    "averaged": (EigenPro(window=5), Landmarks(P), 40),
    "all rows": (EigenPro(), AllRows(), 40),
    "nystrom_sgd": (NystromSGD(mode="streamed"), Landmarks(P), 40),
}


@pytest.mark.repeated
@pytest.mark.one_in(4)
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", SOLVERS)
def test_a_step_waits_for_nothing_and_takes_few_launches(cupy_here: ModuleType, name: str, sparse: bool) -> None:
    solver, basis, most = SOLVERS[name]
    assert len(column_blocks(P, 0, 1).blocks) == BLOCKS
    steps = _steps(solver, basis, sparse=sparse)
    plain = [step for step in steps if not (step.projects and isinstance(basis, Landmarks)) and not step.signals]
    assert len(plain) > 8
    assert [step.waits for step in plain] == [[]] * len(plain)
    assert max(step.launches.total() for step in plain) <= most, plain[-1].launches


@pytest.mark.repeated
def test_the_loss_is_read_with_the_signals(cupy_here: ModuleType) -> None:
    waits = [step.waits for step in _steps(EigenPro(window=10, averaging=0.0), Landmarks(P))]
    assert Counter(reason for reasons in waits for reason in reasons) == {"float": N // M // SIGNALS + 1}


@pytest.mark.repeated
@pytest.mark.parametrize("name", ["window", "all rows", "nystrom_sgd"])
def test_a_penalty_makes_no_step_wait(cupy_here: ModuleType, name: str) -> None:
    solver, basis, _ = SOLVERS[name]
    plain = [step for step in _steps(solver, basis, alpha=1e-4) if not step.signals]
    assert [step.waits for step in plain] == [[]] * len(plain)
    for step in plain:  # those that project are recorded as graphs
        assert step.launches.total() <= 40 + 4 * (step.projects and name == "window"), step.launches


@pytest.mark.repeated
def test_a_projection_takes_as_many_launches_with_few_blocks_as_with_many(cupy_here: ModuleType) -> None:
    steps = _steps(EigenPro(window=10, averaging=0.0), Landmarks(P))
    more = [step.launches.total() for step in steps if step.projects]
    assert len(more) == N // M // 10
    assert max(more) <= 40  # with panels: 77 with 10 blocks


@pytest.mark.repeated
def test_blocks_of_any_widths_take_one_launch(cupy_here: ModuleType) -> None:
    left, right = (cupy_here.asarray(np.ones(shape, np.float32)) for shape in ((3000, 700), (700, 12)))
    turned = cupy_here.asarray(np.ones((3000, 12), np.float32))
    cuts = [slice(0, 96), slice(96, 160), slice(160, 700)]
    with launches_counted() as names:
        products.multiply_blocks(left, right, cuts, cupy_here)
        products.multiply_transposed(left, turned, cupy_here)
    assert [name for name in names if name == "block_sums"] == ["block_sums"] * 2
    assert len(names) <= 6, names  # with the tables of blocks, which are kept


@pytest.mark.parametrize(("size", "most"), [(2, 1), (8, 3), (5, 4), (64, 6)])
def test_the_terms_of_ranks_are_added_level_by_level(cupy_here: ModuleType, size: int, most: int) -> None:
    terms = cupy_here.asarray(np.random.default_rng(0).standard_normal((size, 5)))
    with launches_counted() as names:
        total = add_stacked(terms)
    assert len(names) <= most, names
    np.testing.assert_array_equal(total.get(), add_in_order(list(terms.get())))


@pytest.mark.parametrize(("p", "most"), [(640, 12), (2400, 36)])  # one group, and two
def test_several_ranks_solve_with_few_launches(cupy_here: ModuleType, p: int, most: int) -> None:
    X = np.random.default_rng(0).standard_normal((p, 6))
    K, h = Gaussian(1.0).block(X, X), np.random.default_rng(1).standard_normal((p, 3))

    def work(comm: Communicator) -> tuple[int, int]:
        layout = column_blocks(p, comm.rank, comm.size)
        panels = [K[layout.blocks[k].start :, layout.blocks[k]].copy() for k in layout.own]
        factor = distributed_factor(panels, layout, 1e-3, comm, "float64")
        expected = factor.solve(h[layout.columns()], comm)
        with_panels = replace(factor, panels=tuple(map(cupy_here.asarray, factor.panels)))
        given = cupy_here.asarray(h[layout.columns()])
        counts = []
        for solver in (joined_factor(with_panels, cupy_here, "float64"), with_panels):
            comm.barrier()
            with launches_counted() as names:
                found = solver.solve(given, comm)
                comm.barrier()
            np.testing.assert_allclose(found.get(), expected, rtol=0, atol=1e-9 * float(np.abs(expected).max()))
            counts.append(sum(name != "copy" for name in names))  # those are the messages between threads
        return counts[0], counts[1]

    joined, panels = run_threads(2, work, timeout_s=60)[0]  # of both ranks, which share the device
    assert 0 < joined <= 2 * most
    assert joined < panels / 3, (joined, panels)
