"""Row filters as text, such as ``"day >= 3 and region in ('north', 'south')"``, parsed to pyarrow expressions.

The grammar, from the weakest to the strongest operator::

    or, and, not, ( )
    column = 1   column != 1   column < 1   column <= 1   column > 1   column >= 1   also the other way round
    column in (1, 2)   column not in (1, 2)   column between 1 and 2   column is null   column is not null

A column is a name, in double quotes or backticks where it has other characters than letters, digits, ``_`` and ``.``.
A value is a number, a text in single quotes, ``true`` or ``false``; texts stand for dates where the column holds dates.
Nothing is evaluated as Python. Rows for which a comparison has no value are left out, as in SQL. NaN is a value, as in
pandas: it equals no number, and is neither below nor above one. A number takes the type of a floating-point column.
"""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from daskkern.data.lake.where_tokens import Token, tokens_of
from daskkern.errors import SpecError

_COMPARISONS = {"=": "equal", "==": "equal", "!=": "not_equal", "<>": "not_equal"}
_COMPARISONS |= {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_WITH_LIMIT = {"less": "less_equal", "greater": "greater_equal"}
_DEEPEST = 100
_OFFSET = re.compile(r":[\d.]+\s*(Z|[+-]\d\d(:?\d\d)?)$")


def where_expression(text: str, schema: pa.Schema) -> "pc.Expression":
    """Return the expression of a filter over columns of `schema`, for :mod:`pyarrow.dataset`.

    Raises
    ------
    SpecError
        When the text is not a filter, names a column that does not exist, or compares it with a value of another kind.
    """
    return _Parser(text, schema).parse()


def group_expression(text: str, schema: pa.Schema) -> "pc.Expression":
    """Return the filter in a form by which statistics exclude only row groups in which no row passes.

    Statistics leave NaN out: they say nothing about a condition that NaN passes. The table of all files may have wider
    columns than one file, where a number is rounded less: values equal to a limit are kept here. Raises SpecError, as
    :func:`where_expression`.
    """
    return _Parser(text, schema, of_groups=True).parse()


def where_columns(text: str, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that a filter reads. Raises SpecError, as :func:`where_expression`."""
    parser = _Parser(text, schema)
    parser.parse()
    return tuple(dict.fromkeys(parser.columns))


class _Parser:
    """A recursive descent over the tokens of one filter, or of its form for statistics of row groups."""

    def __init__(self, text: str, schema: pa.Schema, *, of_groups: bool = False) -> None:
        self._text, self._schema, self._of_groups = text, schema, of_groups
        self._tokens = tokens_of(text)
        self._at = self._depth = 0
        self._negative = False  # whether what is read now is negated, all in all
        self.columns: list[str] = []

    def parse(self) -> "pc.Expression":
        found = self._either()
        if self._next.kind != "end":
            raise self._error(f"{self._next} follows a whole condition; join conditions with and, or")
        return found

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _accept(self, word: str) -> bool:
        token = self._next
        is_it = (token.kind == "word" and token.value.lower() == word) or (token.kind == "mark" and token.value == word)
        if is_it:
            self._take()
        return is_it

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise self._error(f"{self._next} was found where {word!r} is expected")

    def _either(self) -> "pc.Expression":
        found = self._both()
        while self._accept("or"):
            found = found | self._both()
        return found

    def _both(self) -> "pc.Expression":
        found = self._negated()
        while self._accept("and"):
            found = found & self._negated()
        return found

    def _negated(self) -> "pc.Expression":
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error(f"it is nested more than {_DEEPEST} times")
        try:
            if self._accept("not"):
                self._negative = not self._negative
                found = ~self._negated()
                self._negative = not self._negative
                return found
            if self._accept("("):
                found = self._either()
                self._expect(")")
                return found
            return self._condition()
        finally:
            self._depth -= 1

    def _condition(self) -> "pc.Expression":
        first = self._next
        if first.kind == "value" or (first.value not in self._schema.names and _is_truth(first)):
            value, mark = self._value(), self._comparison()
            return self._compared(self._column(self._take()), _MIRRORED.get(mark, mark), value)
        column = self._column(self._take())
        field = pc.field(column)
        if self._accept("is"):
            negated = self._accept("not")
            self._expect("null")
            return field.is_valid() if negated else field.is_null(nan_is_null=False)
        negated = self._accept("not")
        if self._accept("in"):
            return self._among(column, self._list(), negated)
        if self._accept("between"):
            self._negative ^= negated
            low = self._value()
            self._expect("and")
            inside = self._compared(column, ">=", low) & self._compared(column, "<=", self._value())
            self._negative ^= negated
            return ~inside if negated else inside
        if negated:
            raise self._error(f"{self._next} was found where 'in' or 'between' is expected")
        return self._compared(column, self._comparison(), self._value())

    def _comparison(self) -> str:
        token = self._take()
        if token.kind != "mark" or token.value not in _COMPARISONS:
            raise self._error(f"{token} was found where a comparison such as >= is expected")
        return str(token.value)

    def _column(self, token: Token) -> str:
        if token.kind not in ("word", "name"):
            raise self._error(f"{token} was found where a column is expected")
        if token.value not in self._schema.names:
            shown = ", ".join(map(repr, self._schema.names[:12]))
            raise self._error(f"there is no column {token.value!r}; the columns are {shown}")
        self.columns.append(str(token.value))
        return self.columns[-1]

    def _value(self) -> Any:
        token = self._take()
        if _is_truth(token):
            return token.value.lower() == "true"
        if token.kind != "value":
            raise self._error(f"{token} was found where a value is expected: a number, or a text in single quotes")
        return token.value

    def _list(self) -> list[Any]:
        self._expect("(")
        values = [self._value()]
        while self._accept(","):
            values.append(self._value())
        self._expect(")")
        return values

    def _among(self, column: str, values: list[Any], negated: bool) -> "pc.Expression":
        typed = [self._typed(column, value) for value in values]
        if self._says_nothing(column, passes_nan=negated):
            return pc.scalar(not self._negative)
        kind = self._kind(column)
        zeros = [0.0, -0.0] if pa.types.is_floating(kind) and 0.0 in typed else []  # a list tells -0 from 0
        chosen = self._field(column).isin(pa.array([*typed, *zeros], kind))
        passes = (~chosen & pc.field(column).is_valid()) if negated != self._negative else chosen
        return ~passes if self._negative else passes

    def _compared(self, column: str, mark: str, value: Any) -> "pc.Expression":
        typed = pa.scalar(self._typed(column, value), self._kind(column))
        comparison = _COMPARISONS[mark]
        if self._says_nothing(column, passes_nan=comparison == "not_equal"):
            return pc.scalar(not self._negative)
        if self._of_groups and pa.types.is_floating(typed.type):
            comparison = _WITH_LIMIT.get(comparison, comparison)
        field = self._field(column)
        operation = {
            "equal": field == typed,
            "not_equal": field != typed,
            "less": field < typed,
            "less_equal": field <= typed,
            "greater": field > typed,
            "greater_equal": field >= typed,
        }
        return operation[comparison]

    def _says_nothing(self, column: str, *, passes_nan: bool) -> bool:
        """Return whether statistics cannot exclude a condition, which NaN passes unless it is negated, or fails."""
        kind = self._stored(column)
        is_unknown = passes_nan != self._negative or pa.types.is_float16(kind)  # pyarrow does not compare 16 bits
        return self._of_groups and pa.types.is_floating(kind) and is_unknown

    def _field(self, column: str) -> Any:
        field = pc.field(column)
        return field.cast(pa.float32()) if pa.types.is_float16(self._stored(column)) else field

    def _stored(self, column: str) -> pa.DataType:
        kind = self._schema.field(column).type
        return kind.value_type if pa.types.is_dictionary(kind) else kind

    def _kind(self, column: str) -> pa.DataType:
        """Return the type of the values that a column is compared with."""
        kind = self._stored(column)
        if pa.types.is_float16(kind):
            return pa.float32()
        return pa.float64() if pa.types.is_decimal(kind) else kind

    def _typed(self, column: str, value: Any) -> Any:
        kind = self._kind(column)
        if pa.types.is_integer(kind) and isinstance(value, float) and not value.is_integer():
            raise self._error(f"column {column!r} holds {kind} values; compare it with whole numbers")
        try:
            if pa.types.is_temporal(kind) and isinstance(value, str):
                return _moment(value, kind)
            if isinstance(value, str) != (pa.types.is_string(kind) or pa.types.is_large_string(kind)) or (
                isinstance(value, bool) != pa.types.is_boolean(kind)
            ):
                raise TypeError
            if pa.types.is_floating(kind):
                return _rounded(value, self._stored(column))
            return pa.scalar(int(value) if pa.types.is_integer(kind) else value, kind).as_py()
        except (pa.ArrowException, TypeError, OverflowError, ValueError):
            raise self._error(f"column {column!r} holds {kind} values and cannot be compared with {value!r}") from None

    def _error(self, reason: str) -> SpecError:
        return SpecError(f"the filter {self._text!r} cannot be used: {reason}")


def _is_truth(token: Token) -> bool:
    return token.kind == "word" and token.value.lower() in ("true", "false")


def _rounded(number: float, kind: pa.DataType) -> float:
    """Return a number in the precision of a floating-point type; beyond its range, infinity."""
    dtype = np.dtype(kind.to_pandas_dtype())
    try:
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float64(number).astype(dtype))
    except OverflowError:  # a whole number of more than 308 digits
        return float("inf") if number > 0 else float("-inf")


def _moment(text: str, kind: pa.DataType) -> Any:
    """Return a date or a time from its text; without an offset, in the time zone of the column."""
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    if zone is None or _OFFSET.search(text):
        return pa.scalar(text).cast(kind).as_py()
    return pc.assume_timezone(pa.scalar(text).cast(pa.timestamp(kind.unit)), zone).as_py()
