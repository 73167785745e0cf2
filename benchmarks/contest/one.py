"""One contender in a process of its own: load, fit, predict, and print the result as JSON, in the last line.

python -m contest.one magic.npz "daskkern auto" 1000
"""

import json
import sys
import time
from pathlib import Path

from products.machine import peak_bytes

from contest.contenders import CONTENDERS
from contest.data import load, median_distance


def main() -> None:
    """Run from the command line."""
    data = load(Path(sys.argv[1]))
    (contender,) = (each for each in CONTENDERS if each.name == sys.argv[2])
    length_scale = median_distance(data.X)
    estimator = contender.make(data, length_scale, int(sys.argv[3]))
    begun = time.perf_counter()
    estimator.fit(data.X, data.y)
    fitted = time.perf_counter()
    predicted = estimator.predict(data.X_test)
    done = time.perf_counter()
    found = {
        "n_rows": len(data.X),
        "n_features": data.X.shape[1],
        "n_rows_tested": len(data.X_test),
        "length_scale": length_scale,
        "measure": data.measure,
        "fit_seconds": round(fitted - begun, 3),
        "predict_seconds": round(done - fitted, 3),
        "error": data.error(predicted),
        "peak_gb": round(peak_bytes() / 1e9, 3),
    }
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
