"""The statements that random programs are made of: text with ``<kind>`` where an expression of that kind goes."""

from .random_forms import forms

WORDS = ("a", "b", "key", "n")
ERRORS = ("ValueError", "KeyError", "Oops", "Worse", "IndexError", "ZeroDivisionError")
CAUGHT = (*ERRORS, "(KeyError, IndexError)", "LookupError", "Exception", "ArithmeticError", "(Oops, TypeError)")

CHANGES = forms(
    """
    LOG.append(<int>)
    LOG.append((<text>, <int>))
    COUNTER = <int>
    COUNTER += 1
    STATE['n'] = <int>
    STATE[<word>] = <int>
    del STATE[<word>]
    <ints>.append(<int>)
    <ints>.insert(0, <int>)
    <ints>.extend(<pair>)
    <ints>[0] = <int>
    <ints>[1:2] = <ints>[:3]
    del <ints>[0]
    <ints>.sort()
    <ints>.reverse()
    <ints>.remove(<int>)
    <ints>.clear()
    items.append(<int>)
    items[<index>] = <int>
    items.pop()
    <table>[<word>] = <int>
    <table>.update(a=<int>)
    <table>.setdefault(<word>, <int>)
    del <table>[<word>]
    table[<word>] = <int>
    table.update(<table>)
    table.clear()
    <thing>.n = <int>
    thing.n += <int>
    thing.t = <tensor>
    thing.t += <int>
    <thing>.fresh = <int>
    thing.double = <int>
    del thing.items
    thing.items.append(<int>)
    <thing>[<index>] = <int>
    <thing>.bump()
    setattr(thing, 'other', <tensor>)
    <tensor>.add_(<int>)
    x.mul_(<int>)
    x[<index>] = <int>
    y[1:] += x[1:]
    <tensor>[<index>] += <int>
    x.copy_(<tensor>)
    <tensor>.zero_()
    <group>.add(<int>)
    <group>.discard(<int>)
    <group>.update(<ints>)
    <tensors>.append(<tensor>)
    <point>.x = <int>
    <point>.y += <int>
    table.popitem()
    <ints>.pop(<int>)
    <generator>.send(None)
    <generator>.close()
    LOG.extend(<ints>)
    x.data.add_(1)
    LOG.append(<tensor>)
    LOG.append(<ints>)
    thing.items = <ints>
    delattr(thing, 'n')
    thing.helper = lambda q, b=1: q
    LOG.append(<thing>)
    Slotted(<int>).b
    thing.table = <table>
    STATE.update(b=<int>)
    LOG.append(lambda: <int>)
    thing.callback = <to_int>
    Fixed(1).a = <int>
    x.attribute = <int>
    LOG.append(sorted(locals())[:2])
    print(end='')
    <to_int>(<int>)
    global_like = [q for q in <ints>]
    <queue>.append(<int>)
    <queue>.appendleft(<int>)
    <queue>.rotate(<int>)
    <queue>.extend(<ints>)
    <counts>[<int>] += 1
    <counts>.update(<ints>)
    <counts>.subtract(<ints>)
    thing.queue = <queue>
    thing.queue.append(<int>)
    thing.lazy = <lazy>
    thing.lazy.value = <int>
    <lazy>.value += <int>
    del <lazy>.value
    layer.calls += 1
    layer.scale = <int>
    layer.buffer.add_(<int>)
    layer.buffer = <tensor>
    layer.weight.data.mul_(2)
    layer.extra = <ints>
    layer.training = <bool>
    thing.__dict__['n'] = <int>
    vars(thing).update(fresh=<int>)
    vars(<thing>).pop('items', None)
    thing.n, thing.items = <int>, <ints>
    items[0], items[-1] = items[-1], items[0]
    (items[0], *thing.items) = <ints>
    items[::2] = [<int>] * len(items[::2])
    del items[-1:]
    items[:] = (items * 2)[:6]
    items[:] = <ints>[:5]
    table[<word>] += <int>
    table[<word>] = table.get(<word>, 0) + 1
    table |= <table>
    x += <tensor>
    x[1:3] = <int>
    x[0], x[1] = x[1].clone(), x[0].clone()
    x.view(2, 2)[0] = <int>
    x.t_()
    <tensor>.sub_(<tensor>[0])
    y[y > <int>] = <int>
    x.grad = None
    y.copy_(x).add_(1)
    thing.t[0] = <int>
    thing.t.mul_(<int>)
    GLOBAL_TENSOR.add_(1)
    heapq.heappush(items, <int>)
    bisect.insort(items, <int>)
    LOG.append(repr(<thing>))
    LOG.append(str(<table>))
    LOG.append(thing)
    LOG.append(vars(thing))
    LOG.append(<queue>)
    LOG.append(<generator>)
    LOG.append(thing.bump)
    LOG.pop()
    LOG.clear()
    Registry.last = <int>
    Thing.kind = <text>
    global_counter(<int>)
    torch.manual_seed(<int>)
    torch.set_grad_enabled(<bool>)
    <tensor>.sum().backward()
    thing += thing
    thing.n = thing
    thing.peer = Thing(<int>, thing.t)
    thing.peer.peer = thing
    thing.peer.n += 1
    del thing.t
    del thing.fresh
    thing.fresh = <tensor>
    <point>.z = <int>
    opaque(thing).n += 1
    opaque(items).append(<int>)
    opaque(table)[<word>] = <int>
    opaque(x).add_(1)
    """
)

AUGMENTED = {
    "int": (("+=", "-=", "^=", "//="), "int"),
    "tensor": (("+=", "*=", "-="), "tensor"),
    "ints": (("+=",), "pair"),
    "text": (("+=",), "text"),
    "table": (("|=",), "table"),
    "group": (("|=", "&=", "-="), "group"),
    "number": (("+=", "*="), "number"),
}

UNPACKS = (
    ("{a}, {b} = <pair>", ("int", "int")),
    ("{a}, {b} = <int>, <tensor>", ("int", "tensor")),
    ("{a}, *{b} = <ints>", ("int", "ints")),
    ("*{a}, {b} = <ints>", ("ints", "int")),
    ("{a}, {b} = <tensors>", ("tensor", "tensor")),
    ("({a}, _), {b} = <pair>, <ints>", ("int", "ints")),
    ("[{a}, {b}] = <text>", ("text", "text")),
    ("{a} = {b} = <ints>", ("ints", "ints")),
    ("{a} = {b} = <tensor>", ("tensor", "tensor")),
    ("{a}, {b} = <tensor>.max(0)", ("tensor", "tensor")),
    ("{a}, {b} = <tensor>[:2].relu()", ("tensor", "tensor")),
    ("{a}, {b} = (lambda: (<tensor>, <int>))()", ("tensor", "int")),
)

# header, targets with their types, and whether the container may grow while it is walked
LOOPS = (
    ("T1 in range(3)", {"T1": "int"}, False),
    ("T1 in range(<int> % 4)", {"T1": "int"}, False),
    ("T1 in <ints>", {"T1": "int"}, True),
    ("T1 in items", {"T1": "int"}, True),
    ("T1, T2 in enumerate(<ints>)", {"T1": "int", "T2": "int"}, True),
    ("T1, T2 in <table>.items()", {"T1": "text", "T2": "int"}, True),
    ("T1 in table", {"T1": "text"}, True),
    ("T1 in list(<table>)", {"T1": "text"}, False),
    ("T1, T2 in zip(<ints>, <tensors>)", {"T1": "int", "T2": "tensor"}, True),
    ("T1 in <tensors>", {"T1": "tensor"}, True),
    ("T1 in reversed(<ints>)", {"T1": "int"}, True),
    ("T1 in numbers(<int>)", {"T1": "int"}, False),
    ("T1 in <generator>", {"T1": "int"}, True),
    ("T1 in sorted(<group>)", {"T1": "int"}, False),
    ("T1 in (<int>, <int>)", {"T1": "int"}, False),
    ("T1 in <text>", {"T1": "text"}, False),
    ("T1 in (q * 2 for q in <ints>)", {"T1": "int"}, True),
    ("T1 in map(lambda q: q + <int>, <ints>)", {"T1": "int"}, True),
    ("T1 in itertools.islice(<generator>, 3)", {"T1": "int"}, False),
    ("T1, T2 in itertools.product(<pair>, <pair>)", {"T1": "int", "T2": "int"}, False),
    ("T1 in <tensor>", {"T1": "number"}, False),
    ("T1 in iter(thing.bump, <int>)", {"T1": "int"}, True),
    ("thing.n in <pair>", {}, False),
    ("T1, (T2, T3) in enumerate(zip(<ints>, <tensors>))", {"T1": "int", "T2": "int", "T3": "tensor"}, True),
    ("T1, *T2 in [<ints> or [1], <pair>]", {"T1": "int", "T2": "ints"}, False),
    ("items[0] in <ints>", {}, True),
    ("T1 in <queue>", {"T1": "int"}, True),
    ("T1, T2 in <counts>.items()", {"T1": "text", "T2": "int"}, True),
    ("T1 in table.values()", {"T1": "int"}, True),
    ("T1, T2 in sorted(table.items())", {"T1": "text", "T2": "int"}, False),
    ("T1 in <thing>", {"T1": "int"}, True),
    ("T1 in itertools.chain(<generator>, <ints>)", {"T1": "int"}, True),
    ("T1, T2 in itertools.combinations(<ints>, 2)", {"T1": "int", "T2": "int"}, True),
    ("T1 in (thing.bump() for _ in range(3))", {"T1": "int"}, False),
    ("T1, T2 in layer.named_parameters()", {"T1": "text", "T2": "tensor"}, False),
    ("T1 in Lazy(<int>)", {"T1": "int"}, True),
)

WITHS = forms(
    """
    Manager('a')
    Manager(<text>) as NAME
    Manager('b', (KeyError, Oops))
    Manager('c', ArithmeticError), Manager('d') as NAME
    region('r') as NAME
    region(<text>)
    torch.no_grad()
    torch.enable_grad()
    contextlib.suppress(LookupError)
    contextlib.nullcontext('n') as NAME
    contextlib.closing(Manager('e')) as _
    Stack() as stack, stack.enter_context(region('s')) as NAME
    """
)

FAILURES = forms(
    """
    raise <error>(<text>)
    raise Oops
    assert <bool>, <text>
    assert <int> != <int>
    raise Worse(<int>, <text>)
    if <bool>: raise <error>(<int>)
    if <bool>: raise KeyError(<text>) from Oops(<int>)
    if <bool>: raise Oops(<text>) from None
    missing_name
    thing.missing
    <ints>['a']
    if <bool>: <int> + <text>
    None.attribute
    <int>()
    if <bool>: x + torch.ones(3)
    if <bool>: x.missing()
    """
)

MATCHES = (
    ("<int>", (("0", {}), ("1 | 2", {}), ("M if M > 4", {"M": "int"}), ("_", {}))),
    (
        "<ints>",
        (("[]", {}), ("[M]", {"M": "int"}), ("[M, *N] if M", {"M": "int", "N": "ints"}), ("[_, *_, M]", {"M": "int"})),
    ),
    ("<table>", (("{'a': M}", {"M": "int"}), ("{'key': int() as M, **N}", {"M": "int", "N": "table"}), ("{}", {}))),
    ("<point>", (("Point(0)", {}), ("Point(x=M, y=0)", {"M": "int"}), ("Point(M, N)", {"M": "int", "N": "int"}))),
    ("<thing>", (("Child(n=M)", {"M": "int"}), ("Thing(double=M) if M > 3", {"M": "int"}), ("Thing()", {}))),
    (
        "(<int>, <text>)",
        (("(1, _)", {}), ("(M, 'a' | 'b' as N)", {"M": "int", "N": "text"}), ("(M, N)", {"M": "int", "N": "text"})),
    ),
    ("<text>", (("'a' | 'b'", {}), ("str(M) if len(M) > 2", {"M": "text"}), ("M", {"M": "text"}))),
    ("Color(<int>)", (("Color.RED", {}), ("Color.GREEN", {}))),
)
