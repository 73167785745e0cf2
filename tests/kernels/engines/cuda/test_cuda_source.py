"""CUDA source of every kernel: that it compiles, and what it is made of."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import daskkern.kernels.engines.cuda
from daskkern.kernels import KERNELS, Gaussian, Kernel, Laplacian
from daskkern.kernels.engines.cuda.launch import score_grid
from daskkern.kernels.engines.cuda.source import (
    FUNCTIONS,
    SCORE_THREADS,
    SUM_THREADS,
    KernelSizes,
    constants,
    lines_of_sums,
    profile_sums_source,
    source,
    sums_source,
    value_function,
)
from daskkern.kernels.formula import PAIR, arccos, exp, log, maximum, program, sqrt
from tests.support.kernels.formulas import WITH_FORMULA

ROWS = np.random.default_rng(0).standard_normal((30, 4))
FOLDER = Path(daskkern.kernels.engines.cuda.__file__).parent
needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None, reason="nvcc is not on PATH; install the CUDA toolkit to compile the kernels"
)


def _kernel(name: str) -> Kernel:
    return KERNELS[name].kernel().resolve(ROWS)


def _compile(text: str, folder: Path, *options: str) -> str:
    path = folder / "kernel.cu"
    path.write_text(text)
    command = ["nvcc", "-arch=sm_90", "-cubin", *options, "-o", str(folder / "kernel.cubin"), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr


@pytest.mark.one_in(23)
@needs_nvcc
@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize("name", WITH_FORMULA)
def test_every_kernel_of_the_table_compiles(name: str, itemsize: int, tmp_path: Path) -> None:
    instructions = _kernel(name).program.instructions
    texts = []
    for which in FUNCTIONS:
        text = source(which, instructions, KernelSizes(itemsize, 18, 10))
        # All kernels in one file, to start the compiler once: each in a namespace, with its own macros.
        macros = set(re.findall(r"^#define (\w+)", text, re.MULTILINE))
        texts.append(f"namespace as_{which} {{\n{text}\n}}\n" + "".join(f"#undef {macro}\n" for macro in macros))
    assert "warning" not in _compile("\n".join(texts), tmp_path)


@pytest.mark.one_in(5)
@needs_nvcc
@pytest.mark.parametrize("kernel", [Gaussian(2.0), Laplacian(2.0)], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(
    ("itemsize", "d", "c", "rows"),
    [(4, 18, 10, 4), (4, 32, 16, 4), (4, 54, 10, 3), (4, 64, 16, 2), (8, 32, 16, 2), (8, 64, 16, 1)],
)
def test_sums_and_features_stay_in_registers(
    kernel: Kernel, itemsize: int, d: int, c: int, rows: int, tmp_path: Path
) -> None:
    sizes = KernelSizes(itemsize, d, c)
    sizes = replace(sizes, rows_per_thread=sizes.most_rows_per_thread)
    assert sizes.rows_per_thread == rows
    text = source("scores", kernel.program.instructions, sizes)
    report = _compile(text, tmp_path, "-Xptxas", "-v")
    spilled = re.search(r"(\d+) bytes spill stores", report)
    assert spilled is not None
    assert int(spilled[1]) <= 32, report  # outside the innermost loop


@pytest.mark.one_in(7)
@needs_nvcc
@pytest.mark.parametrize("itemsize", [4, 8])
@pytest.mark.parametrize(("c", "turned"), [(1, False), (10, False), (12, False), (1, True), (10, True), (32, True)])
def test_sums_of_blocks_compile_and_stay_in_registers(itemsize: int, c: int, turned: bool, tmp_path: Path) -> None:
    if not turned:
        profile = profile_sums_source(Laplacian(2.0).program.instructions, itemsize, c)
        assert "warning" not in _compile(profile, tmp_path)
    report = _compile(sums_source(itemsize, c, turned), tmp_path, "-Xptxas", "-v")
    assert "warning" not in report
    spilled = re.search(r"(\d+) bytes spill stores", report)
    assert spilled is not None
    assert int(spilled[1]) <= (0 if itemsize == 4 else 32), report  # outside the innermost loop


def test_the_files_hold_the_sizes_that_python_launches_with() -> None:
    common, block = (FOLDER / "common.cuh").read_text(), (FOLDER / "block.cu").read_text()
    assert "#define THREADS 128" in common
    assert "#define TILE 64" in block
    assert "#define SIDE 16 " in block  # 16 * 16 threads
    sums = (FOLDER / "sums.cu").read_text()
    assert f"#define SUM_THREADS {SUM_THREADS} " in sums
    assert lines_of_sums(4) == (SUM_THREADS // 32) * (16 // 4)
    assert "#define ROWS (16 / (int)sizeof(real))" in sums


@pytest.mark.parametrize("itemsize", [4, 8])
def test_features_of_a_block_are_stored_without_bank_conflicts(itemsize: int) -> None:
    text = (FOLDER / "block.cu").read_text()
    (tile,), (more,), (depth,), (neighbours,) = (
        [int(number) for number in re.findall(pattern, text, re.MULTILINE)]
        for pattern in (
            r"^#define TILE (\d+)",
            r"^#define LINE \(TILE \+ (\d+)\)",
            r"^#define CHUNK_FEATURES (\d+)",
            r"^#define NEIGHBOURS \((\d+) / \(int\)sizeof\(real\)\)",
        )
    )
    assert "const int part = i / (TILE * NEIGHBOURS) * NEIGHBOURS, at = i - part * TILE;" in text
    assert "width = (int)least(NEIGHBOURS, depth - part), line = at / width, k = part + at % width;" in text
    width, words = min(neighbours // itemsize, depth), itemsize // 4
    for first in range(0, tile * width, 32 // words):  # by one warp at once, by half of one in float64
        stored = [(i % width, i // width) for i in range(first, first + 32 // words)]  # feature and row
        banks = {((k * (tile + more) + line) * words + word) % 32 for k, line in stored for word in range(words)}
        assert len(banks) == 32
    pairs = [2 * thread % 32 for thread in range(16)]  # read by half a warp, twice: the other half reads the same
    assert len({(at + u) % 32 for at in pairs for u in range(2)}) == 32


@pytest.mark.parametrize("m", [1, 100, 700, 6144, 13_421, 65_536, 4_000_000])
@pytest.mark.parametrize("n_blocks", [1, 10, 128])
@pytest.mark.parametrize(("itemsize", "d", "c"), [(4, 1, 1), (4, 18, 10), (4, 64, 16), (8, 64, 1)])
def test_grids_cover_all_rows_and_blocks(m: int, n_blocks: int, itemsize: int, d: int, c: int) -> None:
    sizes = KernelSizes(itemsize, d, c)
    grid = score_grid(m, n_blocks, sizes)
    assert 1 <= grid.rows_per_thread <= sizes.most_rows_per_thread
    assert 0 <= grid.tiles * SCORE_THREADS * grid.rows_per_thread - m < SCORE_THREADS * grid.rows_per_thread
    assert 0 <= grid.groups * grid.blocks_per_group - n_blocks < grid.blocks_per_group


def test_processors_have_equally_much_to_do() -> None:
    # A batch of SUSY's with 5,000 landmarks: more rows a thread take less time for each, and fewer spread more evenly.
    grid = score_grid(13_421, 10, KernelSizes(4, 18, 2))
    count = grid.tiles * grid.groups
    assert count / 132 / -(-count // 132) > 0.85


def test_one_text_serves_every_length_scale() -> None:
    one, other = Gaussian(1.0).program, Gaussian(7.0).program
    assert source("scores", one.instructions, KernelSizes(4, 5, 2)) == source(
        "scores", other.instructions, KernelSizes(4, 5, 2)
    )
    assert constants(one, np.dtype("float32")) == [np.float32(-0.5)]
    assert constants(other, np.dtype("float64")) == [np.float64(-0.5 / 49)]


def test_every_operation_of_a_formula_has_its_text() -> None:
    x = PAIR.squared_distance
    what = program(exp(-x) + sqrt(x) * log(x + 2) / maximum(PAIR.inner, 3) - arccos(PAIR.cosine) * PAIR.norms)
    text = value_function(what.instructions)
    for part in ("exp(", "sqrt(", "log(", " / ", "larger(v", "acos(", "row.norm * column.norm", "fma(inner"):
        assert part in text
    assert text.count("larger(fma(inner, real(-2)") == 1


def test_the_files_are_part_of_the_package() -> None:
    assert {path.name for path in FOLDER.glob("*.cu*")} == {
        "common.cuh",
        "sums.cu",
        "terms.cu",
        *(f"{name}.cu" for name in FUNCTIONS),
    }
