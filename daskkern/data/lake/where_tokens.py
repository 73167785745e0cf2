"""The tokenizer of row filters, see :mod:`daskkern.data.lake.where`."""

import re
from dataclasses import dataclass
from typing import Any

from daskkern.errors import SpecError

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]))
        |'(?P<text>(?:[^']|'')*)'
        |"(?P<quoted>(?:[^"]|"")+)"|`(?P<ticked>[^`]+)`
        |(?P<word>[^\W\d][\w.]*)
        |(?P<mark><=|>=|<>|!=|==|=|<|>|\(|\)|,))""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Token:
    """A word, a mark or a value of a filter; `kind` is "word", "name", "value", "mark" or "end"."""

    kind: str
    value: Any

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else repr(self.value)


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a filter, and one for its end. Raises SpecError."""
    tokens, at = [], 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise SpecError(f"the filter {text!r} cannot be read at {text[at:].strip()[:20]!r}; see docs/sources.md")
        at = found.end()
        tokens.append(_token(found))
    return [*tokens, Token("end", None)]


def _token(found: "re.Match[str]") -> Token:
    kind, raw = str(found.lastgroup), found[str(found.lastgroup)]
    if kind == "number":
        whole = re.fullmatch(r"[-+]?\d+", raw) is not None
        return Token("value", int(raw) if whole else float(raw))
    if kind == "text":
        return Token("value", raw.replace("''", "'"))
    if kind in ("quoted", "ticked"):
        return Token("name", raw.replace('""', '"') if kind == "quoted" else raw)
    return Token(kind, raw)
