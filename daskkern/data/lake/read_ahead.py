"""Prefetching: the next batch is read and decoded by a thread while the current one is used."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

Item = TypeVar("Item")


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items of an iterator, the next of which is computed in a thread meanwhile.

    Holds one more item than a plain loop. An exception is raised where the item would have been yielded. When the
    caller stops early, the item that is being computed is waited for.
    """
    end = object()
    with ThreadPoolExecutor(1, "daskkern-read-ahead") as pool:
        coming = pool.submit(next, items, end)
        while True:
            item = coming.result()
            if item is end:
                return
            coming = pool.submit(next, items, end)
            yield cast(Item, item)
