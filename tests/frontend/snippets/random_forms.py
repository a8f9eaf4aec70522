"""The expressions that random programs are made of: text with ``<kind>`` where an expression of that kind goes."""

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


def forms(text):
    return tuple(line.strip() for line in text.strip().splitlines())


EXPRESSIONS = {kind: forms(text) for kind, text in _FORMS.items()}
