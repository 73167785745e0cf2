"""Dense section: every contender on the same arrays, for each kernel, number of outputs and number of features."""

from collections.abc import Callable
from typing import Any

from products.clock import Contender, interleaved, summary, warmed_up
from products.contenders import contenders, matrix_products
from products.machine import OthersLoad
from products.problem import Problem, random_problem, reference, relative_error, sample_rows
from products.sizes import DenseSizes

_MOST_REPEATS = 15


def run_dense(sizes: DenseSizes, methods: tuple[str, ...], say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return one record for each configuration; `say` gets a line for each."""
    records = []
    load = OthersLoad()
    for d in sizes.n_features:
        for kernel in sizes.kernels:
            for c in sizes.n_outputs:
                problem = random_problem(kernel, sizes.n_rows, sizes.n_points, d, c)
                record = measure(problem, methods, sizes.budget_s)
                record["others_load_cores"] = round(load.cores(), 2)
                records.append(record)
                say(line_of(record))
    return records


def measure(problem: Problem, methods: tuple[str, ...], budget_s: float) -> dict[str, Any]:
    """Check every contender against float64 on a sample of rows, then time them in turns."""
    ways = contenders(problem, methods)
    yardsticks = matrix_products(problem)
    rows = sample_rows(problem)
    expected = reference(problem, rows)
    first: dict[str, float] = {}
    errors: dict[str, float] = {}
    for each in ways:
        first[each.name], result = warmed_up(each)
        errors[each.name] = relative_error(result[rows], expected)
    for each in yardsticks:
        first[each.name], _ = warmed_up(each)
    turns = interleaved([*ways, *yardsticks], first, budget_s, _MOST_REPEATS)
    figures = {name: summary(found, problem.entries) for name, found in turns.items()}
    return {
        "kernel": problem.kernel,
        "n_rows": problem.X.shape[0],
        "n_points": problem.Z.shape[0],
        "n_features": problem.X.shape[1],
        "n_outputs": problem.A.shape[1],
        "methods": {each.name: _of_method(each, figures, errors[each.name]) for each in ways},
        "matmul": _of_matmul(problem, figures),
    }


def _of_method(each: Contender, figures: dict[str, dict[str, float]], error: float) -> dict[str, Any]:
    mine = figures[each.name]
    record = {
        "way": each.way,
        "prepare_points_seconds": float(f"{each.prepare_seconds:.3g}"),
        **mine,
        "largest_relative_error": float(f"{error:.3g}"),
    }
    for yardstick in ("matmul_distances", "matmul_both"):
        record[f"share_of_{yardstick}_rate"] = _ratio(figures[yardstick], mine)
    if "daskkern" in figures and each.name != "daskkern":
        record["daskkern_speed_ratio"] = _ratio(mine, figures["daskkern"])
        record["daskkern_speed_ratio_of_lowest"] = _ratio(mine, figures["daskkern"], "lowest_seconds")
    return record


def _of_matmul(problem: Problem, figures: dict[str, dict[str, float]]) -> dict[str, float]:
    seconds = figures["matmul_distances"]["median_seconds"]
    flops = 2 * problem.entries * problem.X.shape[1]
    return {
        "distances_median_seconds": seconds,
        "distances_gflops": round(flops / seconds / 1e9, 1),
        "both_median_seconds": figures["matmul_both"]["median_seconds"],
        "n_repeats": int(figures["matmul_both"]["n_repeats"]),
    }


def _ratio(above: dict[str, float], below: dict[str, float], key: str = "median_seconds") -> float:
    return float(f"{above[key] / below[key]:.3g}")


def line_of(record: dict[str, Any]) -> str:
    """Return the record as one line: nanoseconds per entry of each method."""
    parts = [f"{name} {method['ns_per_entry']:.3g}" for name, method in record["methods"].items()]
    where = f"{record['kernel']:9s} d={record['n_features']:<4d} c={record['n_outputs']:<3d}"
    return (
        f"{where} ns per entry: {', '.join(parts)}; np.matmul {record['matmul']['distances_gflops']:.0f} GFLOP/s; "
        f"others used {record['others_load_cores']:.2f} cores"
    )
