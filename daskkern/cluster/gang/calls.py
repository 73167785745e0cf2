"""Concurrent calls from one worker to daskkern's handlers on others, each with a deadline."""

# mypy: allow-untyped-calls
# distributed is annotated in part.

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed import Client, Worker

from daskkern.cluster.connect.protocol import handler


@dataclass(frozen=True)
class Answers:
    """The answers by address: returned values, and errors."""

    values: dict[str, Any]
    errors: dict[str, Exception]


def call_workers(
    worker: Worker, client: Client, verb: str, messages: Mapping[str, dict[str, Any]], timeout_s: float
) -> Answers:
    """Send each address its message for the handler `verb`, from a thread of `worker`, and return the answers.

    Never raises an error of a peer: a worker that is dead or hangs is in ``errors`` after `timeout_s`.
    """
    answers = Answers({}, {})

    async def send(address: str, message: dict[str, Any]) -> None:
        call = getattr(worker.rpc(address), handler(verb))
        try:
            answers.values[address] = await asyncio.wait_for(call(**message), timeout_s)
        except Exception as error:
            answers.errors[address] = error

    async def send_all() -> None:
        await asyncio.gather(*(send(address, message) for address, message in messages.items()))

    client.sync(send_all)
    return answers
