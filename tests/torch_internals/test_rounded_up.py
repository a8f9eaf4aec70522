"""Sizes that are rounded up and divided: short, and the same numbers."""

from __future__ import annotations

import pytest

from torchmux import torch_internals as ti


def padded(n, multiple=4):
    return n + (multiple - n % multiple) % multiple


PROGRAMS = {
    "a square by a side": (lambda h, w: (h // 3) ** 2 // (h // 3), "(h//3)"),
    "a product by factors": (lambda h, w: h * w * h * 6 // (w * h), "6*h"),
    "a sum by a factor": (lambda h, w: (h * h + h * w) // h, "h + w"),
    "a product that has too few": (lambda h, w: (h * w) // (w * w), "((h*w)//(w**2))"),
    "a power by its base": (lambda h, w: h**w // h, None),
    "rounded up": (lambda h, w: padded(h), "4*(((h + 3)//4))"),
    "by a negative number": (lambda h, w: w + h + -h % 8, "w + 8*(((h + 7)//8))"),
    "rounded down": (lambda h, w: h - h % 4, "4*((h//4))"),
    "more than rounded down": (lambda h, w: h + (4 - h % 4) + 2 * w, "2*w + 4*((h//4)) + 4"),
    "twice rounded down": (lambda h, w: 2 * h - 2 * ((h + 1) % 6), None),
    "half of it, rounded up": (lambda h, w: padded((h + 1) // 2), None),
    "by another number": (lambda h, w: h + (4 - h % 8) % 8, None),
    "of another size": (lambda h, w: w + (4 - h % 4) % 4, None),
    "windows": (lambda h, w: padded(h) // 4, "((h + 3)//4)"),
    "rows of a window": (lambda h, w: padded(h) // (padded(h) // 4), "4"),
    "windows of both sides": (lambda h, w: padded(h) * padded(w, 7) // (padded(h) // 4), None),
    "the rest of both": (lambda h, w: padded(h) + w - padded(w), None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_short_and_equal(name) -> None:
    program, text = PROGRAMS[name]
    env = ti.fake_tensor_mode(symbolic=True).shape_env
    symbols = {}
    for variable, hint in (("h", 37), ("w", 22)):
        source = ti.named_source(variable)
        symbol = env.create_symbol(hint, source, dynamic_dim=ti.dim_kinds().DYNAMIC, constraint_dim=None)
        symbols[variable] = symbol, env.create_symintnode(symbol, hint=hint, source=source)
    found = program(symbols["h"][1], symbols["w"][1])
    expr = found.node.expr
    if text is not None:
        assert str(expr).replace(str(symbols["h"][0]), "h").replace(str(symbols["w"][0]), "w") == text
    for h in range(3, 40):
        for w in (2, 7, 11, 16, 40):
            values = {symbols["h"][0]: h, symbols["w"][0]: w}
            values = {symbol: value for symbol, value in values.items() if symbol in expr.free_symbols}
            assert ti.rebuild_symbolic(expr, values) == program(h, w)
