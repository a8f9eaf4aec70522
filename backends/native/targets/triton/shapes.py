"""The sizes of blocks, and how many warps run one: a small model of what a kernel costs on a GPU.

A kernel is printed for blocks of any size; the sizes are constants of a launch (:class:`Shape`).  The model chooses by
what a thread should have in flight (16 bytes for each access, and some accesses at a time), and by how many programs
fill all multiprocessors.  Its first choice is what runs; ``max-autotune`` may time all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...ir import index
from ...ir.expressions import Statement
from ...ir.index import Index
from ...schedule.splits import Surroundings

MULTIPROCESSORS = 132
"""Of an H100; a processor with more or fewer of them gets the same code."""
FILLING = 2 * MULTIPROCESSORS
"""So many programs keep all multiprocessors busy."""
PIECE = 16
"""A thread reads or writes at most so many bytes at once, which begin at a multiple of it."""
LONGEST_ROW = 16384
"""So many points are held in registers through all stages of a kernel, if it reads few values of each."""
HEAVY_ROW = 8192
"""The same if it reads more than :data:`FEW_READS`, or keeps exact exponentials of small values as well."""
LONGEST_AHEAD = 32768
"""So many points are held where a program walks rows, and reads the next one while it computes one."""
FEW_READS = 3
_LEAST_WARPS, _MOST_WARPS = 1, 32
_COLUMNS = 32
"""So many adjacent columns are reduced in a program."""
_HEAVY = 30
"""What takes so many instructions for an element is bound by them, and not by memory: it wants more threads."""
_MANY_POINTS = 2**24
"""Of so many, larger blocks leave enough programs for all multiprocessors."""
_HELD_COLUMNS = 4096
"""So many points of columns are held in registers."""
_COLUMN_BYTES = 128
"""What should be read at once of a row of adjacent columns."""
_LEAST_COLUMN_BYTES = 32
"""The same, at least: a sector of the cache."""
_LEAST_POINTS = 128
"""A block has so many points at least: Triton 3.6 fails to compile some kernels of blocks that leave lanes idle."""
_FEW_COLUMNS, _LEAST_ROWS = 16, 128
"""Of so few columns, a part has so many rows or more: a program walks them in one turn."""
_SPLIT_BYTES = 64 * 1024
"""What a program reads at most, where there are too few programs."""
_PASS_BYTES = 128 * 1024
_PASS_COST = 2**20
"""The same, and instructions, where another pass needs these elements once more, which one kernel may find in the
cache; more if fewer multiprocessors would be idle."""
_MOMENTS = 20
"""Instructions for an element that the running mean and spread of a norm take."""
_PART_BYTES, _PART_COST = 16 * 1024, 2**18
"""A part is worth a program of its own if it reads so many bytes, or takes so many instructions."""
_LONGEST_TURN = 32768
"""Of a row of so many points, exponentials are added up in one turn."""
_SHORTEST_TURN = 256
"""So many points of a row at least, if its length may be another one in each call."""
_CACHE = 32 * 2**20
"""Of the second cache of an H100, what is near a multiprocessor."""


@dataclass(frozen=True)
class Shape:
    """``blocks`` are the sizes of blocks by the names that the kernel has for them, ``programs`` how many are run."""

    blocks: tuple[tuple[str, int], ...]
    warps: int
    stages: int
    programs: Index

    @property
    def constants(self) -> dict[str, int]:
        """All that a launch of this shape passes by keyword."""
        return {**dict(self.blocks), "num_warps": self.warps, "num_stages": self.stages}


def power(count: int) -> int:
    """The least power of two that is not smaller."""
    return 1 << max(count - 1, 0).bit_length()


def blocks_of(total: Index, block: int) -> Index:
    """How many blocks cover so many points."""
    return index.floordiv(total + (block - 1), block)


def warps_for(points: int, each: int) -> int:
    """Warps for a block of which a thread computes so many points."""
    return min(max(power(-(-points // (32 * each))), _LEAST_WARPS), _MOST_WARPS)


def along_a_line(total: Index, itemsize: int, cost: int = 0) -> tuple[Shape, ...]:
    """For points one after the other, the smallest of whose values takes ``itemsize`` bytes, and each ``cost``
    instructions: of many, a thread computes some while it waits for others."""
    each = 8 if itemsize >= 2 else 16
    if type(total) is int and total <= FILLING * 32 * each:  # small: fewer points a thread, more threads
        sizes = [(128, 4), (256, 4)] if total <= FILLING * 128 else [(256, 4), (512, 4)]
    else:
        sizes = [(128 * each, 4), (64 * each, 4), (256 * each, 8), (256 * each, 4)]
        if type(total) is int:
            while total < sizes[0][0] * FILLING and sizes[0][0] > 256:
                sizes.insert(0, (sizes[0][0] // 2, 4))
        if cost >= _HEAVY and type(total) is int and total >= _MANY_POINTS:
            sizes.insert(0, sizes.pop())
    return _distinct(Shape((("XBLOCK", n),), warps, 1, blocks_of(total, n)) for n, warps in sizes)


def in_tiles(batch: Index, down: Index, across: Index, itemsize: int) -> tuple[Shape, ...]:
    """For tiles in which some values lie along one side, and others along the other one."""
    sides = [(64, 64, 8), (32, 64, 4), (64, 32, 4), (32, 32, 4)] if itemsize >= 4 else [(64, 64, 4), (64, 128, 8)]
    found = []
    for y, x, warps in sides:
        y, x = min(y, _side(down)), min(x, _side(across))
        programs = batch * blocks_of(down, y) * blocks_of(across, x)
        found.append(Shape((("YBLOCK", y), ("XBLOCK", x)), min(warps, warps_for(x * y, 4)), 1, programs))
    return _distinct(found)


def _side(extent: Index) -> int:
    return power(extent) if type(extent) is int else 64


def is_held(points: Index, reads: int, itemsize: int, exponentials: bool) -> bool:
    """Whether the points of a row, of each of which so many values are read, stay in registers."""
    heavy = reads > FEW_READS or (exponentials and itemsize <= 2)
    return type(points) is int and points <= (HEAVY_ROW if heavy else LONGEST_ROW)


def held_rows(rows: Index, points: int, itemsize: int) -> tuple[Shape, ...]:
    """For rows that are in registers as a whole: several short ones, or a long one, in a program.

    Of short rows, a program has few, so that many are in flight.  Of a long one, a thread has 64 bytes:
    with more threads only one program would fit on a multiprocessor, with fewer the registers would not do.
    """
    block = power(points)
    if block > 1024:
        each = 64 // max(itemsize, 2)
        return _distinct(_rows(rows, 1, block, warps_for(block, n)) for n in (each, each // 2, each * 2))
    found = []
    for wanted in (1024, 2048, 4096) if itemsize <= 2 else (2048, 1024, 4096):
        beside = max(1, wanted // block)
        if type(rows) is int:
            while beside > 1 and rows < beside * FILLING:
                beside //= 2
        found += [_rows(rows, beside, block, warps_for(beside * block, each)) for each in (16, 8)]
    return _all_alike(found)


def reads_ahead(rows: Index, points: int, itemsize: int) -> bool:
    """Whether rows are so long that one program fills a multiprocessor, which would wait for each row."""
    is_one = LONGEST_ROW < points <= LONGEST_AHEAD and itemsize == 2
    return is_one and type(rows) is int and rows >= FILLING


def ahead(points: int) -> tuple[Shape, ...]:
    """For rows that are held, and walked by a program on each multiprocessor."""
    block = power(points)
    return tuple(Shape((("RBLOCK", block),), warps, 1, MULTIPROCESSORS) for warps in (16, 32))


def held_columns(columns: Index, points: int, itemsize: int, passes: int) -> tuple[Shape, ...] | None:
    """For columns that are in registers as a whole, some adjacent ones in a program; None if they are too long.

    Long ones leave room for few side by side, of each row of which little is read at once.  That is worth it only where
    a later pass would read everything again, and not from the cache.
    """
    block = power(points)
    if block > 1024:
        return None
    again = passes > 1 and points * _COLUMNS * itemsize * FILLING > _CACHE
    if not again and block * _COLUMN_BYTES > _HELD_COLUMNS * itemsize * min(passes, 2):
        return None
    found = []
    for wanted in (_HELD_COLUMNS, 2048, 8192):
        beside = _beside(columns, max(16, min(64, wanted // block)), itemsize, _LEAST_POINTS // block)
        found.append(_rows(columns, beside, block, warps_for(beside * block, 16)))
    return _all_alike(found)


def walked_rows(rows: Index, points: Index, itemsize: int, passes: int, exponentials: bool) -> tuple[Shape, ...]:
    """For rows that are walked block by block, ``passes`` times.

    Where a later pass reads again what one before has read, one large program on each multiprocessor is best: the rows
    of several would not be in the second cache any more.  Sums of ``exponentials`` are scaled after each turn, so that
    a row is one turn if it can be.
    """
    sizes = [(4096, 8), (2048, 8), (4096, 16), (8192, 16)]
    if type(rows) is int and rows <= MULTIPROCESSORS:
        sizes = [(8192, 16), (4096, 16), (8192, 32), (4096, 8)]
    elif passes > 1 and type(points) is int and points * itemsize * 8 * MULTIPROCESSORS > _CACHE:
        sizes = [(16384, 32), (8192, 32), (4096, 16), (4096, 8)]
        if exponentials and power(points) == _LONGEST_TURN:
            sizes.insert(0, (_LONGEST_TURN, 32))
    if type(points) is int:
        sizes = [(block, warps) for block, warps in sizes if block < 2 * points] or [(power(points), 4)]
    elif (usual := index.usual(points)) is not None and power(usual) < sizes[0][0]:
        block = max(power(usual), _SHORTEST_TURN)
        sizes = [(block, warps_for(block, each)) for each in (16, 8, 32)]
    return _distinct(_rows(rows, 1, block, warps) for block, warps in sizes)


def _beside(columns: Index, beside: int, itemsize: int, least: int = 1) -> int:
    """So many adjacent columns at most: fewer where there would be too few programs, but not less than ``least`` or
    than is read at once."""
    if type(columns) is int:
        beside = min(beside, power(columns))
    usual = index.usual(columns)
    while (
        usual is not None
        and usual < beside * MULTIPROCESSORS
        and beside > least
        and beside * itemsize > _LEAST_COLUMN_BYTES
    ):
        beside //= 2
    return beside


def walked_columns(columns: Index, points: Index, cost: int, itemsize: int) -> tuple[Shape, ...]:
    """For columns that are walked block by block, some adjacent ones in a program; an element takes about ``cost``
    instructions."""
    found = []
    are_many = (index.usual(columns) or 0) > 2 * _COLUMNS * FILLING
    beside = 2 * _COLUMNS if are_many else _COLUMNS  # fewer at a time are read less well, but by more programs
    sizes = [(beside, 2048, 4), (beside, 1024, 4), (_COLUMNS, 2048, 4), (2 * _COLUMNS, 2048, 8)]
    if cost >= _HEAVY:
        sizes = [(2 * _COLUMNS, 4096, 8), (2 * _COLUMNS, 2048, 8), (_COLUMNS, 2048, 8), (4 * _COLUMNS, 2048, 8)]
    for beside, both, warps in sizes:
        beside = _beside(columns, beside, itemsize)
        block = both // beside
        if (usual := index.usual(points)) is not None:
            block = min(block, power(usual) if type(points) is int else max(power(usual), 16))
        found.append(_rows(columns, beside, block, min(warps, warps_for(beside * block, 4))))
    return _all_alike(found)


def scanned_rows(rows: Index, points: Index) -> tuple[Shape, ...]:
    """For running sums along rows: a block is scanned, and the next one goes on from there."""
    usual = index.usual(points)
    block = min(power(points), 2048) if type(points) is int else min(max(power(usual or 1024), _SHORTEST_TURN), 1024)
    return (held_rows(rows, block, 8)[0],)


_TILES = (
    (128, 128, 64, 8, 3), (64, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 64, 64, 4, 5), (128, 128, 64, 4, 4),
    (64, 256, 64, 4, 3), (128, 256, 64, 8, 3), (256, 128, 64, 8, 3), (256, 64, 64, 8, 3), (128, 128, 32, 4, 4),
    (64, 32, 64, 4, 6), (128, 32, 64, 4, 5), (64, 16, 128, 4, 6), (64, 64, 128, 4, 3),
)  # fmt: skip
"""Rows, columns and terms of blocks, warps and stages, which are good for products of some shape on an H200."""
_SHARED = 227 * 1024
"""So many bytes of shared memory a program has on an H100."""


def in_tiles_of_products(rows: int, columns: int, depth: int, itemsize: int) -> tuple[Shape, ...]:
    """For a product of matrices: large tiles read less, small ones are enough for all multiprocessors, and suit few
    terms."""
    found = []
    for y, x, k, warps, stages in _TILES:
        if x <= max(64, power(columns)) and y <= max(64, power(rows)):
            shape = _tiles(rows, columns, depth, (y, x, k), warps, stages)
            if (y + x) * dict(shape.blocks)["KBLOCK"] * itemsize * stages <= _SHARED:
                found.append(shape)

    def programs(y: int, x: int) -> int:
        return -(-rows // y) * -(-columns // x)

    best = (128, 128)
    if programs(64, 128) < MULTIPROCESSORS:
        best = (64, 64)
    elif columns <= 64 or depth <= 64:
        best = (128, 64)
    elif programs(128, 128) < 80:
        best = (64, 128)

    def is_other(shape: Shape) -> bool:
        return tuple(size for _, size in shape.blocks[:2]) != best

    return _distinct(sorted(found, key=is_other))


def small_tiles_of_products(rows: int, columns: int, depth: int) -> Shape:
    """For products that share the multiprocessors with others."""
    return _tiles(rows, columns, depth, (64, 64, 64), 4, 5)


def _tiles(rows: int, columns: int, depth: int, sides: tuple[int, int, int], warps: int, stages: int) -> Shape:
    y, x, k = sides
    blocks = ("YBLOCK", y), ("XBLOCK", x), ("KBLOCK", min(k, max(16, power(depth))))
    return Shape(blocks, warps, stages, -(-rows // y) * -(-columns // x))


def parts(statement: Statement, around: Surroundings) -> int:
    """Into how many parts a reduction is split, so that all multiprocessors have something to do; see
    :data:`~...schedule.splits.PartsOf`."""
    kept, reduced = index.usual(statement.kept_size), index.usual(statement.reduced_size)
    if not kept or not reduced:
        return 1
    read = [(b, at) for b, at in statement.value.loads if not index.free(at).isdisjoint(statement.reduced)]
    if not read:
        return 1
    by_columns = any(
        type(step) is int and step == 1
        for _, at in read
        for v in statement.kept
        if (step := index.coefficient(at, v)) is not None
    )
    # Of few columns, narrow blocks: else there are so many parts that the second stage takes long.
    beside = min(2 * _COLUMNS if kept >= 4 * _COLUMNS else _COLUMNS, power(kept)) if by_columns else 1
    programs = -(-kept // beside)
    held = reduced * beside * max(b.dtype.itemsize for b, _ in read) * (2 if by_columns else 1)
    if programs >= FILLING:
        return 1
    work = 0 if by_columns else reduced * (around.cost() + (_MOMENTS if around.is_of_moments() else 0))
    if held < _SPLIT_BYTES and work < _PASS_COST:
        return 1
    if not by_columns:
        idle = (FILLING - programs) / FILLING
        short = reduced <= LONGEST_ROW or (held * idle < _PASS_BYTES and work * idle < _PASS_COST)
        if short and around.feeds_a_pass():
            return 1
    wanted = -(-2 * FILLING // programs)
    if by_columns and around.cost() < _HEAVY:
        wanted = max(wanted, min(2 * wanted, FILLING))  # more parts would take the second stage longer
    most = max(held // _PART_BYTES, work // _PART_COST)
    if by_columns and kept <= _FEW_COLUMNS:
        most = max(most, reduced // _LEAST_ROWS)
    return max(1, min(wanted, most))


def _rows(rows: Index, beside: int, block: int, warps: int) -> Shape:
    return Shape((("XBLOCK", beside), ("RBLOCK", block)), warps, 1, blocks_of(rows, beside))


def _all_alike(found: Iterable[Shape]) -> tuple[Shape, ...]:
    """Those that are printed alike: one row in a program, or several, as the first has."""
    kept = list(_distinct(found))
    return tuple(s for s in kept if (dict(s.blocks)["XBLOCK"] == 1) == (dict(kept[0].blocks)["XBLOCK"] == 1))


def _distinct(found: Iterable[Shape]) -> tuple[Shape, ...]:
    return tuple(dict.fromkeys(found))
