"""Iterators from outside that stand elsewhere in each call: one graph serves all places."""

import pytest
import torch

import torchmux


def row(number):
    return torch.full((3,), float(number))


def table():
    return [row(number) for number in range(8)]


def numbered():
    return dict(enumerate(table()))


@pytest.mark.parametrize(
    ("make", "graphs"),
    [
        (lambda: iter(table()), 2),
        (lambda: iter(tuple(table())), 2),
        (lambda: iter(numbered().values()), 2),
        (lambda: iter(range(2, 30, 3)), 3),  # the second number is a constant, too
        (lambda: enumerate(table(), 2), 2),
        (lambda: zip(table(), table(), strict=True), 2),
        (lambda: map(torch.neg, iter(table())), 2),
        (lambda: iter(numbered().items()), 3),
    ],
)
def test_the_first_place_and_all_others(make, graphs):
    def step(x, iterator):
        found = next(iterator)
        for part in found if isinstance(found, tuple) else (found,):
            x = x * 2 + part
        return x

    compiled = torchmux.compile(step, backend="eager", fullgraph=True)
    ours, real = make(), make()
    for number in range(6):
        assert torch.equal(compiled(row(number), ours), step(row(number), real))
    assert repr(list(ours)) == repr(list(real))
    assert torchmux.report(compiled).graph_count == graphs


def test_the_end_of_an_iterator_that_moves():
    def rest(x, iterator):
        return x + sum(iterator), next(iterator, None)

    def step(x, iterator, rows):
        try:
            return x * next(iterator)
        except StopIteration:
            rows.append(x)  # which an iterator at its end does not see
            return rest(x, iterator)

    def grows(x, iterator, rows):
        rows.append(x)
        return x + next(iterator)

    for function in (step, grows):
        compiled = torchmux.compile(function, backend="eager")
        sides = [(each, iter(rows), rows) for each, rows in ((compiled, table()[:3]), (function, table()[:3]))]
        for number in range(6):
            found, expected = (each(row(number), iterator, rows) for each, iterator, rows in sides)
            assert repr(found) == repr(expected)
        assert repr(list(sides[0][1])) == repr(list(sides[1][1]))


def test_a_dictionary_that_changes_under_its_iterator():
    entries = numbered()
    iterator = iter(entries.values())
    compiled = torchmux.compile(lambda x: x + next(iterator), backend="eager")
    assert [compiled(row(1))[0].item() for _ in range(4)] == [1, 2, 3, 4]
    entries["new"] = row(1)
    with pytest.raises(RuntimeError, match="changed size"):
        compiled(row(1))
