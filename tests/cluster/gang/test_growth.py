"""When a gang grows, by a clock of the test's own."""

import math

from daskkern.cluster.gang.growth import GrowthPolicy, Prospects


class Gang:
    """A gang of `size` ranks that grows when its policy says so, and the times at which it did."""

    def __init__(self, size: int, left_s: float, cost_s: float) -> None:
        self.now, self.size, self.left_s, self.cost_s = 0.0, size, left_s, cost_s
        self.free: list[str] = []
        self.asked = 0
        self.grown: list[tuple[float, int]] = []
        self.policy = GrowthPolicy(lambda: self.now)

    def prospects(self) -> Prospects:
        self.asked += 1
        return Prospects(self.left_s, self.cost_s)

    def live(self, seconds: float, joins: dict[float, str] | None = None) -> list[tuple[float, int]]:
        """Let `seconds` pass, in which workers join at the times `joins`; return the growths until now."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.free += [name for at, name in (joins or {}).items() if at == self.now]
            if self.policy.is_worthwhile(self.free, self.size, self.prospects):
                self.size += len(self.free)
                self.free = []
                self.policy.grown()
                self.grown.append((self.now, self.size))
        return self.grown


def test_a_worker_that_joins_is_used_after_a_moment() -> None:
    gang = Gang(2, left_s=3600.0, cost_s=2.0)
    assert gang.live(20, {5.0: "a"}) == [(8.0, 3)]
    assert gang.asked == 1


def test_workers_that_trickle_in_do_not_each_cost_a_formation() -> None:
    joins = {5.0: "a", 10.0: "b", 15.0: "c", 20.0: "d"}
    assert Gang(2, left_s=3600.0, cost_s=2.0).live(100, joins) == [(8.0, 3), (48.0, 6)]
    assert Gang(2, left_s=3600.0, cost_s=8.0).live(100, joins) == [(28.0, 6)]


def test_a_steady_stream_of_workers_does_not_put_growth_off_for_ever() -> None:
    joins = {float(second): f"w{second}" for second in range(1, 200, 2)}
    sizes = [size for _, size in Gang(2, left_s=3600.0, cost_s=1.0).live(100, joins)]
    assert len(sizes) in (2, 3)
    assert sizes[-1] > 40


def test_a_fit_that_ends_soon_stays_as_it_is() -> None:
    assert Gang(2, left_s=20.0, cost_s=10.0).live(60, {1.0: "a"}) == [], "it would save 7 of 20 s, at the cost of 10"
    assert Gang(2, left_s=40.0, cost_s=10.0).live(60, {1.0: "a"}) == [(11.0, 3)]


def test_before_the_pace_is_known_nothing_is_decided() -> None:
    gang = Gang(2, left_s=math.nan, cost_s=1.0)
    assert gang.live(30, {1.0: "a"}) == []
    gang.left_s = math.inf
    assert gang.live(1) == [(31.0, 3)]


def test_a_worker_that_leaves_again_is_forgotten() -> None:
    gang = Gang(2, left_s=math.inf, cost_s=0.0)
    gang.live(2, {1.0: "a"})
    gang.free.clear()
    gang.live(5)
    gang.free.append("a")
    assert gang.live(3) == []
    assert gang.live(1) == [(11.0, 3)]
