"""Files behind URLs of which byte ranges that lie close together are requested at once.

A request takes as long as some hundred kilobytes of data, and a reader of columns asks for one range of each. What lies
between ranges less than 1 MiB apart is therefore read, too, in requests of up to 8 MiB.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from daskkern.data.remote.files import RemoteFile

_HOLE, _MOST = 1 << 20, 8 << 20


@dataclass
class _Span:
    """A part of a file, the bytes in it that are expected to be read, and its bytes once they were requested."""

    start: int
    stop: int
    expected: int
    found: bytes = b""


class SpannedFile(RemoteFile):
    """A file behind a URL that requests the ranges that its reader will want in as few parts as is reasonable.

    Holds a part until all of its ranges have been read. Of other ranges, every read is one request.

    Parameters
    ----------
    url : str
    size : int
        In bytes.
    """

    def __init__(self, url: str, size: int) -> None:
        super().__init__(url, size)
        self._spans: list[_Span] = []

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Take note of the ranges, by first byte and number of bytes, that will be read once each."""
        spans: list[_Span] = []
        for start, n_bytes in sorted(ranges):
            last = spans[-1] if spans else None
            if last is not None and start - last.stop <= _HOLE and start + n_bytes - last.start <= _MOST:
                last.stop = max(last.stop, start + n_bytes)
                last.expected += n_bytes
            else:
                spans.append(_Span(start, start + n_bytes, n_bytes))
        self._spans = spans

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes, or all that are left."""
        start = self._at
        stop = self._size if size is None or size < 0 else min(self._size, start + size)
        span = next((span for span in self._spans if span.start <= start < stop <= span.stop), None)
        if span is None:
            return super().read(size)
        if not span.found:
            self._at = span.start
            try:
                span.found = super().read(span.stop - span.start)
            finally:
                self._at = start
        self._at = stop
        part = span.found[start - span.start : stop - span.start]
        span.expected -= len(part)
        if span.expected <= 0:
            self._spans.remove(span)
        return part
