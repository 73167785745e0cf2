"""Run as a process of its own: one primitive or one fit, and what it added to the peak of resident memory."""

import json
import sys
from collections.abc import Callable

import numpy as np
import scipy.sparse

from daskkern.backend.communicator import SerialCommunicator
from daskkern.backend.concurrency import compute_threads, library_threads
from daskkern.basis import AllRows, BasisSpec, DoublyStochastic, Landmarks, NystromFeatures, RandomFeatures
from daskkern.data.rows.array_rows import ArrayRows
from daskkern.data.rows.csr import FeatureRows, is_sparse
from daskkern.data.rows.subset import RowsWithout
from daskkern.data.schema.schema import Scaling
from daskkern.events import silent
from daskkern.feature_learning import Candidate, FeatureLearning, TrainingSample, learn_kernel
from daskkern.feature_learning.costs import LearningCosts
from daskkern.feature_learning.gradients import FittedFunction, OuterProduct
from daskkern.feature_learning.passes import block_rows, mean_outer_product
from daskkern.kernels import Laplacian, Placement
from daskkern.linalg import column_blocks, distributed_factor
from daskkern.losses import Loss, Squared, SquaredHinge
from daskkern.preconditioners import SpectrumSettings, eigenpro_state
from daskkern.solvers import PCG, SGD, BlockCD, Direct, DoublySGD, EigenPro, Falkon, NystromSGD, Solver
from daskkern.solvers.costs import primitives
from daskkern.training.feeding.row_source import SourceInfo
from daskkern.training.feeding.sources import ArraySource
from daskkern.training.planning.sizes_of_fits import numbers_per_row
from daskkern.training.run import fit as fitting
from daskkern.training.run.settings import FitSettings

THREADS = 2
M, P, D, C = 3000, 12_000, 100, 10
KERNEL = Laplacian(20.0)
WIDE = Placement(wide=True)
BUDGET = 4 << 30
Work = Callable[[], object]


def _status(key: str) -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def peak_of_process() -> int:
    """Return the peak of resident memory in bytes."""
    return _status("VmHWM")


def _rows(n: int, d: int = D) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, d), np.float32)


def _half_full(n: int, d: int, density: float) -> scipy.sparse.csr_array:
    """Return CSR rows with as many entries each, at random places."""
    rng, k = np.random.default_rng(0), int(density * d)
    columns = np.stack([np.sort(rng.permutation(d)[:k]) for _ in range(n)]).astype(np.int32)
    data = rng.standard_normal((n, k), np.float32)
    return scipy.sparse.csr_array((data.ravel(), columns.ravel(), np.arange(n + 1) * k), shape=(n, d))


def _growth(work: Work, warm_up: Work) -> int:
    """Return the growth of the peak during `work`, in bytes."""
    warm_up()
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts again from what is resident now
    before = _status("VmRSS")
    result = work()
    after = _status("VmHWM")
    del result
    return after - before


def _info(rows: FeatureRows) -> SourceInfo:
    n_stored = rows.nnz if is_sparse(rows) else None
    return SourceInfo(*rows.shape, "classification", tuple(range(C)), Scaling(), None, 1, True, n_stored=n_stored)


def block() -> tuple[int, int]:
    X, points = _rows(M), KERNEL.points(_rows(P))
    grown = _growth(lambda: KERNEL.block(X, points), lambda: KERNEL.block(X[:99], points))
    return grown, primitives.block_bytes(M, P, D, 4, THREADS)


def matvec() -> tuple[int, int]:
    X, points, A = _rows(M), KERNEL.points(_rows(P)), np.ones((P, C), np.float32)
    grown = _growth(lambda: KERNEL.matvec(X, points, A), lambda: KERNEL.matvec(X[:99], points, A))
    return grown, primitives.matvec_bytes(M, P, D, C, 4, THREADS)


def matvec_wide() -> tuple[int, int]:
    """The damped directions of the preconditioner are a product with hundreds of columns."""
    Z, S, V = _rows(P), KERNEL.points(_rows(2000)), np.ones((2000, 200), np.float32)
    grown = _growth(lambda: KERNEL.matvec(Z, S, V), lambda: KERNEL.matvec(Z[:99], S, V))
    return grown, primitives.matvec_bytes(P, 2000, D, 200, 4, THREADS)


def points() -> tuple[int, int]:
    Z = _rows(40_000)
    moved = Placement(Z.mean(axis=0))
    grown = _growth(lambda: KERNEL.points(Z, moved), lambda: KERNEL.points(Z[:99], moved))
    return grown, primitives.points_bytes(len(Z), D, 4)


def points_widened() -> tuple[int, int]:
    Z = _rows(40_000)
    grown = _growth(lambda: KERNEL.points(Z, WIDE), lambda: KERNEL.points(Z[:99], WIDE))
    return grown, primitives.points_bytes(len(Z), D, 8)


def block_widened() -> tuple[int, int]:
    X, points = _rows(M), KERNEL.points(_rows(P), WIDE)
    grown = _growth(lambda: KERNEL.block(X, points), lambda: KERNEL.block(X[:99], points))
    return grown, primitives.block_bytes(M, P, D, 4, THREADS, 8)


def matvec_widened() -> tuple[int, int]:
    X, points, A = _rows(M), KERNEL.points(_rows(P), WIDE), np.ones((P, C), np.float32)
    grown = _growth(lambda: KERNEL.matvec(X, points, A), lambda: KERNEL.matvec(X[:99], points, A))
    return grown, primitives.matvec_bytes(M, P, D, C, 8, THREADS)


def left_dense_csr() -> tuple[int, int]:
    """A CSR row that is more than half full takes more than a dense one. It is not copied when it is prepared."""
    X = _half_full(12_000, 900, 0.6)
    points = KERNEL.points(X[:1600])
    source = ArraySource(X, None, None, _info(X))
    grown = _growth(lambda: KERNEL.left(X.copy(), points), lambda: KERNEL.left(X[:99], points))
    return grown, primitives.left_bytes(X.shape[0], numbers_per_row(source), 4)


def spectrum() -> tuple[int, int]:
    s, h = 1200, 1200
    S, H = _rows(s), _rows(h) * np.float32(1.1)

    def find(s: int) -> object:
        return eigenpro_state(KERNEL, S[:s], None, H[:s], None, SpectrumSettings(s // 5), 10_000, 0)

    return _growth(lambda: find(s), lambda: find(60)), primitives.spectrum_bytes(s, s // 5, h, D, 4, THREADS)


def factor() -> tuple[int, int]:
    p = 2400
    Z = _rows(p)

    def make(p: int) -> object:
        layout = column_blocks(p, 0, 1)
        points = [KERNEL.points(Z[block]) for block in layout.blocks]
        panels = [KERNEL.block(Z[block.start : p], part) for block, part in zip(layout.blocks, points, strict=True)]
        with library_threads(THREADS):
            return distributed_factor(panels, layout, 1e-3, SerialCommunicator())

    stays, passes = primitives.factor_bytes(p, 1, 4), primitives.factor_setup_bytes(p, D, 1, 4, THREADS)
    return _growth(lambda: make(p), lambda: make(60)), stays + passes


def _learn(n: int, d: int, c: int, learning: FeatureLearning) -> tuple[int, int]:
    """Learn a metric from rows in memory. They are copied, as the set-up of a fit reads them."""
    X = np.random.default_rng(0).standard_normal((n, d))
    y = np.repeat(np.sin(2 * X[:, :1]), c, axis=1)
    full = learning.metric == "full"

    def learn(m: int) -> object:
        sample = TrainingSample(X[:m].copy(), y[:m].copy(), None)
        return learn_kernel([Candidate(KERNEL, 1.0, not full)], sample, learning, 0)

    costs = LearningCosts(n, d, d, c, learning, full)
    return _growth(lambda: learn(n), lambda: learn(60)), costs.sample_bytes(THREADS)


def learn_pass() -> tuple[int, int]:
    n, d, c, p = 60_000, 300, 2, 500
    learning = FeatureLearning("full", n_rows="all", n_landmarks=p)
    rows = ArrayRows(_rows(n, d).astype(np.float64), np.zeros((n, c)))  # blocks are cast to float32

    def summed(m: int) -> object:
        function = FittedFunction(KERNEL, np.array(rows.read(0, p).X, np.float64), np.ones((p, c)))
        few = RowsWithout(rows, np.arange(m, n)) if m < n else rows
        return mean_outer_product(function, OuterProduct(), few, lambda _: None, SerialCommunicator(), np)

    planned = LearningCosts(n, d, d, c, learning, full=True).pass_bytes(block_rows(rows), 4, THREADS)
    return _growth(lambda: summed(n), lambda: summed(600)), planned


def _fit(
    basis: BasisSpec,
    solver: Solver[object],
    n: int = 12_000,
    keep: str = "auto",
    X: FeatureRows | None = None,
    loss: Loss | None = None,
    budget: int = BUDGET,
    alpha: float = 0.0,
) -> tuple[int, int]:
    """Fit in this process; all of it is counted, the interpreter too. What is planned is what the fit planned."""
    rows = _rows(n) if X is None else X
    y = np.random.default_rng(1).integers(0, C, rows.shape[0])
    source = ArraySource(rows, y, None, _info(rows))
    settings = FitSettings(
        KERNEL,
        loss or SquaredHinge(),
        basis,
        solver,
        alpha,
        max_epochs=2,
        device="cpu",
        memory_budget=budget,
        keep_blocks=keep,
        batch_size="auto" if budget == BUDGET else 2000,
    )
    plans = []
    run_rank = fitting.run_rank

    def spied(comm: object, task: fitting.RankTask, *rest: object) -> object:
        plans.append(task.memory)
        return run_rank(comm, task, *rest)

    fitting.run_rank = spied
    fitting.fit(source, settings, listener=silent)
    assert plans[0].budget == budget
    if budget < BUDGET:  # rows take more than the small share that rows may always take
        assert plans[0].keeps_rows
        assert plans[0].total <= budget
    parts = (rows,) if not is_sparse(rows) else (rows.data, rows.indices, rows.indptr)
    held = sum(part.nbytes for part in parts) + y.nbytes  # the caller's own
    return peak_of_process() - held, plans[0].total + plans[0].kept


CHILDREN: dict[str, Callable[[], tuple[int, int]]] = {
    "block": block,
    "block_widened": block_widened,
    "matvec_widened": matvec_widened,
    "points_widened": points_widened,
    "fit_widened": lambda: _fit(Landmarks(4000), EigenPro(), X=_rows(12_000) * np.float32(1e3)),
    "matvec": matvec,
    "matvec_wide": matvec_wide,
    "points": points,
    "left_dense_csr": left_dense_csr,
    "spectrum": spectrum,
    "factor": factor,
    "learn_outputs": lambda: _learn(6000, 4, 4000, FeatureLearning("diagonal", n_landmarks=100, n_iter=1)),
    "learn_few": lambda: _learn(2000, 8, 1, FeatureLearning("diagonal")),
    "learn_full": lambda: _learn(4000, 600, 1, FeatureLearning("full", n_landmarks=300, n_iter=2)),
    "learn_wide": lambda: _learn(1500, 4000, 1, FeatureLearning("full", rank=16, n_landmarks=200, n_iter=1)),
    "learn_pass": learn_pass,
    "fit_landmarks": lambda: _fit(Landmarks(1600), EigenPro(), keep="never"),
    "fit_landmarks_kept": lambda: _fit(Landmarks(1600), EigenPro()),
    "fit_landmarks_on_disk": lambda: _fit(Landmarks(1600), EigenPro(), keep="disk"),
    "fit_all_rows": lambda: _fit(AllRows(), EigenPro(), n=5000, keep="never"),
    "fit_iterative": lambda: _fit(Landmarks(1600), EigenPro(projection="eigenpro")),
    "fit_dense_csr": lambda: _fit(Landmarks(1600), EigenPro(), keep="never", X=_half_full(9000, 900, 0.6)),
    "fit_rows_kept": lambda: _fit(Landmarks(200), EigenPro(), keep="never", X=_rows(60_000, 520), budget=800 << 20),
    "fit_nystrom": lambda: _fit(Landmarks(1000), NystromSGD(mode="streamed")),
    "fit_falkon_kept": lambda: _fit(Landmarks(2000), Falkon(), loss=Squared()),
    "fit_falkon_newton": lambda: _fit(Landmarks(2000), Falkon(newton_passes=2), n=20_000, keep="disk"),
    "fit_direct": lambda: _fit(Landmarks(2000), Direct(), n=6000, loss=Squared()),
    "fit_direct_all_rows": lambda: _fit(AllRows(), Direct(), n=3000, loss=Squared()),
    "fit_features": lambda: _fit(RandomFeatures(4000), EigenPro(subsample=1500), n=8000, keep="never"),
    "fit_mapped": lambda: _fit(NystromFeatures(2500), EigenPro(subsample=1500), n=8000, keep="never"),
    "fit_mapped_sgd": lambda: _fit(NystromFeatures(2500), SGD(), n=8000, keep="never", alpha=1e-4),
    "fit_doubly": lambda: _fit(DoublyStochastic(512), DoublySGD(), n=6000, alpha=1e-3),
    "fit_block_cd": lambda: _fit(AllRows(), BlockCD(), n=6000, keep="never", loss=Squared(), alpha=1e-3),
    "fit_pcg": lambda: _fit(AllRows(), PCG(), n=6000, keep="never", loss=Squared()),
}

if __name__ == "__main__":
    with compute_threads(THREADS):
        measured, planned = CHILDREN[sys.argv[1]]()
    print(json.dumps({"measured": measured, "planned": planned, "budget": BUDGET}))
