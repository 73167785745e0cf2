"""Time K(X, Z) @ A with NumPy, torch, KeOps and daskkern on the same data in one run, and check the targets.

    python benchmarks/kernel_products.py --out benchmarks/results-kernel-products-cpu-2-cores.json --check

Sections: `dense` (all methods), `sparse` (CSR rows compared with dense ones), `scaling` (time and memory against the
number of entries). torch and pykeops are optional. --out keeps runs in one file.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from figures import Run, add, today
from products.contenders import HOW_TO_INSTALL, importable
from products.dense import run_dense
from products.machine import describe_machine, sgemm_rate, versions
from products.plot import plot_dense
from products.scaling import run_scaling
from products.sizes import FULL, TINY, Sizes
from products.sparse import run_sparse
from products.tables import as_tables
from products.targets import Verdict, judge

METHODS = ("numpy", "torch_whole_block", "torch", "keops", "daskkern")
SECTIONS = ("dense", "sparse", "scaling")
_BUSY_CORES = 0.15


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    methods = _present(options.methods)
    sizes = TINY if options.tiny else FULL
    begun = time.perf_counter()
    run: dict[str, Any] = {
        "benchmark": "kernel_products",
        "date": today(),
        "machine": describe_machine(),
        "versions": versions(),
        "missing": {name: HOW_TO_INSTALL[name] for name in HOW_TO_INSTALL if name not in methods},
        "tiny": options.tiny,
    }
    rate_size = 300 if options.tiny else 3000
    before = sgemm_rate(rate_size)
    run["sections"] = {name: _section(name, sizes, methods) for name in options.sections}
    run["sgemm_gflops_before_after"] = [round(before), round(sgemm_rate(rate_size))]
    verdicts = judge(run)
    run["targets"] = [verdict.as_record() for verdict in verdicts]
    run["wall_seconds"] = round(time.perf_counter() - begun, 1)
    if options.out is not None:
        _write(run, options.out, options.plot or options.out.with_suffix(".png"))
    _warn_of_others(run)
    _report(verdicts, check=options.check and not options.tiny)


def _warn_of_others(run: dict[str, Any]) -> None:
    """Warn if the dense figures were taken on a busy machine, which slows torch, KeOps and BLAS more than daskkern."""
    records = run["sections"].get("dense")
    disturbed = [r for r in records if r["others_load_cores"] > _BUSY_CORES] if isinstance(records, list) else []
    if disturbed:
        most = max(record["others_load_cores"] for record in disturbed)
        print(
            f"the machine was busy with other work in {len(disturbed)} of {len(records)} configurations (up to "
            f"{most:.1f} cores): the ratios flatter daskkern; run again on a quiet machine"
        )


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sections", type=_listed(SECTIONS), default=SECTIONS, help="default: dense,sparse,scaling")
    parser.add_argument("--methods", type=_listed(METHODS), default=METHODS, help=f"default: {','.join(METHODS)}")
    parser.add_argument("--out", type=Path, help="JSON file: a list of runs, to which this one is added")
    parser.add_argument("--plot", type=Path, help="picture of the dense section (default: --out with .png)")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    parser.add_argument(
        "--tiny", action="store_true", help="tiny sizes, to check that it runs; targets are not checked"
    )
    return parser.parse_args(argv)


def _listed(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        words = tuple(text.split(","))
        unknown = [word for word in words if word not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not among {', '.join(known)}")
        return words

    return parse


def _present(methods: tuple[str, ...]) -> tuple[str, ...]:
    """Return the methods whose library is installed; print how to install the others."""
    present = tuple(method for method in methods if importable(method))
    for method in methods:
        if method not in present and method in HOW_TO_INSTALL:
            print(f"{method} is missing and left out; to install it: {HOW_TO_INSTALL[method]}")
    return present


def _section(name: str, sizes: Sizes, methods: tuple[str, ...]) -> Any:
    """Return the section's figures; one that fails must not stop the others."""
    print(f"== {name}", flush=True)

    def say(line: str) -> None:
        print(line, flush=True)

    try:
        if name == "dense":
            return run_dense(sizes.dense, methods, say)
        return run_sparse(sizes.sparse, say) if name == "sparse" else run_scaling(sizes.scaling, say)
    except Exception as error:
        say(f"the section {name} failed: {type(error).__name__}: {error}")
        return {"failed": f"{type(error).__name__}: {error}"}


def _write(run: dict[str, Any], out: Path, plot: Path) -> None:
    settings = {"tiny": run["tiny"], "missing": [f"{name}: {how}" for name, how in run["missing"].items()]}
    flat = Run(run["benchmark"], run["date"], run["machine"], run["versions"], settings, as_tables(run))
    add(flat, out, keep=True)
    if "method" not in next(iter(flat.tables.get("dense", [{}])), {}):
        return
    try:
        plot_dense(flat, plot)
    except ImportError:
        print("matplotlib is missing, so there is no plot; to install it: pip install matplotlib")


def _report(verdicts: list[Verdict], check: bool) -> None:
    print("== targets")
    for verdict in verdicts:
        print(verdict)
    if check and any(verdict.met is False for verdict in verdicts):
        sys.exit(1)


if __name__ == "__main__":
    main()
