"""The C functions of heapq; nsmallest, nlargest and merge are Python of heapq itself and call them.

The originals keep the items in the storage of the list, whatever a subclass of list overrides, and swap two items at a
time: a comparison that raises leaves the heap as the originals leave it.
"""

import _heapq
import heapq
import operator

from .tables import polyfill

_get = list.__getitem__
_set = list.__setitem__
_size = list.__len__


def _after(a, b):
    return b < a


def _check(name, heap):
    if not isinstance(heap, list):
        raise TypeError(f"{name}() argument must be list, not {_class_name(heap)}")


def _check_first(name, heap):
    if not isinstance(heap, list):
        raise TypeError(f"{name}() argument 1 must be list, not {_class_name(heap)}")


def _class_name(value):
    return "None" if value is None else type(value).__name__


def _swap(heap, i, j):
    item = _get(heap, i)
    _set(heap, i, _get(heap, j))
    _set(heap, j, item)


def _sift_down(heap, start, position, less):
    """Move the item at `position` towards `start`, past each parent that it belongs before."""
    size = _size(heap)
    if position >= size:
        raise IndexError("index out of range")
    item = _get(heap, position)
    while position > start:
        parent = (position - 1) >> 1
        before = less(item, _get(heap, parent))
        if _size(heap) != size:
            raise RuntimeError("list changed size during iteration")
        if not before:
            return
        _swap(heap, parent, position)
        item = _get(heap, parent)  # the comparison may have replaced it
        position = parent


def _sift_up(heap, position, less):
    """Move the item at `position` down to a leaf, then up to where it belongs, in the order of the original."""
    start = position
    size = _size(heap)
    if position >= size:
        raise IndexError("index out of range")
    while position < size >> 1:
        child = 2 * position + 1
        if child + 1 < size:
            if not less(_get(heap, child), _get(heap, child + 1)):
                child += 1
            if _size(heap) != size:
                raise RuntimeError("list changed size during iteration")
        _swap(heap, child, position)
        position = child
    _sift_down(heap, start, position, less)


def _pop(heap, less):
    if not _size(heap):
        raise IndexError("index out of range")
    last = list.pop(heap)
    if not _size(heap):
        return last
    first = _get(heap, 0)
    _set(heap, 0, last)
    _sift_up(heap, 0, less)
    return first


def _replace(heap, item, less):
    if not _size(heap):
        raise IndexError("index out of range")
    first = _get(heap, 0)
    _set(heap, 0, item)
    _sift_up(heap, 0, less)
    return first


def _order(heap, less):
    for position in range((_size(heap) >> 1) - 1, -1, -1):
        _sift_up(heap, position, less)


@polyfill(heapq.heappush)
def heappush(heap, item, /):
    _check_first("heappush", heap)
    list.append(heap, item)
    _sift_down(heap, 0, _size(heap) - 1, operator.lt)


@polyfill(heapq.heappop)
def heappop(heap, /):
    _check("heappop", heap)
    return _pop(heap, operator.lt)


@polyfill(heapq.heapreplace)
def heapreplace(heap, item, /):
    _check_first("heapreplace", heap)
    return _replace(heap, item, operator.lt)


@polyfill(heapq.heappushpop)
def heappushpop(heap, item, /):
    _check_first("heappushpop", heap)
    if not _size(heap):
        return item
    if not _get(heap, 0) < item:
        return item
    return _replace(heap, item, operator.lt)


@polyfill(heapq.heapify)
def heapify(heap, /):
    _check("heapify", heap)
    _order(heap, operator.lt)


# heapq.nlargest, nsmallest and merge call these; they are public only from Python 3.14 on.


@polyfill(_heapq._heappop_max)
def heappop_max(heap, /):
    _check("_heappop_max", heap)
    return _pop(heap, _after)


@polyfill(_heapq._heapreplace_max)
def heapreplace_max(heap, item, /):
    _check_first("_heapreplace_max", heap)
    return _replace(heap, item, _after)


@polyfill(_heapq._heapify_max)
def heapify_max(heap, /):
    _check("_heapify_max", heap)
    _order(heap, _after)
