"""A client of Dask whose messages get lost."""

from typing import Any

from distributed import Client


class LossyClient(Client):
    """A client that loses the tasks that it should send, or what it hears of their ends.

    Attributes
    ----------
    loses : str
        The kind of message that is lost, "" for none.
    only : int, optional
        Which of these messages is lost, counted from 0; all unless given.
    sent : list of str
        Keys of the tasks that were sent or lost, in order.
    """

    loses = ""
    only: int | None = None

    def __init__(self, *of: Any, **options: Any) -> None:
        self.sent: list[str] = []
        super().__init__(*of, **options)

    def _send_to_scheduler(self, msg: dict[str, Any]) -> None:
        if msg["op"] == "update-graph":
            self.sent.append(str(next(iter(msg["keys"]))))
        if msg["op"] != self.loses or self.only not in (None, len(self.sent) - 1):
            super()._send_to_scheduler(msg)

    def _handle_key_in_memory(self, *of: Any, **fields: Any) -> None:
        if self.loses != "key-in-memory":
            super()._handle_key_in_memory(*of, **fields)
