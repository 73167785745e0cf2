"""Runner of all benchmarks.

    python -m benchmarks                                   # lists them, and how long each takes
    python -m benchmarks time_to_error magic.npz --out results.json --plot results.png

Options of a script follow its name. All accept `--tiny`, `--out` and `--plot`.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pictures import draw

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Benchmark:
    """A script of this folder: what it measures, about how long it takes on two cores, and its arguments."""

    name: str
    times: str
    takes: str
    arguments: str = ""

    @property
    def script(self) -> Path:
        """Where it is."""
        return FOLDER / f"{self.name}.py"


BENCHMARKS = (
    Benchmark(
        "time_to_error",
        "seconds and error of fits, compared with scikit-learn, xRFM and torch",
        "10 min per file",
        "NPZ",
    ),
    Benchmark("reproduce", "rows of the papers' tables on the available data", "1 to 10 min per row", "FOLDER"),
    Benchmark("scaling", "set-up, epochs and memory in rows, landmarks, features and processes", "8 min"),
    Benchmark("regressions", "three fixed sizes relative to np.matmul, compared with the last figures", "1 min"),
    Benchmark("kernel_products", "K(X, Z) @ A with NumPy, torch, KeOps and daskkern", "12 min"),
    Benchmark("gpu", "a GPU: ceilings, correctness, kernel products, steps, fits, rows from disk to device", "8 min"),
    Benchmark("main_job", "daskkern fit and score on a store", "1 to 5 min", "TRAIN TEST"),
    Benchmark("bigger_than_memory", "20 GB of rows through workers of 1 GB, compared with rows in memory", "12 min"),
    Benchmark("learned_features", "a metric learned from all rows by workers of 1 GB, and a fit without", "5 min"),
    Benchmark("stages", "rows per second of ingest, shuffle, fit, score and predict", "5 min", "NPZ"),
    Benchmark("lake", "a lake on a failing S3 server to predictions there, with a killed worker", "5 min"),
    Benchmark("choices", "one choice of kernel, landmarks, solver at a time, by the error", "15 min", "NPZ..."),
    Benchmark("tables", "errors of the defaults on raw tables, and of scikit-learn's", "5 min", "FOLDER"),
    Benchmark("many_tables", "regressions with defaults on tables of R's packages, and peers", "15 min"),
    Benchmark("threads", "predictions and kernel products with all threads relative to one", "4 min"),
    Benchmark("overhead", "two ranks against one process with two threads", "10 min", "NPZ"),
    Benchmark("monitoring", "a fit unmonitored, with the dashboard's page, and with open pages", "10 min"),
    Benchmark("collectives", "an allreduce, by ranks, size and algorithm", "3 min"),
    Benchmark("wires", "a sum of two ranks over Dask, over sockets, and through shared memory", "1 min"),
    Benchmark(
        "many_ranks", "up to 32 ranks on slow links: counts, times against a model, and what follows for 1,000", "8 min"
    ),
    Benchmark("shared_reading", "an epoch whose workers each read all rows, or read them once", "4 min"),
    Benchmark("recovery", "time from a fault to its detection and to the next step", "8 min"),
    Benchmark("soak", "fits with faults of workers, scheduler and disks: nothing lost, every result correct", "20 min"),
    Benchmark("many_fits", "a burst of fits by several processes: all end, with correct results", "4 min"),
    Benchmark("kernel_precision", "error of every kernel in float32", "10 s"),
    Benchmark("precision", "error of rounded features", "10 s"),
)


def main(argv: Sequence[str] | None = None) -> None:
    """Run one benchmark, or list them all."""
    words = list(sys.argv[1:] if argv is None else argv)
    known = {each.name: each for each in BENCHMARKS}
    if not words or words[0] in ("-h", "--help", "list"):
        print(__doc__.strip() + "\n\n" + listing())
        return
    name = words.pop(0).removesuffix(".py").replace("-", "_")
    if name not in known:
        sys.exit(f"there is no benchmark {name}; there are {', '.join(known)}")
    plot, out = _taken(words, "--plot"), _taken(words, "--out")
    with tempfile.TemporaryDirectory() as folder:
        figures = Path(out or f"{folder}/figures.json")
        sent = ["--out", str(figures)] if out or plot else []
        cut = words.index("--") if "--" in words else len(words)  # the words after it belong to another command
        done = subprocess.run(
            [sys.executable, str(known[name].script), *words[:cut], *sent, *words[cut:]], check=False
        ).returncode
        if plot and figures.exists() and not draw(figures, Path(plot)):
            print(f"there is no plot for {name}")
    sys.exit(done)


def _taken(words: list[str], option: str) -> str | None:
    """Take an option and its value out of `words`; return the value."""
    for place, word in enumerate(words):
        if word == "--":
            return None
        if word == option:
            if place + 1 == len(words):
                sys.exit(f"got {option} without a path; give one")
            return words.pop(place) and words.pop(place)
        if word.startswith(f"{option}="):
            return words.pop(place).split("=", 1)[1]
    return None


def listing() -> str:
    """Return a line for each benchmark."""
    lines = [f"{each.name + ' ' + each.arguments:22s} {each.takes:18s} {each.times}" for each in BENCHMARKS]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
