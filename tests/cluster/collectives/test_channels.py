"""Messages of bytes from one rank to all others: what arrives, who sends how much, and what ends the waiting."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daskkern.backend.communicator import SerialCommunicator
from daskkern.backend.summation import add_in_order
from daskkern.cluster.collectives.channel import PeerChannel, framed
from daskkern.cluster.collectives.communicator import DaskCommunicator
from daskkern.cluster.collectives.mailbox import Mailbox, Membership, Parcel
from daskkern.cluster.collectives.mailbox_registry import MailboxRegistry
from daskkern.cluster.collectives.timed import TimedCommunicator
from daskkern.cluster.collectives.transport import PeerTransport
from daskkern.cluster.collectives.wire import BYTES, pack, unpack
from daskkern.cluster.gang.gang import run_gang
from daskkern.errors import CommunicatorClosedError, SpecError
from tests.support import ranks
from tests.support.cluster import one_process_cluster
from tests.support.collectives.reordering import reordering_transports


@settings(max_examples=30, deadline=None)
@given(size=st.integers(2, 12), seed=st.integers(0, 1000), piece=st.sampled_from([8, 40, 1 << 20]))
def test_every_rank_gets_the_bytes_of_every_message(size: int, seed: int, piece: int) -> None:
    rng = np.random.default_rng(seed)
    roots = rng.integers(0, size, 4).tolist()
    sent = [[rng.standard_normal(n).astype(kind) for n, kind in ((3, "f4"), (0, "f8"), (7, "u1"))] for _ in roots]
    sent[1] = []  # nothing at all
    transports = reordering_transports(size, seed=seed)

    def take_part(rank: int) -> list[np.ndarray]:
        mine, found = PeerChannel(transports[rank], piece), []
        for root, parts in zip(roots, sent, strict=True):
            if rank == root:
                mine.send(parts)
                found.append(np.concatenate(framed(parts, piece))[8:])
            else:
                found.append(mine.receive(root))
        return found

    with ThreadPoolExecutor(size) as pool:
        found = list(pool.map(take_part, range(size)))
    for number, parts in enumerate(sent):
        for mine in found:
            at = 0
            for part in parts:
                np.testing.assert_array_equal(mine[number][at : at + part.nbytes].view(part.dtype), part)
                at += -(-part.nbytes // 8) * 8
            assert mine[number].size == at
            assert mine[number].flags.writeable


@pytest.mark.parametrize("size", [2, 3, 8, 17])
def test_no_rank_sends_more_than_two_copies(size: int) -> None:
    data = np.arange(1000, dtype=np.uint8).reshape(10, 100)
    transports = reordering_transports(size)

    def take_part(rank: int) -> int:
        mine = PeerChannel(transports[rank])
        if rank == 3 % size:
            mine.send([data])
        else:
            mine.receive(3 % size)
        return transports[rank].messages

    with ThreadPoolExecutor(size) as pool:
        copies = list(pool.map(take_part, range(size)))
    assert sum(copies) == size - 1
    assert max(copies) == min(2, size - 1)


def test_one_rank_has_no_channel() -> None:
    mailbox = Mailbox(Membership("fit", 0, 0, ("tcp://a:1",), "task"))
    assert DaskCommunicator(PeerTransport(None, mailbox, 1.0)).channel() is None  # type: ignore[arg-type]
    assert TimedCommunicator(SerialCommunicator()).channel() is None


def _mailbox() -> Mailbox:
    return Mailbox(Membership("fit", 0, 0, ("tcp://a:1", "tcp://b:2"), "task"))


def test_channels_do_not_take_each_others_messages() -> None:
    mailbox = _mailbox()
    for channel in (0, 1, 2):
        mailbox.put(5, 1, Parcel("message", np.full(1, channel)), channel)
    for channel in (2, 0, 1):
        (found,) = mailbox.take(5, "message", [1], 1.0, channel=channel)
        assert found[0] == channel


def test_a_closed_channel_wakes_who_waits_and_drops_what_comes() -> None:
    mailbox = _mailbox()
    closing = threading.Timer(0.1, mailbox.close_channel, [1])
    closing.start()
    begun = time.monotonic()
    with pytest.raises(CommunicatorClosedError, match="channel 1 is closed on rank 0"):
        mailbox.take(1, "message", [1], 30.0, channel=1)
    assert time.monotonic() - begun < 10
    closing.join()
    mailbox.put(1, 1, Parcel("message", np.zeros(1)), 1)
    with pytest.raises(CommunicatorClosedError, match="closed"):
        mailbox.take(1, "message", [1], 30.0, channel=1)
    mailbox.put(1, 1, Parcel("allreduce", np.zeros(1)))
    assert len(mailbox.take(1, "allreduce", [1], 1.0)) == 1  # the collectives go on


def test_an_abort_wakes_channels_too() -> None:
    mailbox = _mailbox()
    threading.Timer(0.1, mailbox.abort, ["rank 1 left the cluster"]).start()
    with pytest.raises(CommunicatorClosedError, match="rank 1 left the cluster"):
        mailbox.take(1, "message", [1], 30.0, channel=1)


def test_a_rank_waits_for_others_only_while_its_own_thread_does() -> None:
    mailbox = _mailbox()

    def waits() -> None:
        with pytest.raises(CommunicatorClosedError):
            mailbox.take(1, "message", [1], 30.0, channel=1)

    thread = threading.Thread(target=waits)
    thread.start()
    deadline = time.monotonic() + 10
    mailbox.starving = 1
    while mailbox.waits_for != (1,) and time.monotonic() < deadline:
        time.sleep(0.001)
    assert mailbox.waits_for == (1,)
    mailbox.starving = None
    assert mailbox.waits_for == ()  # it computes, while its channel waits
    mailbox.close_channel(1)
    thread.join()


def test_messages_carry_their_channel_and_only_channels_carry_bytes() -> None:
    registry = MailboxRegistry()
    registry.open(Membership("fit", 0, 0, ("tcp://a:1", "tcp://b:2"), "task"))
    data = {"dtype": "uint8", "shape": (2,), "data": memoryview(b"ab")}
    registry.deliver("fit", 0, 1, "message", 1, data, channel=4)
    (found,) = registry.mailboxes["fit"].take(1, "message", [1], 1.0, channel=4)
    assert bytes(found) == b"ab"
    with pytest.raises(SpecError, match="got a uint8 array in a collective"):
        pack(np.zeros(3, np.uint8))
    assert pack(np.zeros(3, np.uint8), BYTES)["dtype"] == "uint8"
    with pytest.raises(ValueError, match="carries the dtype 'object'"):
        unpack("object", (1,), memoryview(bytes(8)))


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(120)
def test_ranks_talk_by_the_protocol_of_their_cluster() -> None:
    """Websockets stand for any protocol that Dask knows, such as UCXX, which needs hardware."""
    with one_process_cluster(3, protocol="ws") as client:
        assert all(worker.address.startswith("ws://") for worker in client.cluster.workers.values())
        found = run_gang(client, ranks.all_collectives, "float64", name="websockets")
    for total, parts, _ in found[0]:
        np.testing.assert_array_equal(total, add_in_order([np.asarray(part) for part in parts]))
    assert len(found) == 3
