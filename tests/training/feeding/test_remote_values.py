"""Values of a cluster by their keys: copied from a worker that has them, or named as lost."""

from pathlib import Path
from typing import Any

import pytest
from distributed import Client

from daskkern.cluster.scheduler.client import install_fits
from daskkern.errors import ClusterError
from daskkern.training.feeding.remote_values import RemoteValue, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]


def test_they_are_fetched_from_another_worker_and_lost_when_the_scheduler_has_forgotten_them(client2: Client) -> None:
    first, second = sorted(client2.scheduler_info()["workers"])
    future = client2.scatter({"rows": 7}, workers=[first], hash=False)["rows"]
    assert client2.submit(_fetch, str(future.key), workers=[second], pure=False).result() == 7
    with pytest.raises(ClusterError, match=r"those that had it are gone; fit again, or put the rows into a store"):
        client2.submit(_fetch, "rows-of-a-lost-worker", workers=[second], pure=False).result()


def _fetch(key: str) -> Any:
    return RemoteValue(key, again_s=0.5).fetch()


def _fails(folder: str, times: int) -> int:
    """Fail in the first `times` runs, which leave a file each."""
    runs = len(list(Path(folder).iterdir()))
    (Path(folder) / str(runs)).touch()
    if runs < times:
        raise OSError("no space left on device")
    return runs


def test_a_set_up_that_fails_when_it_is_repeated_runs_again(client2: Client, tmp_path: Path) -> None:
    install_fits(client2)
    future = client2.submit(_fails, str(tmp_path), 2, pure=False)
    wait_for(client2, str(future.key))
    assert len(list(tmp_path.iterdir())) == 3


def test_a_set_up_that_always_fails_is_told_with_its_error(client2: Client, tmp_path: Path) -> None:
    install_fits(client2)
    future = client2.submit(_fails, str(tmp_path), 99, pure=False)
    with pytest.raises(ClusterError, match=r"the set-up of the fit was lost .* computed again: OSError.*no space left"):
        wait_for(client2, str(future.key))
    with pytest.raises((OSError, ClusterError), match="no space left"):  # a worker may have the error itself
        client2.submit(_fetch, str(future.key), pure=False).result(timeout=200)
