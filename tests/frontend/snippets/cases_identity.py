"""The ids of objects, tracebacks, objects as attributes of classes, and functions that substitute and copy."""

import copy
import os
import re
import string
import typing

import torch

from .corpus import case


@case(one_graph=True)
def case_ids_compared(x):
    y = x * 2
    z, other = y, x * 3
    return x + (id(y) == id(z)) + 2 * (id(y) == id(other)) + 4 * (id(y) != id(x)), id(x) in (id(y), id(other))


@case(one_graph=True)
def case_ids_seen(x):
    tensors = [x * 1, x * 2]
    tensors.append(tensors[0])
    seen, total = set(), 0
    for tensor in tensors:
        if id(tensor) not in seen:
            seen.add(id(tensor))
            total = total + tensor
    return total, len(seen)


class Node:
    def __init__(self, value, *parents):
        self.value, self.parents = value, parents


@case(one_graph=True)
def case_ids_of_a_graph(x):
    a = Node(x)
    b = Node(x * 2, a)
    seen, order = {}, []

    def visit(node):
        if id(node) in seen:
            return
        seen[id(node)] = len(seen)
        for parent in node.parents:
            visit(parent)
        order.append(node)

    visit(Node(x * 3, a, b, a))
    return sum(node.value for node in order), list(seen.values())


@case(one_graph=True)
def case_hash_of_a_tensor(x):
    y = x * 2
    return x + (hash(y) == hash(y)) + (hash(y) == hash(x))


@case()
def case_id_of_what_may_be_its_operand(x):
    y = x.contiguous()
    return x + (id(x) == id(y)), {id(x): 1}.get(id(y))


@case()
def case_key_that_may_be_its_operand(x):
    y = x * 2
    found = {x: 1, y: 2}
    same = torch.broadcast_tensors(y)[0], x.contiguous(), y.float(), y.view(3, 4)
    return y, [found.get(each) for each in same], same[0] in {y}


@case()
def case_id_of_an_argument_as_a_key(x):
    seen = {id(x)}
    return x + (id(x) in seen)


@case()
def case_list_within_itself_at_a_break(x):
    loop = [x]
    loop.append(loop)
    torch._dynamo.graph_break()
    return loop[0] + len(loop[1][1])


class Copied:
    def __init__(self, value, other=None):
        self.value, self.other = value, other

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        made = memo[id(self)] = Copied(self.value + 1)
        made.other = copy.deepcopy(self.other, memo)
        made.known = memo.get(id(self)) is made
        return made


RING = Copied(1, Copied(2))
RING.other.other = RING


@case(one_graph=True)
def case_memo_of_a_copy(x):
    made = copy.deepcopy(RING)
    return x * made.value, made.other.value, made.other.other is made, made.known


@case(one_graph=True)
def case_traceback_that_is_there(x):
    try:
        raise ValueError("a")
    except ValueError as error:
        found = error.__traceback__ is not None
    bare = ValueError("b")
    return x + found, bare.__traceback__, bare.with_traceback(None).__traceback__


@case(one_graph=True)
def case_traceback_passed_on(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as error:
            raise ValueError("b").with_traceback(error.__traceback__) from None
    except ValueError as error:
        return x * 2, str(error)


@case(one_graph=True)
def case_substituted_by_a_function(x):
    texts = (
        re.sub(r"\d", lambda m: str(int(m[0]) + 1), "a1b2"),
        re.sub("x*", lambda m: "-", "abxd"),
        re.subn("(a)|b", lambda m: m[1] and "q", "abab", count=3),
        re.compile(b"a").sub(lambda m: b"zz", b"bab"),
        string.Template("$a b $$").safe_substitute(a=3),
        [m.span() for m in re.finditer("a|b", "abc")],
    )
    return x * 2, texts


@case()
def case_substituted_by_no_text(x):
    try:
        re.sub("a", lambda m: 3, "bab")
    except TypeError as error:
        return x * 2, str(error)


class Path:
    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return self.path


@case()
def case_paths(x):
    messages = []
    for path in (3, Path(4)):
        try:
            os.fspath(path)
        except TypeError as error:
            messages.append(str(error))
    return x * 2, os.path.join("a", Path("b")), os.path.dirname("a/b"), os.fspath(b"c"), messages


@case(one_graph=True)
def case_constants_and_protocols(x):
    asked = (3, typing.SupportsInt), ("a", typing.SupportsFloat), (None, typing.SupportsIndex)
    return x * 2, [isinstance(value, protocol) for value, protocol in asked]
