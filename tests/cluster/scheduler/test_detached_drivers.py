"""Which driver of a detached fit the scheduler lets hold it, without a cluster."""

from dataclasses import asdict
from types import SimpleNamespace

from daskkern.cluster.scheduler.detached_drivers import DetachedDrivers, driver_key
from daskkern.cluster.scheduler.metadata import FitMetadata
from daskkern.cluster.scheduler.registry import FitRegistry

FIRST, SECOND = (FitMetadata(fit=fit, name="eigenpro", out="/m.zarr", detached=True) for fit in "fg")


class Drivers:
    """The drivers of a scheduler that runs those of these fits, each for the first time."""

    def __init__(self, *fits: FitMetadata) -> None:
        self.registry, self.followed = FitRegistry(), list[str]()
        self.tasks = {driver_key(each.fit): SimpleNamespace(run_id=1) for each in fits}
        self.drivers = DetachedDrivers(SimpleNamespace(tasks=self.tasks), self.registry, self.followed.append)

    def drive(self, fit: FitMetadata, run: int, asker: str) -> bool:
        answer = self.drivers.handlers()["drive"](asdict(fit), driver_key(fit.fit), run, asker)
        return bool(answer)


def test_only_the_last_run_of_a_driver_holds_its_fit() -> None:
    drivers = Drivers(FIRST)
    assert drivers.drive(FIRST, 1, "one")
    drivers.tasks[driver_key("f")].run_id = 2
    assert not drivers.drive(FIRST, 1, "one")
    assert drivers.drive(FIRST, 2, "two")
    assert drivers.registry.holder("f") == "two"
    assert drivers.drivers.is_given_up("f", "one")
    assert not drivers.drivers.is_given_up("f", "two")


def test_a_driver_whose_model_another_fit_writes_is_not_recorded() -> None:
    """Of two fits that are submitted at once to the same place, the one whose driver asks first goes on."""
    drivers = Drivers(FIRST, SECOND)
    assert drivers.drive(FIRST, 1, "one")
    assert drivers.drive(SECOND, 1, "two"), "it goes on until it is told of the other fit"
    assert not drivers.registry.rival(FIRST)
    assert drivers.registry.rival(SECOND) == "f"
    assert "g" not in drivers.registry.records


def test_a_fit_whose_submitter_and_driver_were_lost_before_it_was_held_ends() -> None:
    """Its submitter was killed between sending the driver and having the scheduler hold it."""
    drivers = Drivers(FIRST)
    registry = drivers.registry
    assert drivers.drive(FIRST, 1, "one")
    registry.end_without_owner({"one"}, now=0.0)
    registry.end_without_owner({"one"}, now=1000.0)
    assert registry.active(["f"]), "its driver goes on"
    registry.client_left("one")
    registry.end_without_owner(set(), now=1000.0)
    assert registry.active(["f"]), "it may still be held"
    registry.end_without_owner(set(), now=1061.0)
    assert not registry.active(["f"])
    assert registry.records["f"].state == "lost"
    assert not registry.rival(SECOND)


def test_a_question_that_comes_after_its_client_has_left_leaves_no_fit_behind() -> None:
    registry = FitRegistry()
    attached = FitMetadata(fit="f", name="eigenpro", out="/m.zarr")
    registry.ask(attached, {}, "gone", [])
    registry.end_without_owner({"another"}, now=0.0)
    assert registry.records["f"].state == "lost"
    assert not registry.admission.waiting
