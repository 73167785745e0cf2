"""Collectives between real worker processes give what NumPy gives, and never hang."""

from collections.abc import Iterator, Sequence

import distributed.protocol.pickle
import numpy as np
import pytest
from distributed import Client
from distributed.protocol import dumps, loads

from daskkern.backend.communicator import Communicator
from daskkern.backend.summation import add_in_order
from daskkern.cluster.collectives.mailbox import Mailbox, Membership, Parcel
from daskkern.cluster.collectives.mailbox_registry import MailboxRegistry
from daskkern.cluster.collectives.wire import pack, unpack
from daskkern.cluster.gang.gang import GangSettings, run_gang
from daskkern.errors import CommunicatorClosedError, SpecError
from tests.support import ranks
from tests.support.cluster import by_messages

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]


@pytest.fixture(params=[2, 3])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    """Workers whose ranks send messages also for small sums, as those of several hosts do."""
    fixture: Client = request.getfixturevalue(f"client{request.param}")
    with by_messages(fixture):
        yield fixture


@pytest.mark.long
@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
def test_collectives_equal_numpy(client: Client, dtype: str) -> None:
    results = run_gang(client, ranks.all_collectives, dtype, name="collectives")
    size = len(results)
    assert size in (2, 3)
    for position, shape in enumerate(ranks.SHAPES):
        inputs = [ranks.contribution(rank, shape, dtype) for rank in range(size)]
        expected = add_in_order(inputs)
        for total, parts, last in (result[position] for result in results):
            assert total.dtype == dtype
            np.testing.assert_array_equal(total, expected, strict=True)
            np.testing.assert_array_equal(last, inputs[-1], strict=True)
            for part, given in zip(parts, inputs, strict=True):
                np.testing.assert_array_equal(part, given, strict=True)


@pytest.mark.one_in(3)
def test_many_steps_and_arrays_written_right_after(client: Client) -> None:
    assert run_gang(client, ranks.many_steps, 300, name="steps") == [1000.0] * len(run_order(client))


def test_arrays_need_not_be_contiguous(client: Client) -> None:
    results = run_gang(client, ranks.strided, None, name="strided")
    expected = len(results) * np.arange(24.0).reshape(4, 6)[::2, ::-3]
    for result in results:
        np.testing.assert_array_equal(result, expected)


def test_gathered_arrays_differ_in_their_first_axis(client: Client) -> None:
    for result in run_gang(client, ranks.uneven_gather, None, name="uneven"):
        for rank, part in enumerate(result):
            np.testing.assert_array_equal(part, np.full((rank, 2), rank, "float32"), strict=True)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("main", [ranks.different_shapes, ranks.different_collectives])
def test_ranks_that_disagree_are_told(client: Client, main: Communicator) -> None:
    with pytest.raises(CommunicatorClosedError, match="every rank must"):
        run_gang(client, main, None, name="disagree")


@pytest.mark.parametrize("dtype", ["float16", "complex128", "object"])
def test_other_dtypes_are_refused(client2: Client, dtype: str) -> None:
    with pytest.raises(SpecError, match=f"got a {dtype} array in a collective"):
        run_gang(client2, ranks.wrong_dtype, dtype, name="dtype")


@pytest.mark.one_in(2, 1)
def test_a_silent_rank_is_named_with_its_address(client: Client) -> None:
    settings = GangSettings(collective_timeout_s=0.5, retries=0)
    with pytest.raises(CommunicatorClosedError, match=r"nothing came from rank \d at tcp://") as caught:
        run_gang(client, ranks.silent_peer, None, name="silent", settings=settings)
    last = len(run_order(client)) - 1
    assert f"rank {last} at {run_order(client)[last]}" in str(caught.value)


@pytest.mark.long
@pytest.mark.one_in(2, 1)
def test_a_slow_rank_is_not_a_silent_one(client: Client) -> None:
    """With three ranks, two of them wait for each other's answer, and for the one that computes."""
    settings = GangSettings(collective_timeout_s=0.3, retries=0)
    found = run_gang(client, ranks.slow_peer, 3.0, name="slow", settings=settings)
    assert found == [3.0 * len(found)] * len(found)


@pytest.mark.repeated
def test_a_rank_whose_process_hangs_is_silent(client2: Client) -> None:
    settings = GangSettings(collective_timeout_s=0.3, retries=0, silence_s=60.0)
    with pytest.raises(CommunicatorClosedError, match=r"nothing came from rank 1 at tcp://"):
        run_gang(client2, ranks.peer_that_hangs, 13, name="hangs", settings=settings)
    assert set(client2.run(lambda: 1).values()) == {1}


def test_ranks_that_wait_in_a_circle_are_given_up() -> None:
    mailbox = Mailbox(Membership("fit", 0, 0, ("tcp://a:1", "tcp://b:2"), "task"))
    asked: list[tuple[int, ...]] = []

    def is_progressing(missing: Sequence[int]) -> bool:
        asked.append(tuple(missing))
        assert mailbox.waits_for == (1,)
        return len(asked) < 3

    with pytest.raises(CommunicatorClosedError, match=r"in 0\.01 s nothing came from rank 1 at tcp://b:2"):
        mailbox.take(7, "allreduce", [1], 0.01, is_progressing=is_progressing)
    assert asked == [(1,)] * 3


def test_what_comes_during_the_last_question_is_taken() -> None:
    mailbox = Mailbox(Membership("fit", 0, 0, ("tcp://a:1", "tcp://b:2"), "task"))

    def comes(missing: Sequence[int]) -> bool:
        mailbox.put(7, 1, Parcel("allreduce", np.arange(3.0)))
        return False

    (found,) = mailbox.take(7, "allreduce", [1], 0.01, is_progressing=comes)
    assert found.tolist() == [0.0, 1.0, 2.0]
    assert mailbox.waits_for == ()


@pytest.mark.one_in(2, 1)
def test_bytes_sent_are_counted(client: Client) -> None:
    counts = run_gang(client, ranks.counted, None, name="counted")
    star = [80 * (len(counts) - 1)] + [80] * (len(counts) - 1)
    assert counts == star


def run_order(client: Client) -> list[str]:
    return list(client.sync(client.scheduler.identity, n_workers=-1)["workers"])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("shape", ranks.SHAPES)
def test_an_array_travels_without_pickle(shape: tuple[int, ...], dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("pickle was used")

    array = ranks.contribution(0, shape, dtype)
    monkeypatch.setattr(distributed.protocol.pickle, "dumps", forbidden)
    monkeypatch.setattr(distributed.protocol.pickle, "loads", forbidden)
    frames = [bytes(frame) for frame in dumps({"array": pack(array)})]
    assert not any(b"numpy" in frame[:200] for frame in frames)
    np.testing.assert_array_equal(unpack(**loads(frames)["array"]), array, strict=True)


@pytest.mark.parametrize(
    "fields",
    [
        {"dtype": "object", "shape": (1,), "data": memoryview(bytes(8))},
        {"dtype": "float64", "shape": (2,), "data": memoryview(bytes(8))},
        {"dtype": "float64", "shape": (-1, -1), "data": memoryview(bytes(8))},
        {"dtype": "float64", "shape": ("1",), "data": memoryview(bytes(8))},
        {"dtype": "float64", "shape": (1,), "data": b"12345678"},
    ],
)
def test_what_is_no_array_is_refused_on_arrival(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"carries|announced"):
        unpack(**fields)  # type: ignore[arg-type]


class TestFences:
    def membership(self, generation: int) -> Membership:
        return Membership("fit", generation, 0, ("tcp://a:1", "tcp://b:2"), "task")

    def deliver(self, registry: MailboxRegistry, **changes: object) -> None:
        message = {"fit": "fit", "generation": 1, "sequence": 1, "operation": "allreduce", "source": 1}
        data = {"dtype": "float64", "shape": (1,), "data": memoryview(bytes(8))}
        registry.deliver(**{**message, "array": data, **changes})  # type: ignore[arg-type]

    @pytest.mark.parametrize("stray", [{"generation": 0}, {"generation": 2}, {"fit": "another"}])
    def test_a_stray_message_is_dropped(self, stray: dict[str, object]) -> None:
        registry = MailboxRegistry()
        registry.open(self.membership(1))
        self.deliver(registry, **stray)
        mailbox = registry.find("fit", 1)
        assert mailbox is not None
        with pytest.raises(CommunicatorClosedError, match="rank 1 at tcp://b:2"):
            mailbox.take(1, "allreduce", [1], timeout_s=0.05)
        self.deliver(registry)
        assert mailbox.take(1, "allreduce", [1], timeout_s=0.05)[0].shape == (1,)

    def test_a_new_generation_aborts_the_old_one_and_keeps_the_request_to_stop(self) -> None:
        registry = MailboxRegistry()
        registry.open(self.membership(1))
        old = registry.find("fit", 1)
        registry.stop("fit")
        assert registry.open(self.membership(2))
        assert not registry.open(self.membership(1))
        new = registry.find("fit", 2)
        assert old is not None
        assert new is not None
        assert new.stop_requested
        with pytest.raises(CommunicatorClosedError, match="generation 2"):
            old.check()
        new.check()

    def test_a_message_that_cannot_be_read_aborts(self) -> None:
        registry = MailboxRegistry()
        registry.open(self.membership(1))
        self.deliver(registry, array={"dtype": "float64", "shape": (5,), "data": memoryview(bytes(8))})
        mailbox = registry.find("fit", 1)
        assert mailbox is not None
        with pytest.raises(CommunicatorClosedError, match="cannot be read"):
            mailbox.check()

    def test_the_first_reason_stays(self) -> None:
        mailbox = Mailbox(self.membership(1))
        mailbox.abort("the worker is gone")
        mailbox.abort("something else")
        mailbox.put(1, 1, Parcel("allreduce", np.zeros(1)))
        with pytest.raises(CommunicatorClosedError, match="the worker is gone"):
            mailbox.take(1, "allreduce", [1], timeout_s=5)
