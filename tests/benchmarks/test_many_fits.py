"""The small form of a burst: fits of several processes, submitted to one cluster at the same moment, all end."""

from importlib import import_module
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,  # other tests submit many fits at once: test_fits_share_a_cluster.py, test_detached_fits.py
    pytest.mark.timeout(240),
]

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_fits_of_many_processes_submitted_at_once_all_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    found = import_module("many_fits").many_fits(tmp_path, fits=6, clients=3, workers=2, timeout_s=200)
    assert found["wrong"] == []
    assert found["states"] == {"finished": 6}
    assert found["n_fits"] == 6
