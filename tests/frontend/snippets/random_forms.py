"""The forms that random programs are made of: text with ``<kind>`` where an expression of that kind goes."""

WORDS = ("a", "b", "key", "n")
PARAMETERS = {
    "x": "tensor", "y": "tensor", "n": "int", "flag": "bool", "items": "ints", "table": "table", "thing": "thing",
    "layer": "layer",
}  # fmt: skip
ERRORS = ("ValueError", "KeyError", "Oops", "Worse", "IndexError", "ZeroDivisionError")
CAUGHT = (*ERRORS, "(KeyError, IndexError)", "LookupError", "Exception", "ArithmeticError", "(Oops, TypeError)")

KINDS = (
    "int", "int", "bool", "tensor", "tensor", "tensor", "ints", "ints", "table", "text", "pair", "group", "thing",
    "tensors", "point", "number", "queue", "counts", "lazy",
)  # fmt: skip

# The first LEAVES[kind] forms of each kind, one on a line, need no further depth.
LEAVES = {
    "int": 5, "bool": 2, "tensor": 4, "ints": 4, "table": 3, "text": 4, "pair": 2, "group": 2,
    "thing": 2, "tensors": 2, "point": 2, "number": 2, "generator": 1, "to_int": 1, "to_tensor": 1,
    "layer": 2, "queue": 2, "counts": 2, "lazy": 2,
}  # fmt: skip
FILLS = {*LEAVES, *(f"plain_{kind}" for kind in LEAVES), "small", "index", "word", "error"}

_FORMS = {
    "int": """
    <small>
    <small>
    n
    COUNTER
    len(items)
    (<int> + <int>)
    (<int> - <int>)
    (<int> * <int>) % 13
    <int> // <int>
    <int> % <int>
    -<int>
    (<int> & <int>)
    (<int> ^ 3)
    len(<ints>)
    len(<table>)
    len(<text>)
    sum(<ints>)
    max(<int>, <int>)
    min(<ints>, default=<int>)
    max(<ints>, key=lambda q: (-q) % 5)
    <ints>[<index>]
    <table>[<word>]
    <table>.get(<word>, <int>)
    <table>.pop(<word>, <int>)
    <thing>.n
    <thing>.double
    <thing>.bump()
    <thing>.bump(by=<int>)
    <thing>(<int>)
    <thing>(<int>, <int>, k=<int>)
    <thing>(*<pair>)
    len(<thing>)
    <thing>[<index>]
    Thing.helper(<int>)
    <thing>.helper(<int>, b=<int>)
    <tensor>.dim()
    <tensor>.shape[0]
    <tensor>.size(0)
    <tensor>.numel()
    (<int> if <bool> else <int>)
    abs(<int>)
    sum(q * <int> for q in <ints>)
    sum(1 for q in <ints> if q > <int>)
    next(iter(<ints>), <int>)
    next(<generator>, <int>)
    <to_int>(<int>)
    (lambda q, *r, s=<int>: q + s + len(r))(*<pair>)
    <pair>[<index>]
    STATE['n']
    STATE[<word>]
    <point>.x
    <point>.y
    <point>.flipped().x
    Pair(<int>, b=<int>).b
    <ints>.pop()
    <ints>.index(<int>)
    <ints>.count(<int>)
    int(<tensor>.sum())
    <tensor>.argmax().item()
    int(<bool>)
    int(<text>)
    getattr(<thing>, 'n', <int>)
    getattr(<thing>, 'missing', <int>)
    <thing>.extra
    <thing>.magic_trick
    Color.GREEN + <int>
    Color(<int>)
    divmod(<int>, <int>)[1]
    functools.reduce(lambda q, r: (q * 3 + r) % 11, <ints>, <int>)
    math.gcd(<int>, <int>)
    (<int> or <int>)
    (<int> and <int>)
    len(<group>)
    sorted(<group>)[0]
    ord(<text>[0])
    <text>.find(<word>)
    len({*<ints>, *<pair>})
    operator.add(<int>, <int>)
    max(q.n for q in (<thing>, thing))
    round(<number>)
    int(<number>)
    hash(<int>)
    len([q for q in <tensors> if q is x])
    sum(map(len, (<text>, <ints>)))
    dict(a=<int>, **<table>)['a']
    <int> << 1
    (<int>).bit_length()
    collections.Counter(<ints>)[<int>]
    len(str(<int>))
    copy.copy(<thing>).bump()
    functools.partial(<to_int>, <int>)()
    Fixed(<int>).a
    min(Fixed(<int>), Fixed(<int>)).a
    (yielded := <int>)
    vars(<thing>)['n']
    <thing>.__dict__.get('n', <int>)
    Registry.kinds[<word>](<int>).n
    len(Registry.kinds)
    <layer>.calls
    <layer>.scale
    describe(<int>)
    describe(<text>)
    [*range(<int> % 7)].__len__()
    (lambda: (yield))().__class__.__name__.__len__()
    max([<int>, <int>, *<ints>])
    sum([q.x for q in [<point>, <point>]])
    dict(zip(<ints>, <ints>)).get(<int>, <int>)
    <queue>[0]
    <queue>.popleft()
    len(<queue>)
    <counts>[<int>]
    sum(<counts>.values())
    <counts>.most_common(1)[0][1]
    <lazy>.value
    <lazy>.cached
    cached_square(<int>)
    next(q for q in <ints> if q > <int>)
    tuple(<ints>).index(<int>)
    inspect_count(<to_int>)
    operator.itemgetter(<index>)(<ints>)
    operator.attrgetter('n')(<thing>)
    operator.methodcaller('bump', <int>)(<thing>)
    bisect.bisect(sorted(<ints>), <int>)
    heapq.nsmallest(1, <ints>)[0]
    [<ints>.append(<int>), len(<ints>)][1]
    (<ints> + [<int>])[-1]
    recursive(<int> % 6)
    zipped(<ints>, <pair>)
    Both(<int>).total
    Both(<int>) @ <int>
    +Both(<int>)
    <thing> and <int>
    type(<int>)(<int>)
    <tensor>.stride(0)
    <tensor>.storage_offset()
    <int> if isinstance(<thing>, Child) else <int>
    """,
    "bool": """
    flag
    not flag
    <int> > <int>
    <int> == <int>
    <int> < <int> <= <int>
    <bool> and <bool>
    <bool> or <bool>
    not <bool>
    <int> in <ints>
    <int> not in <group>
    <word> in <table>
    <tensor> is x
    x is y
    <thing> is thing
    <thing> is not thing
    bool(<ints>)
    isinstance(<thing>, Child)
    hasattr(<thing>, 'extra')
    any(q > <int> for q in <ints>)
    all(q < <int> for q in <ints>)
    <ints> == <ints>
    <pair> < <pair>
    (<tensor>.sum() > 0)
    bool((<tensor> > <int>).any())
    <text> == <text>
    <tensor>.requires_grad
    <int> in <thing>
    <thing> < <int>
    callable(<thing>)
    issubclass(type(<thing>), Thing)
    <point> == <point>
    <group> <= <group>
    <table> == <table>
    type(<thing>) is Child
    <text>.startswith(<word>)
    torch.is_tensor(<tensor>)
    <int> is None
    isinstance(<int>, (int, str))
    <tensor>.shape == x.shape
    len(<table>.keys() & <table>.keys()) > 1
    Color.RED == <int>
    isinstance(<ints>, collections.abc.Sequence)
    isinstance(<table>, collections.abc.Mapping)
    isinstance(<thing>, HasBump)
    <thing> in [<thing>, thing]
    <thing> == <thing>
    <tensor> is not None
    Both(<int>) == Both(<int>)
    bool(Both(<int>))
    <point> in (<point>, Point(1))
    <queue> == <queue>
    <layer>.training
    torch.is_grad_enabled()
    'items' in vars(thing)
    <pair> == tuple(<ints>)
    not <ints>
    <generator> is not None
    <table>.keys() <= table.keys()
    frozenset(<ints>) == <group>
    """,
    "tensor": """
    x
    y
    torch.ones(4)
    torch.arange(4.0)
    (<tensor> + <tensor>)
    (<tensor> * <int>)
    (<tensor> - <int>)
    <tensor>.relu()
    <tensor>.clone()
    (<int> - <tensor>)
    torch.where(<tensor> > 0, <tensor>, <tensor>)
    <thing>.t
    <thing>.scaled(<int>)
    -<tensor>
    <tensor>.flip(0)
    torch.stack([<tensor>, <tensor>]).sum(0)
    (<tensor> if <bool> else <tensor>)
    <tensor>.view(-1)
    <tensor>.add_(<int>)
    <tensor>.mul_(<tensor>)
    <to_tensor>(<tensor>)
    sum(<tensors>)
    sum(<tensors>, <tensor>)
    <tensors>[<index>]
    <tensor>.detach()
    torch.maximum(<tensor>, <tensor>)
    (<tensor> > <int>).float()
    <tensor>[:]
    <tensor>.cumsum(0)
    torch.full_like(<tensor>, <int>)
    functools.reduce(torch.add, <tensors>)
    <tensor>.clamp(min=<int>)
    (<tensor> + <tensor>.mean())
    torch.tanh(<tensor>)
    <tensor> * <number>
    <thing>.made(<int>).t
    max((<tensor>, <tensor>), key=lambda q: len(q))
    copy.copy(<tensor>)
    next((q for q in <tensors> if q is not x), <tensor>)
    torch.zeros(<tensor>.shape)
    <tensor>[<tensor>.argsort()]
    operator.mul(<tensor>, <int>)
    torch.tensor([1.0, 2.0, 3.0, <int>])
    torch.nn.functional.softplus(<tensor>)
    <tensor>.new_ones(4) * <int>
    torch.rand(4)
    torch.dropout(<tensor>, 0.5, True)
    <layer>(<tensor>)
    <layer>.weight * <tensor>
    <layer>.buffer
    <tensor>.sum() + <tensor>
    <tensor>.t()
    <tensor>.reshape(2, 2).reshape(-1)
    <tensor>.unsqueeze(0).squeeze(0)
    torch.cat([<tensor>[:2], <tensor>[2:]])
    <tensor>.masked_fill(<tensor> > <int>, <int>)
    describe(<tensor>)
    <lazy>.tensor
    GLOBAL_TENSOR + <tensor>
    torch.add(<tensor>, <tensor>, alpha=<int>)
    torch.where(<bool>, <tensor>, <tensor>)
    <tensor>.to(torch.float64).float()
    <tensor>.expand(4)
    F.relu(<tensor>, inplace=True)
    torch.relu_(<tensor>)
    <tensor>.requires_grad_(<bool>)
    torch.ones_like(<tensor>)
    (<tensor> + 1).sum().backward() or <tensor>
    {'k': <tensor>}['k']
    <tensor>.contiguous()
    Both(<int>) * <tensor>
    <tensor> + Both(<int>)
    torch.stack(<tensors>).sum(0)
    torch.add(<tensor>, <int>, out=torch.empty(4))
    """,
    "ints": """
    items
    [1, 2, 3]
    []
    [<small>, n]
    [<int>, <int>]
    [q + <int> for q in <ints>][:6]
    [q for q in <ints> if q > <int>]
    list(range(<int> % 9))[:5]
    sorted(<ints>)
    sorted(<ints>, key=lambda q: -q % 4, reverse=<bool>)
    <ints>[1:]
    <ints>[::-1]
    (<ints> + <ints>)[:6]
    (<ints> * 2)[:5]
    [*<ints>, <int>][:6]
    list(map(lambda q: q * 2, <ints>))
    list(reversed(<ints>))
    list(<table>.values())
    list(<group>)
    list(filter(None, <ints>))
    <thing>.items
    list(<pair>)
    [q * r for q, r in zip(<ints>, <ints>)]
    [i for i, q in enumerate(<ints>, <int>)]
    list(numbers(<int>))
    list(itertools.islice(itertools.count(<int>), 3))
    list(itertools.chain(<ints>, <pair>))[:6]
    list(<generator>)[:5]
    [q for r in (<ints>, <pair>) for q in r][:6]
    list(itertools.accumulate(<ints>))
    <ints>.copy()
    copy.deepcopy(<ints>)
    [len(q) for q in <table>]
    [(lambda: q)() for q in <ints>]
    [q() for q in [lambda: r for r in <ints>]]
    list(<thing>)
    [q := <int>, <int>]
    list(dict.fromkeys(<ints>))
    <tensor>.tolist()
    list(itertools.takewhile(lambda q: q < <int>, <ints>))
    [q + r for q in <ints>[:2] for r in <pair>]
    list(collections.deque(<ints>, maxlen=3))
    [int(q) for q in <text> if q.isdigit()][:4]
    next(zip(*[<ints>, <ints>]), [1])
    (<ints> or <ints>)
    [q for q, r in itertools.groupby(<ints>)]
    list(itertools.pairwise(<ints>))[0:0]
    list(itertools.compress(<ints>, <ints>))
    list(itertools.chain.from_iterable([<ints>, <pair>]))[:6]
    [*map(operator.neg, <ints>)]
    list(itertools.starmap(operator.add, zip(<ints>, <ints>)))
    [len(list(g)) for _, g in itertools.groupby(sorted(<ints>))]
    list(<queue>)
    heapq.nlargest(2, <ints>)
    sorted(<ints>, key=lambda q: (q % 2, -q))
    [a for a, *b in [<pair>, <ints> or [1]]]
    list(itertools.islice(<counts>.elements(), 4))
    <thing>.items[:2]
    [q for q in <ints> if (r := q % 3) and r > 0]
    [[q, r][0] for q in <ints>[:2] for r in range(q % 3)]
    list(vars(<point>).values())
    [c.n for c in (<thing>, thing)]
    list(zip(<ints>, <ints>, strict=True))[0:0]
    list(iter(<queue>.popleft, <int>))[:3]
    [x for x in range(<int> % 4)]
    """,
    "table": """
    table
    {'a': 1, 'key': 2}
    {}
    {'a': <int>, <word>: <int>}
    {k: v + <int> for k, v in <table>.items()}
    (<table> | <table>)
    {**<table>, 'b': <int>}
    dict(zip('abc', <ints>))
    dict(<table>, n=<int>)
    {k: v for k, v in sorted(<table>.items()) if v > <int>}
    <table>.copy()
    {k: len(k) for k in ('a', <word>)}
    dict(sorted(<table>.items(), key=lambda q: q[1]))
    copy.deepcopy(<table>)
    STATE
    dict.fromkeys(('a', 'b'), <int>)
    dict(collections.Counter('abca'))
    {**<table>, **<table>}
    dict(collections.OrderedDict(<table>))
    vars(<point>).copy()
    dataclasses.asdict(<point>)
    {k: v for k, v in zip('ab', <pair>)}
    {**<table>} | {'n': <int>}
    dict(<layer>.named_sizes())
    dict(collections.ChainMap({'a': <int>}, <table>))
    {f'{k}': v for k, v in <table>.items() if k != <word>}
    collections.defaultdict(int, <table>) | {}
    dict(filter(lambda q: q[1], <table>.items()))
    """,
    "text": """
    'text'
    <word>
    str(n)
    ''
    f"{<plain_int>}-{<word>}"
    f"{<plain_int>:>4}|{<plain_number>:.2f}"
    (<text> + <text>)[:20]
    <text>.upper()
    '-'.join(map(str, <ints>))
    repr(<ints>)
    <text>[1:]
    str(<pair>)
    <text>.replace('a', <text>)[:8]
    (<text> * 2)[:20]
    '%s:%d' % (<text>, <int>)
    '{}{!r}'.format(<int>, <text>)
    type(<thing>).__name__
    <thing>.kind
    f"{<plain_group>}"
    <text>.strip('a')
    ','.join(<table>)
    str(<bool>)
    repr(<point>)
    (<text> if <bool> else <text>)
    <text>.partition('-')[0]
    f"{<plain_thing>!r}"
    f"{<plain_point>}"
    Color.RED.name
    str(Fixed(<int>))
    min(<text>, <text>)
    <text>.zfill(3)
    ''.join(sorted(<text>))
    f"{<plain_table>=}"[:20]
    ' '.join(f'{k}={v}' for k, v in <table>.items())
    <text>.center(8, '*')
    <text>.title()
    '{:>5}'.format(<text>)
    '{0[0]}{1.n}'.format(<pair>, <thing>)
    repr(<pair>)
    <text>.split('-')[0]
    str(<queue>)
    str(<counts>)
    repr(<table>)
    <lazy>.name
    str(Both(<int>))
    type(<tensor>).__name__
    str(x.dtype)
    <to_int>.__name__
    str(<tensor>.shape)
    Registry.__name__
    """,
    "pair": """
    (1, 2)
    (n, 3)
    (<int>, <int>)
    Pair(<int>, <int>)
    divmod(<int>, 3)
    tuple(<ints>)[:2]
    (*<pair>, <int>)[:2]
    <pair>[::-1]
    tuple(x.shape)
    tuple(sorted(<pair>))
    tuple(q + 1 for q in <pair>)
    (<pair> if <bool> else <pair>)
    next(zip(<ints>, <ints>), (0, 1))
    x.shape
    (<int>,) * 2
    Pair(*<pair>)
    Pair(1, 2)._replace(a=<int>)
    """,
    "group": """
    {1, 2}
    set()
    {<int>, <int>}
    set(<ints>)
    (<group> | <group>)
    (<group> & <group>)
    (<group> - <group>)
    (<group> ^ {1, 2})
    {q % 3 for q in <ints>}
    set(<table>.values())
    <group>.union(<ints>)
    set(<pair>)
    <group>.copy()
    frozenset(<ints>)
    """,
    "thing": """
    thing
    Thing(1, x)
    Thing(<int>, <tensor>)
    Child(<int>, <tensor>)
    Child(<int>, <tensor>, extra=<int>)
    (<thing> if <bool> else <thing>)
    Child.made(<int>)
    <thing> + <thing>
    copy.copy(<thing>)
    max(<thing>, thing, key=lambda q: q.n)
    type(<thing>)(<int>, <tensor>)
    copy.deepcopy(thing)
    Registry.kinds['child'](<int>, <tensor>)
    [<thing>, thing][<int> % 2]
    sorted([<thing>, thing], key=lambda q: q.n)[0]
    {'t': <thing>}.pop('t')
    thing.__class__(<int>, <tensor>)
    """,
    "tensors": """
    [x, y]
    [x]
    [<tensor>, <tensor>]
    [<tensor> * q for q in <ints>][:4]
    [<tensor> + i for i in range(3)]
    list((<tensor>, <tensor>))
    [q.relu() for q in <tensors>]
    <tensors>[::-1]
    sorted(<tensors>, key=len)
    list(torch.stack([<tensor>, <tensor>]).unbind(0))
    [q for q in <tensors> if q is not x]
    list({'a': <tensor>, <word>: <tensor>}.values())
    list(torch.chunk(torch.cat([<tensor>, <tensor>]), 2))
    [f(<tensor>) for f in (torch.sin, torch.relu)]
    [<layer>(q) for q in <tensors>]
    list(map(torch.relu, <tensors>))
    <tensors> + [<tensor>]
    [*<tensors>, <tensor>][:4]
    [q for q, flag in zip(<tensors>, (True, False))]
    list(<tensor>.split(4))
    [p.detach() for p in <layer>.parameters()]
    """,
    "point": """
    Point(1)
    Point(2, y=n)
    Point(<int>, <int>)
    <point>.flipped()
    Point(*<pair>)
    copy.copy(<point>)
    dataclasses.replace(<point>, x=<int>)
    Point(**{'x': <int>})
    Point(*dataclasses.astuple(<point>))
    max(<point>, Point(1), key=lambda q: q.x)
    """,
    "number": """
    1.5
    -0.25
    <int> / 4
    (<number> + <int>)
    <number> * 2
    math.sqrt(abs(<int>))
    float(<int>)
    round(<number>, 1)
    <int> / <int>
    max(<number>, <int>)
    (<number> if <bool> else 0.0)
    math.floor(<number>)
    <number> ** 2
    <tensor>.mean().item()
    """,
    "generator": """
    numbers(3)
    numbers(<int>)
    iter(<ints>)
    (q + <int> for q in <ints>)
    polite(<int>)
    zip(<ints>, <pair>)
    """,
    "layer": """
    layer
    LAYER
    layer.eval()
    layer.train()
    layer.requires_grad_(False)
    """,
    "queue": """
    collections.deque([1, 2])
    collections.deque(items, maxlen=3)
    collections.deque(<ints>)
    collections.deque(<ints>, maxlen=2)
    copy.copy(<queue>)
    thing.queue
    """,
    "counts": """
    collections.Counter('ab')
    collections.Counter(items)
    collections.Counter(<ints>)
    <counts> + collections.Counter(<ints>)
    collections.Counter(a=<int>)
    """,
    "lazy": """
    Lazy(2)
    Lazy(n)
    Lazy(<int>)
    thing.lazy
    """,
    "to_int": """
    (lambda q: q + 1)
    (lambda q: q * <int>)
    <thing>.bump
    """,
    "to_tensor": """
    torch.relu
    (lambda q: q * <int>)
    <thing>.t.add
    """,
}


def _lines(text):
    return tuple(line.strip() for line in text.strip().splitlines())


EXPRESSIONS = {kind: _lines(text) for kind, text in _FORMS.items()}

CHANGES = _lines(
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

WITHS = _lines(
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

FAILURES = _lines(
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
