"""``daskkern logs``: the events of a fit, and what its ranks, its supervisor and its driver have logged."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import click
from distributed import Client

from daskkern.cli.console import say, say_json
from daskkern.cli.fits import clock
from daskkern.cli.options.cluster_options import ClusterRequest, scheduler_options
from daskkern.cluster.scheduler.fits import FitStatus
from daskkern.monitor.event_text import line_of
from daskkern.training.jobs.handle import attach, find_fit
from daskkern.training.jobs.logs import LogLine, read_logs

_POLL_S = 1.0
_INDENT = " " * 21


@click.command("logs")
@click.argument("fit", required=False)
@click.option("--follow", is_flag=True, help="Go on until the fit has ended, or Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line: time and text.")
@scheduler_options
def logs_command(fit: str | None, follow: bool, as_json: bool, running: ClusterRequest) -> None:
    """Print the events of FIT and what its workers have logged, with the time, oldest first."""
    with running.attached() as client:
        log = _Log(client, find_fit(client, fit), _print_json if as_json else _print)
        log.show()
        with suppress(KeyboardInterrupt):
            while follow and log.status.active:
                time.sleep(_POLL_S)
                log.show()


class _Log:
    """What is known of one fit, printed as it comes."""

    def __init__(self, client: Client, status: FitStatus, write: Callable[[float, str], None]) -> None:
        self.status = status
        self._write = write
        self._client, self._handle = client, attach(client, status.metadata.fit)
        self._read: Mapping[str, int] = {}
        self._next_event = 0
        self._begun = False
        self._silent: tuple[str, ...] = ()

    def show(self) -> None:
        """Print what has come since the last call, and whether the fit has ended by now."""
        fit = self.status.metadata.fit
        self.status = find_fit(self._client, fit)
        page = read_logs(self._client, fit, self._read)
        self._read = page.read
        lines = [*self._new_events(), *((line.time, _worded(line)) for line in page.lines)]
        if not self._begun:
            # First, whatever the times of the others say: clocks of workers may differ.
            self._write(self.status.submitted, f"submitted by {self.status.metadata.owner}")
            self._begun = True
        for at, text in sorted(lines):
            self._write(at, text)
        if page.silent and page.silent != self._silent:
            self._write(time.time(), f"no log came from {', '.join(page.silent)}, which did not answer")
        self._silent = page.silent
        if not self.status.active:
            self._write(self.status.ended, f"{self.status.state}{': ' * bool(self.status.error)}{self.status.error}")

    def _new_events(self) -> Iterator[tuple[float, str]]:
        events, self._next_event = self._handle.events_since(self._next_event)
        for timed in events:
            line = line_of(timed.event, self.status.metadata.max_epochs)
            if line is not None:
                yield timed.time, line


def _worded(line: LogLine) -> str:
    where = f"{line.role} on {line.worker}" if line.role else line.worker
    return f"{line.level.lower():<8}{where}: {line.text}"


def _print(at: float, text: str) -> None:
    first, *others = text.splitlines() or [""]
    say(f"{clock(at)}  {plain(first)}")
    for other in others:
        say(f"{_INDENT}{plain(other)}")


def _print_json(at: float, text: str) -> None:
    say_json({"time": at, "text": text})


def plain(text: str) -> str:
    """Return a text that others have written without what would control the terminal: it is shown escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)
