"""The parts of the benchmark of many ranks: links are no better than asked for, counts are exact, the model is sane."""

import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from daskkern.cluster.collectives.communicator import DaskCommunicator
from tests.support.collectives.reordering import reordering_transports

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PORT = 9555


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(FOLDER)
    yield
    for name in set(sys.modules) - before:
        if str(FOLDER) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def net() -> int:
    return int(import_module("ranks.hosts").free_net())


@pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is the loopback interface on Linux only")
def test_a_link_delays_limits_and_changes_no_byte(net: int) -> None:
    module = import_module("ranks.relay")
    sent = np.random.default_rng(0).bytes(3_000_000)
    with module.relay(net, {2: [PORT]}) as control, socket.create_server((module.listening(net, 2), PORT)) as server:

        def passed(links: Any, host: int) -> tuple[float, bytes]:
            control.set(links)
            begun = time.perf_counter()
            with (
                socket.create_connection((module.relayed(net, 2), PORT), 10, (module.listening(net, host), 0)) as here,
                server.accept()[0] as there,
            ):
                sending = threading.Thread(target=lambda: (here.sendall(sent), here.shutdown(socket.SHUT_WR)))
                sending.start()
                received = b"".join(iter(lambda: there.recv(1 << 20), b""))
                there.sendall(b"done")
                there.shutdown(socket.SHUT_WR)
                assert b"".join(iter(lambda: here.recv(10), b"")) == b"done"
                sending.join()
            return time.perf_counter() - begun, received

        slow, received = passed(module.LinkSettings(10e6, 0.1), 1)
        assert received == sent
        assert slow >= 0.3 + 0.2 - 0.01, "3 MB at 10 MB/s, and the delay of both ways"
        within, received = passed(module.LinkSettings(10e6, 5.0), 2)
        assert received == sent
        assert within < 5.0, "a host has no link to itself"
        assert control.set(module.LinkSettings())[1] == len(sent) + len(b"done")


@pytest.mark.skipif(sys.platform != "linux", reason="all of 127.0.0.0/8 is the loopback interface on Linux only")
def test_the_hosts_of_one_link_share_it(net: int) -> None:
    module = import_module("ranks.relay")
    with module.relay(net, {2: [PORT]}) as control, socket.create_server((module.listening(net, 2), PORT)) as server:
        control.set(module.LinkSettings(10e6))

        def sending(host: int) -> None:
            with socket.create_connection((module.relayed(net, 2), PORT), 10, (module.listening(net, host), 0)) as end:
                end.sendall(bytes(1_000_000))

        def receiving(end: socket.socket) -> int:
            with end:
                return sum(map(len, iter(lambda: end.recv(1 << 20), b"")))

        begun = time.perf_counter()
        with ThreadPoolExecutor(6) as pool:
            for host in (1, 3, 4):
                pool.submit(sending, host)
            counts = list(pool.map(receiving, [server.accept()[0] for _ in range(3)]))
        assert counts == [1_000_000] * 3
        assert time.perf_counter() - begun >= 0.29, "3 MB at the 10 MB/s of the receiver's link"


@pytest.mark.parametrize("size", [3, 8, 11])
def test_messages_and_bytes_are_those_of_the_formulas(size: int) -> None:
    module = import_module("ranks.counts")
    transports = reordering_transports(size)

    def rank(number: int) -> list[Any]:
        comm = DaskCommunicator(transports[number])
        calls: list[Any] = module.record_calls(comm)
        comm.allreduce(np.ones(3))
        comm.allgather(np.ones((number, 2)))
        comm.begin_allreduce(np.ones((1000, 100)))()
        comm.broadcast(np.ones(300_000), 1)
        comm.barrier()
        return calls

    with ThreadPoolExecutor(size) as pool:
        calls = list(pool.map(rank, range(size)))
    assert [name for name, _ in calls[0]] == ["sum", "gather", "sum", "broadcast", "barrier"]
    messages, n_bytes = module.by_formula(calls)
    assert messages == sum(transport.messages for transport in transports)
    assert n_bytes == sum(transport.bytes_sent for transport in transports)


def test_constants_are_found_again() -> None:
    model = import_module("ranks.model")
    known = model.Constants(3e-4, 2e-4, 1e-9)
    rows = [
        {
            "way": way,
            "n_ranks": n,
            "size": size,
            "median_ms": 1e3 * model.shared_sum(way, n, nbytes, known, model.Link(), 2),
        }
        for way in ("star", "doubling", "reduce_scatter", "halving")
        for n in (4, 8, 16)
        for size, nbytes in import_module("ranks.sums").SIZES.items()
    ]
    rows[5]["median_ms"] *= 10  # while others used the cores
    found = model.fitted(rows, 2)
    assert found.latency_s == pytest.approx(known.latency_s, rel=0.2)
    assert found.message_s == pytest.approx(known.message_s, rel=0.2)
    assert found.copy_s == pytest.approx(known.copy_s, rel=0.2)


def test_efficiency_falls_with_ranks_and_with_what_travels() -> None:
    paper, model = import_module("ranks.paper"), import_module("ranks.model")
    kinds = paper.machines(15e-9, 3e-3, model.Constants(5e-4, 5e-4, 1e-9))
    for machine in kinds:
        shares = [model.predicted(machine, paper.STEP, n)["efficiency_share"] for n in (8, 64, 512)]
        assert sorted(shares, reverse=True) == shares
        assert 0 < shares[-1] <= shares[0] <= 1
        most = [model.most_ranks(machine, step, 0.8) for step in paper.STEPS.values()]
        assert most[1] <= most[0] <= most[2]
        at_most = model.predicted(machine, paper.STEP, most[0])["efficiency_share"]
        assert at_most >= 0.8 > model.predicted(machine, paper.STEP, most[0] + 1)["efficiency_share"]
    assert [row["n_ranks"] for row in paper.memory((64, 1000))] == [64, 1000]


def test_groups_pay_where_the_model_is_small_against_the_ranks() -> None:
    paper, model = import_module("ranks.paper"), import_module("ranks.model")
    kinds = paper.machines(15e-9, 3e-3, model.Constants(2e-4, 3e-4, 1e-9))
    rows = paper.grids(kinds, (8, 64))
    assert {row["n_ranks"] % row["n_groups"] for row in rows} == {0}
    assert all(row["best_ms"] <= row["one_ms"] for row in rows)
    for small, large in zip(rows[:2], rows[4:6], strict=True):  # of 2,000 and of a million columns
        assert small["n_groups"] > large["n_groups"]
        assert small["best_ms"] < 0.8 * small["one_ms"]
        assert large["best_ms"] > 0.95 * large["one_ms"]


def test_tables_in_the_pages_are_those_of_the_files() -> None:
    tables = import_module("docs_tables")
    pages = {path: path.read_text() for path in tables.DOCS.glob("*.md")}
    assert sum(page.count("<!-- figures: ") for page in pages.values()) == len(tables.BLOCKS) + len(tables.documents())
    stale = [path.name for path, page in pages.items() if tables.rewritten(page) != page]
    assert stale == [], "run python benchmarks/docs_tables.py"
