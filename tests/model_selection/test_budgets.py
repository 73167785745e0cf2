"""A search keeps within its time, by a clock that the test moves."""

from collections.abc import Callable

import pytest

from daskkern.errors import SpecError
from daskkern.model_selection import Budget, SearchResult, search
from daskkern.model_selection.fits import DEFAULT
from tests.support.searches import FakeClock, TimedRunner, class_source, usual


def _search(seconds: float | None, each: Callable[[str], float]) -> tuple[SearchResult, TimedRunner, FakeClock]:
    clock, source = FakeClock(), class_source(120)
    runner = TimedRunner(clock, each)
    found = search(source, usual(source, max_epochs=2), budget=Budget(seconds, clock), runner=runner)
    return found, runner, clock


def test_without_time_the_defaults_are_fitted() -> None:
    found, runner, _ = _search(10.0, lambda name: 11.0)
    assert found.name == DEFAULT
    assert runner.ran == [DEFAULT]  # the one that measures
    assert "too short" in found.trials.note
    assert found.settings.max_seconds == pytest.approx(5.0)  # half of it, in any case
    source = class_source(120)
    assert found.settings.kernel == usual(source).kernel


@pytest.mark.one_in(5)
@pytest.mark.parametrize("seconds", [12.0, 30.0, 60.0])
def test_no_trial_begins_that_does_not_fit_into_the_time(seconds: float) -> None:
    found, runner, clock = _search(seconds, lambda name: 2.0)
    assert clock.now <= seconds
    assert len(found.trials) == len(runner.ran) == clock.now / 2
    assert found.settings.max_seconds is not None
    assert found.settings.max_seconds >= seconds - clock.now


@pytest.mark.repeated
@pytest.mark.timeout(600)
def test_fits_of_the_whole_space_leave_time_for_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where rows are many, models in leaves may gain most, and they are compared last."""
    monkeypatch.setattr("daskkern.model_selection.screening.SECOND", 1200)  # the usual number takes half a minute
    clock, source = FakeClock(), class_source(12_500)
    n_fits = 0

    def seconds(name: str) -> float:
        nonlocal n_fits
        n_fits += name == DEFAULT
        if "leaves" in name or "quarter" in name:
            return 2.0
        return 0.2 if name != DEFAULT and " fit" not in name and n_fits < 3 else 25.0 if n_fits > 2 else 2.0

    runner = TimedRunner(clock, seconds)
    found = search(source, usual(source, max_epochs=1), budget=Budget(125.0, clock), runner=runner)
    assert [row.method for row in found.trials].count("leaves") > 0
    assert clock.now <= 125


@pytest.mark.repeated
def test_more_time_tries_more() -> None:
    runs = [len(_search(seconds, lambda name: 1.0)[1].ran) for seconds in (4.0, 20.0, 1000.0)]
    assert runs[0] < runs[1] < runs[2]


def test_a_late_start_leaves_the_final_fit_what_it_needs() -> None:
    clock = FakeClock()
    budget = Budget(12.0, clock)
    budget.fit_seconds = 2.0
    clock.now = 5.0
    assert budget.for_fit() == 7.0
    clock.now = 20.0
    assert budget.for_fit() == 3.0
    budget.fit_seconds = 100.0
    assert budget.for_fit() == 6.0


def test_without_a_limit_a_search_takes_as_long_as_a_long_fit() -> None:
    clock = FakeClock()
    budget = Budget(None, clock)
    assert budget.left() == 300
    budget.fit_seconds = 400.0
    clock.now = 10.0
    assert budget.left() == 390
    assert budget.for_fit() is None
    budget.fit_seconds = 1e6
    assert budget.left() == 590
    assert budget.allows(300)
    assert not budget.allows(500)


@pytest.mark.parametrize("seconds", [0, -1.0, "60", True, float("nan")])
def test_a_limit_is_a_positive_number(seconds: object) -> None:
    with pytest.raises(SpecError, match="max_seconds"):
        Budget(seconds)  # type: ignore[arg-type]


def test_a_slow_first_fit_does_not_end_the_search() -> None:
    began: list[str] = []

    def each(name: str) -> float:
        began.append(name)
        return 5.0 if len(began) == 1 else 0.1  # the first one imports and compiles

    found, runner, _ = _search(20.0, each)
    assert runner.ran[:2] == ["defaults", "defaults"]
    assert runner.ran[2:].count("defaults") == 1, "fits are compared, although the first one took a quarter of the time"
    assert len(found.trials) > 20
