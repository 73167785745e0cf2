"""Check and time daskkern on a GPU in one command, within eight minutes.

    python benchmarks/gpu.py --out benchmarks/results-gpu.json

Every part runs in a process of its own, and every record is written to the file as soon as it is made: a part that
fails, hangs or has no time left costs its own further records only. The order is that of what is needed first: the
device, its ceilings, the correctness of every kernel, compute-sanitizer where it is installed, products compared with
torch and KeOps where these are, steps of the solvers by precision, whole fits, rows from a store, cached blocks. If
results are wrong, nothing of daskkern is timed. This script needs the standard library alone, the parts up to
`products` NumPy and CuPy, and fits the packages that wheels.txt lists. All data is generated: times are meaningful,
errors are not. `--tiny --device cpu` runs the same steps with NumPy: it tests the code and measures nothing.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import figures
from on_gpu.clock import Budget
from on_gpu.parts import NAMES, PARTS, Part
from on_gpu.processes import records_of

BUDGET_S = 470.0
_LEAST_S = 8.0


def main(argv: Sequence[str] | None = None) -> None:
    options = _options(argv)
    before = figures.read(options.out) if options.out is not None and options.out.exists() else []
    budget = Budget(options.budget)
    run: dict[str, Any] = {
        "benchmark": "gpu", "date": figures.today(), "machine": {}, "versions": {},
        "device": "unknown", "tiny": options.tiny, "skipped": {}, "failed": {}, "seconds": {},
    }  # fmt: skip
    signal.signal(signal.SIGTERM, _ended)
    for part in PARTS:
        if options.parts and part.name not in options.parts:
            continue
        why = _why_not(part, run, budget, options)
        if why:
            run["skipped"][part.name] = why
            print(f"skipped {part.name}: {why}", flush=True)
        else:
            _run_part(part, run, budget, options, before)
        _write(run, options.out, before)
    run["wall_seconds"] = round(budget.used(), 1)
    _write(run, options.out, before)
    wrong = [record for record in run.get("correctness", []) if not record["right"]]
    if wrong:
        sys.exit(f"results are wrong: {json.dumps(wrong)}")
    if run["failed"]:
        sys.exit(f"these parts failed: {', '.join(run['failed'])}")


def _why_not(part: Part, run: dict[str, Any], budget: Budget, options: argparse.Namespace) -> str:
    if part.times and not options.anyway and not all(record["right"] for record in run.get("correctness", [])):
        return "results are wrong, so nothing was timed"
    if budget.left() < _LEAST_S:
        return f"{budget.left():.0f} s were left of {budget.total_s:g}"
    return ""


def _run_part(
    part: Part, run: dict[str, Any], budget: Budget, options: argparse.Namespace, before: Sequence[figures.Run]
) -> None:
    """Add the part's records to `run`, and write the file after each."""
    used, limit_s = budget.used(), min(part.limit_s, budget.left())
    words = [part.name, "--device", options.device, *(["--tiny"] if options.tiny else [])]
    words += ["--ceilings", json.dumps(dict(run["ceilings"][0]) if run.get("ceilings") else {})]
    stream = records_of(words, limit_s)
    try:
        for table, record in stream:
            _take(run, table, record)
            print(f"{table}: {json.dumps(record)}", flush=True)
            _write(run, options.out, before)
    except (RuntimeError, TimeoutError, figures.FiguresError) as error:
        run["failed"][part.name] = str(error)
        print(f"failed {part.name}: {error}", flush=True)
    finally:
        stream.close()  # ends the process
    run["seconds"][f"{part.name}_s"] = round(budget.used() - used, 1)


def _take(run: dict[str, Any], table: str, record: dict[str, Any]) -> None:
    """Add a record. FiguresError if the format does not allow it, which leaves the others as they are."""
    if table in ("machine", "versions"):
        run[table] = record
        return
    if table == "card":
        run["device"] = record.pop("name")
        if not record:
            return
    figures.from_plain({"benchmark": "gpu", table: [record]}, (), NAMES)
    run.setdefault(table, []).append(record)


def _write(run: dict[str, Any], out: Path | None, before: Sequence[figures.Run]) -> None:
    """Write this run so far, after the existing ones: the file is whole at any time."""
    if out is not None:
        filled = {name: value for name, value in run.items() if value != {}}
        beside = out.with_name(f".{out.name}.tmp")
        figures.write([*before, figures.from_plain(filled, ("device", "tiny"), NAMES)], beside)
        os.replace(beside, out)


def _ended(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)  # through `finally`, which ends the part's process


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--tiny", action="store_true", help="sizes that take seconds")
    parser.add_argument("--parts", nargs="*", choices=[part.name for part in PARTS], help="only these")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds")
    parser.add_argument("--anyway", action="store_true", help="time even what is wrong")
    parser.add_argument("--out", type=Path, help="JSON file; existing runs are kept")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
