"""A minute of the soak: fits of several clients with all kinds of faults, every answer right; and single faults."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.support.cluster import child_processes, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(280)]

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.repeated  # other tests lose workers, too: test_kill_matrix.py, test_recovered_fits.py
def test_nothing_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = {process.pid for process in child_processes()}
    monkeypatch.syspath_prepend(FOLDER)
    soak = import_module("soak")
    names = [*soak.FAULTS, soak.ORPHANED]
    found = soak.soak(tmp_path, fits=4, seconds=60.0, every_s=5.0, names=names, workers=3, clients=2, seed=0)
    assert found["wrong"] == []
    assert found["n_faults"] >= 4
    assert len(found["faults"]) >= 4, "of different kinds"
    assert found["n_fits"] >= 4
    wait_until(lambda: {process.pid for process in child_processes()} <= before, timeout_s=20.0, what="no process left")


@pytest.mark.long
def test_clients_die_with_their_supervisors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(FOLDER)
    soak = import_module("soak")
    found = soak.soak(tmp_path, fits=1, seconds=5.0, every_s=5.0, names=[soak.ORPHANED], workers=3, clients=1, seed=0)
    assert found["faults"][soak.ORPHANED] >= 1
    assert found["wrong"] == []
