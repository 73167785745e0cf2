"""The three fixed sizes of regressions.py for asv, which builds each commit in a separate environment.

    pip install -e ".[bench]"
    asv continuous --config benchmarks/tracked/asv.conf.json --factor 1.25 HEAD~1 HEAD
    asv run --config benchmarks/tracked/asv.conf.json v0.1.0..main
    asv publish --config benchmarks/tracked/asv.conf.json

asv's own timings compare seconds of one run with seconds of another, between which machines drift; these benchmarks
track ratios to np.matmul in the same turns.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # as for a script of that folder

from regressions import SIZES, TINY, measured

_TINY = bool(os.environ.get("DASKKERN_TINY"))
Found = dict[str, dict[str, float]]


class Ratios:
    """Medians relative to that of a float32 np.matmul of 2,000 x 2,000."""

    params = tuple(TINY if _TINY else SIZES)
    param_names = ("size",)
    unit = "x np.matmul"
    timeout = 600

    def setup_cache(self) -> Found:
        """Measure all sizes, once per commit."""
        found: Found = {}
        for name, size in (TINY if _TINY else SIZES).items():
            rows = measured(name, size, turns=1 if _TINY else 7, matmul=200 if _TINY else 2000)
            found[name] = {row["what"].split(",")[0]: row["ratio_to_matmul"] for row in rows}
        return found

    setup_cache.timeout = 900  # type: ignore[attr-defined]

    def track_kernel_product(self, found: Found, size: str) -> float:
        return found[size]["kernel product"]

    def track_eigenpro_epoch(self, found: Found, size: str) -> float:
        return found[size]["EigenPro epoch"]

    def track_set_up(self, found: Found, size: str) -> float:
        return found[size]["set-up"]
