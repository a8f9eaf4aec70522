# ruff: noqa: E501 - a line is a program
"""Random programs over state: what is read, how it is used, and what changes between two calls.

A program reads several states of different kinds in one function, so that guards of one kind meet those of others, and
a change of one state comes while another one's compiled code is there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_HELPERS = """
class Box:
    shared = 2
    def __init__(self, value): self.value = value
    def method(self): return self.value + 1
    @property
    def twice(self): return self.value * 2
class Other(Box):
    shared = 7
    def method(self): return 70
"""


@dataclass(frozen=True)
class State:
    """``{i}`` numbers the state, so that a program can have several of a kind."""

    make: str
    reads: tuple[str, ...]
    changes: tuple[str, ...]


STATES = (
    State("g{i} = 3", ("g{i}", "globals()['g{i}']", "-g{i}"), ("g{i} = 4", "g{i} = True", "g{i} = 2.5", "g{i} += 1")),
    State("b{i} = Box(3)", ("b{i}.value", "b{i}.twice", "b{i}.method()", "b{i}.shared"),
          ("b{i}.value = 5", "b{i}.shared = 6", "b{i}.__class__ = Other", "b{i} = Other(2)", "Box.shared += 1",
           "b{i}.method = lambda: 9", "b{i}.__dict__ = dict(value=8)", "Box.twice = property(lambda s: 11)")),
    State("d{i} = dict(a=1, b=2)", ("d{i}['a']", "len(d{i})", "sum(d{i}.values())", "d{i}.get('c', 9)", "list(d{i})"),
          ("d{i}['a'] = 5", "d{i}['c'] = 4", "d{i}['b'] = d{i}.pop('b')", "d{i} = dict(b=1, a=7)")),
    State("l{i} = [1, 2, 3]", ("l{i}[0]", "l{i}[-1]", "len(l{i})", "sum(l{i})", "max(l{i})", "2 in l{i}"),
          ("l{i}.append(7)", "l{i}[0] = 0.5", "l{i}.reverse()", "l{i} = [5]", "del l{i}[0]; l{i}.append(1)")),
    State("def f{i}(v=2, *, w=3): return v * 10 + w", ("f{i}()", "f{i}(4)", "f{i}(w=1)", "len(f{i}.__name__)"),
          ("f{i}.__defaults__ = (5,)", "f{i}.__kwdefaults__ = dict(w=6)", "f{i}.__code__ = (lambda v=0, *, w=0: v - w).__code__",
           "f{i}.__name__ = 'longer'", "f{i} = lambda v=1, w=1: v + w")),
    State("def make{i}():\n    c = 3\n    def read(): return c\n    def write(n):\n        nonlocal c\n        c = n\n    return read, write\n"
          "r{i}, w{i} = make{i}()", ("r{i}()", "r{i}() + 1"), ("w{i}(4)", "w{i}(2.5)", "w{i}(True)", "r{i}, w{i} = make{i}()")),
    State("t{i} = torch.ones(2)", ("t{i}", "t{i} + 1", "t{i}.sum()", "t{i}.requires_grad", "t{i}.shape[0]", "t{i}.dim()"),
          ("t{i} = torch.full((2,), 3.0)", "t{i}.add_(1)", "t{i} = torch.ones(1, 2)", "t{i} = torch.ones(2, dtype=torch.float64)",
           "t{i} = torch.ones(4)[::2]", "t{i}.data = torch.full((2,), 5.0)", "t{i} = torch.ones(2, requires_grad=True)")),
    State("m{i} = torch.nn.Linear(2, 2)\ntorch.nn.init.ones_(m{i}.weight); torch.nn.init.zeros_(m{i}.bias)",
          ("m{i}(x)", "m{i}.weight.sum()", "m{i}.training", "len(list(m{i}.parameters()))"),
          ("m{i}.eval()", "m{i}.bias = None", "m{i}.weight = torch.nn.Parameter(torch.full((2, 2), 2.0))", "m{i}.weight.data.mul_(2)",
           "h{i} = m{i}.register_forward_hook(lambda m, a, o: o * 3)", "m{i}.forward = lambda x: x * 6", "m{i}.requires_grad_(False)")),
    State("n{i} = types.ModuleType('n{i}'); n{i}.k = 3", ("n{i}.k", "getattr(n{i}, 'q', 4)", "hasattr(n{i}, 'q')"),
          ("n{i}.k = 5", "n{i}.q = 6", "n{i}.__getattr__ = lambda name: 7", "n{i} = types.ModuleType('p'); n{i}.k = 8")),
    State("s{i} = {1, 2}", ("len(s{i})", "3 in s{i}", "sum(sorted(s{i}))"), ("s{i}.add(3)", "s{i}.discard(1)", "s{i} = {True, 4}")),
    State("src{i} = compile('def h(v): return v * k', 's', 'exec')\nna{i} = dict(k=2); nb{i} = dict(k=5)\n"
          "exec(src{i}, na{i}); exec(src{i}, nb{i}); h{i} = na{i}['h']", ("h{i}(3)", "h{i}(x)"),
          ("h{i} = nb{i}['h']", "na{i}['k'] = 7", "h{i} = na{i}['h']", "nb{i}['k'] = 9")),
    State("v{i} = 0.0", ("v{i}", "math.copysign(1, v{i})", "v{i} == 0", "str(v{i})", "v{i} * -1"),
          ("v{i} = -0.0", "v{i} = 0", "v{i} = 1.5", "v{i} = float('inf')", "v{i} = False")),
)  # fmt: skip

_BODIES = (
    "    return {0}, {1}, {2}",
    "    y = x * 2\n    for _ in range(2):\n        y = y + 1\n    return y, {0}, {1}, {2}",
    "    a = {0}\n    def inner(): return a, {1}\n    return x + 1, inner(), {2}",
    "    try:\n        y = x * ({0})\n    except (TypeError, RuntimeError):\n        y = x\n    return y, {1}, {2}",
    "    if {0}:\n        return x + 1, {1}\n    return x - 1, {2}",
    "    found = [{0}, {1}]\n    with torch.no_grad():\n        y = x + 1\n    found.append({2})\n    return y, found",
    "    y = x + len(str({0}))\n    print(end='')\n    return y * 2, {1}, {2}",
    "    return [x * 2 for _ in range(2)], dict(a={0}, b={1}), ({2},)",
)


@dataclass(frozen=True)
class Program:
    text: str
    changes: tuple[str, ...]


def program(seed: int) -> Program:
    """The program of this seed: its text defines ``f``, and its changes come between calls."""
    chance = random.Random(seed)
    states = [(number, chance.choice(STATES)) for number in range(chance.randint(2, 3))]
    made = "\n".join(state.make.replace("{i}", str(number)) for number, state in states)
    reads = [chance.choice(state.reads).replace("{i}", str(number)) for number, state in (*states, *states)]
    chance.shuffle(reads)
    body = chance.choice(_BODIES)
    for place in range(3):
        body = body.replace(f"{{{place}}}", reads[place])
    changes = [
        chance.choice(state.changes).replace("{i}", str(number)) for number, state in chance.choices(states, k=5)
    ]
    return Program(f"{_HELPERS}\n{made}\ndef f(x):\n{body}\n", tuple(changes))
