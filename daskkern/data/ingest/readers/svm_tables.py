"""Sparse tables from SVMLight / LIBSVM text: ``label index:value index:value ... # remark`` on every line.

Two passes in blocks of whole lines: the first determines the number of features, whether they are counted from 0 or
1, and the kind of the labels; the second yields the rows.

References
----------
Chang and Lin, "LIBSVM: a library for support vector machines", ACM TIST 2011, and the formats that scikit-learn's
``load_svmlight_file`` reads; the guess of the first column number is that of its ``zero_based="auto"``.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from daskkern.arrays import FloatArray, HostArray, IntArray
from daskkern.data.ingest.columns.written_values import is_number
from daskkern.data.ingest.readers.tables import BLOCK_BYTES, Parts, Piece, Request, Table, concatenate
from daskkern.data.remote.url_files import SourceFile, open_source_file
from daskkern.data.rows.csr import CsrRows, as_csr, csr_rows
from daskkern.errors import DataError

_REMARK = re.compile(rb"#[^\n]*")
_QUERY = re.compile(rb"qid:\S*")
_BLANK = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
_MAY_BE_BLANK = (b"\n\n", b"\n ", b"\n\t", b"\n\r")  # searched first, because the pattern is slow


def open_svm(paths: Sequence[SourceFile], request: Request) -> Parts:
    """Return the rows of ``.svm``, ``.libsvm`` or ``.svmlight`` files, plain or with ``.gz``."""
    if request.target or request.weight or request.drop:
        raise DataError(
            "--target, --weight and --drop name columns, but SVMLight files have none: the label comes first in every "
            "line; leave these options out"
        )
    surveys = [_survey(path) for path in paths]
    known = None if request.like is None else request.like.index_base
    given = known if request.index_base is None else request.index_base
    base = _base(surveys, given, "--index-base 1" if known is None else "features counted from 1, as the training rows")
    last = max((survey.last for survey in surveys), default=-1)
    n_features = max(1, last - base + 1)
    if request.like is not None:
        if n_features > request.like.n_features:
            raise DataError(
                f"{paths[0]} holds feature number {last}, but the training rows had {request.like.n_features} "
                f"features (counted here from {base}); give a file that matches it, or set --index-base"
            )
        n_features = request.like.n_features
    integers = all(survey.integers for survey in surveys)
    has_target = request.target is None
    tables = [
        Table(
            source=str(path),
            n_rows=survey.n_rows,
            n_features=n_features,
            dtype=np.dtype(np.float32),
            target_kind=("integer" if integers else "float") if has_target else None,
            n_targets=int(has_target),
            has_weight=False,
            pieces=_SvmReader(path, n_features, base, integers, has_target).pieces,
            is_sparse=True,
            index_base=base,
        )
        for path, survey in zip(paths, surveys, strict=True)
    ]
    guessed = "" if given is not None else " (a guess: set --index-base to be sure)"
    return Parts(concatenate(tables), notes=(f"features are counted from {base} in {paths[0]}{guessed}",))


@dataclass(frozen=True)
class _Survey:
    """Rows of a file, its smallest and largest column number, and whether all labels are whole numbers."""

    n_rows: int
    first: int
    last: int
    integers: bool


@dataclass(frozen=True)
class _Lines:
    """Parsed lines: labels (m,), entries of each (m,), column numbers and values as in the file."""

    labels: FloatArray
    counts: IntArray
    columns: IntArray
    values: FloatArray


def _survey(path: SourceFile) -> _Survey:
    n_rows, first, last, integers = 0, 2**62, -1, True
    for lines in _blocks(path):
        n_rows += len(lines.labels)
        if lines.columns.size:
            first, last = min(first, int(lines.columns.min())), max(last, int(lines.columns.max()))
        with np.errstate(invalid="ignore"):
            integers = integers and bool((lines.labels == np.floor(lines.labels)).all() and _exact(lines.labels))
    return _Survey(n_rows, first, last, integers)


def _exact(labels: FloatArray) -> bool:
    return bool(np.isfinite(labels).all() and (np.abs(labels) < 2**53).all())


def _base(surveys: Sequence[_Survey], given: int | None, said: str) -> int:
    """Return the number of the first column: as given, which `said` names, or 1 unless a 0 was seen."""
    first = min((survey.first for survey in surveys), default=1)
    if given == 1 and first == 0:
        raise DataError(f"got {said}, but a feature has the number 0; set --index-base 0")
    return given if given is not None else int(first > 0)


@dataclass(frozen=True)
class _SvmReader:
    path: SourceFile
    n_features: int
    base: int
    integers: bool
    has_target: bool

    def pieces(self) -> Iterator[Piece]:
        """Yield the rows of a file."""
        first = 0
        for lines in _blocks(self.path):
            y: HostArray | None = lines.labels.astype(np.int64) if self.integers else lines.labels
            X = self._rows(lines, first)
            yield Piece(str(self.path), first, X, y if self.has_target else None, None)
            first += len(lines.labels)

    def _rows(self, lines: _Lines, first: int) -> CsrRows:
        indptr = np.concatenate([[0], np.cumsum(lines.counts)])
        rows = csr_rows(lines.values, lines.columns - self.base, indptr, self.n_features, str(self.path))
        if rows.has_canonical_format:
            return rows
        tidy = as_csr(rows)
        if tidy.nnz < rows.nnz:
            row = int(np.flatnonzero(np.diff(tidy.indptr) < np.diff(rows.indptr))[0])
            raise DataError(
                f"row {first + row} of {self.path} (counted from 0) names a feature twice; keep one of its values"
            )
        return tidy


def _blocks(path: SourceFile) -> Iterator[_Lines]:
    seen = 0
    try:
        with open_source_file(path) as stream:
            while data := stream.read(BLOCK_BYTES):
                text = data + stream.readline()
                lines = _parse(text if text.endswith(b"\n") else text + b"\n", path, seen)
                seen += len(lines.labels)
                yield lines
    except (OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read: {error}; make the file again") from error


def _parse(text: bytes, path: SourceFile, seen: int) -> _Lines:
    """Parse whole lines, all numbers at once. `seen` rows came before."""
    if b"#" in text:
        text = _REMARK.sub(b"", text)
    if b"qid:" in text:
        text = _QUERY.sub(b"", text)
    if text[:1] in b" \t\r\n" or any(start in text for start in _MAY_BE_BLANK):
        text = _BLANK.sub(b"", text)
    raw = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(raw == ord("\n"))
    colons = np.flatnonzero(raw == ord(":"))
    counts = np.diff(np.searchsorted(colons, ends), prepend=0).astype(np.int64)
    numbers = _numbers(text.replace(b":", b" "))
    if numbers is None or len(numbers) != len(ends) + 2 * len(colons):
        raise _unreadable(text, path, seen)
    starts = np.arange(len(ends)) + 2 * (np.cumsum(counts) - counts)  # where the labels are
    entries = np.delete(numbers, starts)
    columns = entries[::2]
    if columns.size and not ((columns == np.floor(columns)) & (columns >= 0) & (columns < 2**31)).all():
        raise _unreadable(text, path, seen)
    return _Lines(numbers[starts], counts, columns.astype(np.int64), entries[1::2])


def _numbers(text: bytes) -> FloatArray | None:
    """Return all numbers of a text; None when it contains anything else."""
    if not text.strip():
        return np.empty(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return np.fromstring(text, dtype=np.float64, sep=" ")
        except (ValueError, DeprecationWarning):
            return None


def _unreadable(text: bytes, path: SourceFile, seen: int) -> DataError:
    """Return the error for the first line that is not ``label index:value ...``."""
    entry = re.compile(rb"\+?\d+:\S+")
    for number, line in enumerate(text.split(b"\n")):
        label, *entries = line.split() or [b"0"]
        where = f"row {seen + number} of {path} (counted from 0)"
        if b"," in label:
            return DataError(
                f"{where} has the labels {label.decode('utf-8', 'replace')!r:.60}; rows with several labels cannot be "
                "learned, so give each row one"
            )
        for word in (label, *entries):
            sound = is_number(word) if word is label else entry.fullmatch(word) and is_number(word.split(b":")[1])
            if not sound:
                expected = "a number as its label" if word is label else "index:value"
                return DataError(
                    f"{where} has {word.decode('utf-8', 'replace')!r:.60} where {expected} is expected; correct it"
                )
    return DataError(f"{path} holds impossibly large column numbers after row {seen}; is it an SVMLight file?")
