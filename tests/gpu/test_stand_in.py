"""The stand-in for CuPy refuses what CuPy refuses, and has its signatures. Nothing here needs a GPU."""

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from daskkern.backend.devices import cupy_problem
from daskkern.backend.namespace import namespace_for, namespace_of
from daskkern.backend.tiles import slices
from daskkern.errors import ClusterError, SpecError
from daskkern.kernels.engines.block_products import multiply_blocks, multiply_transposed_blocks
from tests.support.gpu.fake_arrays import CONSTANTS, CREATORS, METHODS, NAMES, FakeArray, launches_counted
from tests.support.gpu.fake_cublas import gemm_ex
from tests.support.gpu.fake_gpu import SIGNATURES, FakeGpu

HOST = np.ones(3)
MIXED: list[Callable[[Any], Any]] = [
    lambda x: x + HOST,
    lambda x: HOST + x,
    lambda x: HOST @ x,
    lambda x: x * HOST[:1],
    lambda x: np.asarray(x),
    lambda x: np.concatenate([x, HOST]),
    lambda x: np.maximum(x, HOST),
    lambda x: x[np.array([0])],
    lambda x: x.__setitem__(slice(None), HOST),
    lambda x: x.__iadd__(HOST),
    lambda x: np.linalg.norm(x),
]


@pytest.fixture
def cupy_stand_in(stand_in: FakeGpu) -> Any:
    with stand_in.installed() as module:
        yield module


@pytest.mark.one_in(3)
@pytest.mark.parametrize("mix", MIXED)
def test_host_and_device_do_not_mix(cupy_stand_in: ModuleType, mix: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        mix(cupy_stand_in.asarray(HOST))


def test_numbers_stay_on_the_device_until_they_are_asked_for(cupy_stand_in: ModuleType) -> None:
    x = cupy_stand_in.asarray([3.0, 4.0])
    total = (x * x).sum()
    assert isinstance(total, FakeArray)
    assert float(total) == 25
    assert isinstance(np.isfinite(x), FakeArray)
    assert namespace_of(x) is cupy_stand_in
    with pytest.raises(SpecError, match="were mixed"):
        namespace_of(x, HOST)
    with pytest.raises(ValueError, match="dtype"):
        cupy_stand_in.asarray(np.array(["a"]))


@pytest.mark.parametrize("c", [3, 33])
@pytest.mark.parametrize("ranks", [1, 2, 3, 6])
def test_sums_over_blocks_do_not_depend_on_who_has_them(cupy_stand_in: ModuleType, ranks: int, c: int) -> None:
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(shape).astype(np.float32) for shape in ((20, 60), (60, c)))
    cuts = slices(60, 10)
    per_rank = len(cuts) // ranks
    total = np.zeros((20, c))
    for rank in range(ranks):
        own = cuts[rank * per_rank : (rank + 1) * per_rank]
        first, last = own[0].start, own[-1].stop
        here = [slice(cut.start - first, cut.stop - first) for cut in own]
        X, A = (cupy_stand_in.asarray(array) for array in (left[:, first:last], right[first:last]))
        part = multiply_blocks(X, A, here, cupy_stand_in)
        with launches_counted() as names:
            turned = multiply_transposed_blocks(
                cupy_stand_in.asarray(left[:, first:last].T.copy()), A, here, cupy_stand_in
            )
        assert ("block_sums" in names) == (c == 3)  # more outputs go through cuBLAS
        assert isinstance(part, FakeArray)
        np.testing.assert_allclose(turned.get(), part.get(), rtol=0, atol=1e-5)
        total += part.get()
    whole = multiply_blocks(*(cupy_stand_in.asarray(array) for array in (left, right)), cuts, cupy_stand_in)
    np.testing.assert_allclose(total, whole.get(), rtol=0, atol=1e-14)
    np.testing.assert_allclose(total, left.astype(float) @ right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("turns", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_at_addresses(turns: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((4, 6)), rng.standard_normal((6, 5))
    left = np.asfortranarray(A.T if turns[0] else A)
    right = np.asfortranarray(B.T if turns[1] else B)
    out = np.zeros((4, 5), order="F")
    one = np.ones(1).ctypes.data
    gemm_ex(1, *turns, 4, 5, 6, one, left.ctypes.data, 1, left.shape[0], right.ctypes.data, 1, right.shape[0],
            one, out.ctypes.data, 1, 4, 70, -1)  # fmt: skip
    np.testing.assert_allclose(out, A @ B, rtol=1e-14)


@pytest.fixture
def real() -> ModuleType:
    pytest.importorskip("cupy", reason="install daskkern[cuda12] to compare signatures", exc_type=ImportError)
    return importlib.import_module("cupy")


class TestHindrances:
    """Each reason why there is no GPU is told apart, in one sentence with its remedy."""

    def _cupy(self, monkeypatch: pytest.MonkeyPatch, devices: Any, driver: int, runtime: int = 12090) -> None:
        def count() -> int:
            if isinstance(devices, str):
                raise RuntimeError(devices)
            return int(devices)

        module = ModuleType("cupy")
        module.cuda = ModuleType("cupy.cuda")  # type: ignore[attr-defined]
        module.cuda.runtime = ModuleType("runtime")
        module.cuda.runtime.__dict__.update(
            getDeviceCount=count, driverGetVersion=lambda: driver, runtimeGetVersion=lambda: runtime
        )
        monkeypatch.setitem(sys.modules, "cupy", module)

    @pytest.mark.parametrize(
        ("devices", "driver", "runtime", "sentence"),
        [
            ("InsufficientDriver: ...", 0, 12090, "there is no NVIDIA driver here; install one"),
            (
                "cudaErrorInsufficientDriver: ...",
                12040,
                13000,
                r"built for CUDA 13 .* 12\.4; install daskkern\[cuda12\]",
            ),
            ("InsufficientDriver: ...", 12020, 12090, r"CUDA 12\.2, which is too old for CuPy's CUDA 12\.9"),
            ("cudaErrorNoDevice: no CUDA-capable device", 13000, 12090, "shows no CUDA device .*CUDA_VISIBLE_DEVICES"),
            (0, 13000, 12090, "shows no CUDA device; look at nvidia-smi"),
        ],
    )
    def test_of_the_driver(
        self, devices: Any, driver: int, runtime: int, sentence: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self._cupy(monkeypatch, devices, driver, runtime)
        assert re.search(sentence, cupy_problem())
        with pytest.raises(ClusterError, match=sentence):
            namespace_for("gpu")
        assert namespace_for("auto") is np

    def test_without_cupy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "cupy", None)
        assert cupy_problem().startswith("CuPy is not installed; install daskkern[cuda12]")

    def test_with_libraries_that_do_not_load(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "cupy.py").write_text(
            "try:\n    raise ImportError('libnvrtc.so.12: no such file')\n"
            "except ImportError as error:\n    raise ImportError('=====\\nFailed to import CuPy.\\n=====') from error\n"
        )
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        monkeypatch.syspath_prepend(tmp_path)
        assert cupy_problem().startswith(
            "CuPy cannot be loaded (libnvrtc.so.12: no such file); install daskkern[cuda12]"
        )

    def test_with_a_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._cupy(monkeypatch, 2, 13000)
        assert cupy_problem() == ""
        assert namespace_for("gpu") is sys.modules["cupy"]


class TestSignatures:
    """What the stand-in has, CuPy has."""

    def test_names(self, real: ModuleType) -> None:
        assert [name for name in (*NAMES, *CREATORS, *CONSTANTS) if not hasattr(real, name)] == []
        assert [name for name in METHODS if not hasattr(real.ndarray, name)] == []

    @pytest.mark.parametrize("name", SIGNATURES)
    def test_parameters(self, real: ModuleType, name: str) -> None:
        found: Any = real
        for part in name.split("."):
            found = getattr(found, part)
        assert set(SIGNATURES[name]) <= _parameters(found)

    def test_matrix_products(self, real: ModuleType) -> None:
        try:
            theirs = importlib.import_module("cupy_backends.cuda.libs.cublas")
        except ImportError as error:
            pytest.skip(f"this CuPy finds no cuBLAS: {error}")
        assert list(inspect.signature(gemm_ex).parameters) == list(_ordered(theirs.gemmEx))


def _parameters(found: Any) -> set[str]:
    return set(_ordered(found))


def _ordered(found: Any) -> list[str]:
    """Return the names of parameters, from the first line of the text where the function is compiled."""
    try:
        return list(inspect.signature(found).parameters)
    except (TypeError, ValueError):
        line = re.search(r"\((.*?)\)", found.__doc__.splitlines()[0])
        assert line is not None
        return [word.split("=")[0].split()[-1] for word in line.group(1).split(",") if word.strip()]
