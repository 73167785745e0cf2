"""Fits are found by their identifiers, the beginnings of these, or their names."""

from dataclasses import replace
from typing import Any

import pytest

from daskkern.cluster.scheduler.fits import FitStatus
from daskkern.cluster.scheduler.metadata import new_metadata
from daskkern.errors import ClusterError
from daskkern.training.jobs import handle
from daskkern.training.jobs.handle import find_fit


def _status(fit: str, name: str, state: str) -> FitStatus:
    return FitStatus(replace(new_metadata(name), fit=fit), state)


FITS = (
    _status("abc1", "prices", "finished"),
    _status("abd2", "prices", "running"),
    _status("eee3", "towns", "finished"),
    _status("eef4", "towns", "failed"),
    _status("aaa5", "twins", "running"),
    _status("aaa6", "twins", "queued"),
)


class _Client:
    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        del n_workers
        return {"address": "tcp://here"}


@pytest.mark.parametrize(("said", "fit"), [("abc", "abc1"), ("eef4", "eef4"), ("prices", "abd2"), ("towns", "eef4")])
def test_fits_by_identifier_and_name(said: str, fit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "list_fits", lambda client: FITS)
    client: Any = _Client()
    assert find_fit(client, said).metadata.fit == fit


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ab", r"several fits match: abc1 \(prices\), abd2 \(prices\); name one"),
        ("twins", r"several fits match: aaa5 \(twins\), aaa6 \(twins\)"),
        ("nope", r"no fit 'nope' is known at tcp://here; known are abc1 \(prices\), "),
    ],
)
def test_what_names_no_fit_or_several(said: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "list_fits", lambda client: FITS)
    client: Any = _Client()
    with pytest.raises(ClusterError, match=words):
        find_fit(client, said)
