"""The exceptions of daskkern. Every message says what was found, what was expected and what to do."""

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

_PARTIAL = re.compile(r"/\.+([^/]+?)(?:\.staged)?\.partial-[^/]+(?:/.*)?$")
_SCHEME = r"(?:[A-Za-z][A-Za-z0-9+.-]*://|https?:/)"  # with one slash, which is a slip of whoever writes a URL
_URL = re.compile(rf"(?P<scheme>{_SCHEME})(?P<rest>(?:(?!::{_SCHEME})[^\s'\"<>`])*)")
_PUNCTUATION = re.compile(r"[).,:;\]}]*$")
_WEB = re.compile(r"(^|::)https?:/", re.IGNORECASE)
_SETTING = re.compile(r"[^/?*\[]+=")
_ENDING = re.compile(r"\.[A-Za-z]\w*$")
_PATTERN = re.compile(r"$|[/.?]|.*[*\[]|.*\.[A-Za-z]\w{0,7}$")
"""What follows a wildcard: another one, the rest of a name with the ending of a file, or nothing."""

CONTINUES = "what is done is kept, and the same command continues"
"""A note on an interrupt (KeyboardInterrupt, SystemExit) after which work can be taken up."""


def note_continuation(end: BaseException) -> None:
    """Add the note that work can be taken up, once."""
    if CONTINUES not in getattr(end, "__notes__", ()):
        end.add_note(CONTINUES)


def without_secrets(text: str) -> str:
    """Return a text whose URLs have no user, password, query or fragment: these may be secrets."""
    return _URL.sub(_public, text) if ":/" in text else text


def whole_name(place: str) -> str:
    """Return the final name of a file or folder that is written under a temporary one; other names are unchanged."""
    return _PARTIAL.sub(lambda found: f"/{found[1]}", place)


def split_query(url: str) -> tuple[str, str]:
    """Return a URL up to its query or fragment, and that with its mark; it may be a secret.

    A ``?`` is a wildcard in a name that ends as files do, and before ``/`` or another wildcard, as in
    ``s3://bucket/day=?/part-?.csv``. In a web address, before a setting (``?name=value``), after the ending of a file
    (``.csv?``), and before what else may be a token (``s3://bucket/name?token``), it begins a query.
    """
    for mark in re.finditer(r"[?#]", url):
        before, after = url[: mark.start()], url[mark.end() :]
        begins = _WEB.search(before) or _SETTING.match(after) or _ENDING.search(before)
        if mark[0] == "#" or begins or not _PATTERN.match(_PUNCTUATION.sub("", after)):
            return before, url[mark.start() :]
    return url, ""


def _public(url: re.Match[str]) -> str:
    before, query = split_query(url[0])
    kept, mark, hidden = before.removeprefix(url["scheme"]), query[:1], query[1:]
    host, slash, path = kept.partition("/")
    if ":" in host and "@" in path and "@" not in host and not host.rpartition(":")[2].isdigit():
        host, slash, path = kept.rpartition("@")[2].partition("/")  # a password with a slash
    end = _PUNCTUATION.search(hidden) if mark else None
    return f"{url['scheme']}{host.rpartition('@')[2]}{slash}{path}{'' if end is None else end[0]}"


class DaskkernError(Exception):
    """Base of every error that daskkern raises on purpose. Its messages and notes show no secrets of URLs."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(without_secrets(value) if isinstance(value, str) else value for value in args))

    def add_note(self, note: str) -> None:
        """Add a note, without secrets of URLs."""
        super().add_note(without_secrets(note))


class SpecError(DaskkernError, ValueError):
    """A setting that has no meaning: an unknown kernel, a negative length scale, a wrong combination."""


class DataError(DaskkernError, ValueError):
    """Data that cannot be used: NaN, wrong shapes, mismatched rows, text where numbers belong."""


class StoreError(DataError):
    """A store on disk that is missing, corrupt, half-written, or of another schema."""


class SupersededError(StoreError):
    """A later run of the same fit has taken over its files, so that this one may no longer write them."""


class ModelError(StoreError):
    """A saved model that is missing, corrupt, or of another schema."""


class MemoryBudgetError(DaskkernError, MemoryError):
    """A computation whose planned memory exceeds the budget, refused before it starts.

    Attributes
    ----------
    too_small : mapping
        The workers without which the others have room for it: a sentence on each, by address. Empty where there are
        none.
    for_now : frozenset of str
        Those of them that would have room if other programs released their memory.
    """

    def __init__(
        self,
        *args: object,
        too_small: Mapping[str, str] = MappingProxyType({}),
        for_now: Collection[str] = (),
    ) -> None:
        super().__init__(*args)
        self.too_small, self.for_now = dict(too_small), frozenset(for_now)


class ClusterError(DaskkernError, RuntimeError):
    """A cluster that cannot run the fit, or stopped running it."""


class CommunicatorClosedError(ClusterError):
    """A collective that cannot complete: a peer is gone, the deadline passed, or the epoch was aborted."""


class FitCancelledError(DaskkernError, RuntimeError):
    """The fit was cancelled by its user."""


class DivergenceError(DaskkernError, ArithmeticError):
    """An iteration whose numbers left the range of its dtype."""
