"""A client of Dask whose messages get lost."""

from typing import Any

from distributed import Client


class LossyClient(Client):
    """A client that loses the tasks that it should send, or what it hears of their ends."""

    loses = ""

    def _send_to_scheduler(self, msg: dict[str, Any]) -> None:
        if msg["op"] != self.loses:
            super()._send_to_scheduler(msg)

    def _handle_key_in_memory(self, *of: Any, **fields: Any) -> None:
        if self.loses != "key-in-memory":
            super()._handle_key_in_memory(*of, **fields)
