"""Reading ahead yields what a plain loop does, one item early, and passes errors on where they belong."""

import threading
from collections.abc import Iterator

import pytest

from daskkern.data.lake.read_ahead import one_ahead


def test_the_next_item_is_made_in_a_thread_while_the_last_one_is_used() -> None:
    made: list[int] = []
    second = threading.Event()

    def items() -> Iterator[int]:
        for number in range(4):
            made.append(number)
            if number == 1:
                second.set()
            yield number

    found = []
    for item in one_ahead(items()):
        if item == 0:
            assert second.wait(10)  # it is made although nobody asked for it yet
        found.append(item)
        assert len(made) <= item + 2
    assert found == [0, 1, 2, 3]


def test_an_error_comes_after_the_items_before_it_and_a_loop_may_end_early() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("the file is gone")

    ahead = one_ahead(items())
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="the file is gone"):
        next(ahead)
    early = one_ahead(iter(range(10)))
    assert next(early) == 0
    early.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("daskkern-read-ahead")]
