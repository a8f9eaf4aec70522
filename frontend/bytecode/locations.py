"""The location table: which source range each code unit came from (CPython's ``Objects/locations.md``)."""

from itertools import groupby
from operator import itemgetter

from .tables import CURRENT as TABLE

_SHORT_COLUMNS = 80
_ONE_LINE, _NO_COLUMNS, _LONG, _NONE = 10, 13, 14, 15


def encode_locations(rows, first_line):
    """The table for assembled ``rows``."""
    out = bytearray()
    line = first_line
    runs = zip([owner.positions for owner in rows.owners], rows.sizes, strict=True)
    if TABLE.LOCATIONS_MERGE:
        runs = [(position, sum(size for _, size in run)) for position, run in groupby(runs, itemgetter(0))]
    for position, units in runs:
        while units > 0:
            length = min(units, 8)
            line = _entry(out, line, position, length)
            units -= length
    return bytes(out)


def _entry(out, previous, position, length):
    line, end_line, column, end_column = position
    if line is None:
        out.append(0x80 | _NONE << 3 | length - 1)
        return previous
    delta = line - previous
    if end_line is None:
        end_line = line
    if column is None or end_column is None:
        if end_line == line:
            out.append(0x80 | _NO_COLUMNS << 3 | length - 1)
            _signed(out, delta)
            return line
    elif end_line == line:
        width = end_column - column
        if delta == 0 and column < _SHORT_COLUMNS and 0 <= width < 16:
            out.append(0x80 | column >> 3 << 3 | length - 1)
            out.append((column & 7) << 4 | width)
            return line
        if 0 <= delta < 3 and column < 128 and end_column < 128:
            out.append(0x80 | _ONE_LINE + delta << 3 | length - 1)
            out.append(column)
            out.append(end_column)
            return line
    out.append(0x80 | _LONG << 3 | length - 1)
    _signed(out, delta)
    _unsigned(out, end_line - line)
    _unsigned(out, 0 if column is None else column + 1)
    _unsigned(out, 0 if end_column is None else end_column + 1)
    return line


def _unsigned(out, value):
    while value >= 64:
        out.append(64 | value & 63)
        value >>= 6
    out.append(value)


def _signed(out, value):
    _unsigned(out, (-value << 1 | 1) if value < 0 else value << 1)
