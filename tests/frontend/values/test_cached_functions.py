"""Functions behind ``functools.lru_cache`` that run for the first time while something else has been changed."""

import functools

import pytest
import torch

import torchmux

STATE = {"scale": 1}


@pytest.fixture
def cached():
    STATE["scale"] = 1

    @functools.lru_cache
    def scale(name):
        return STATE["scale"]

    return scale


def test_the_first_call_runs_in_eager_and_the_next_is_captured(cached):
    def fn(x):
        STATE["scale"] = STATE["scale"] + 1
        return x * cached("a")

    compiled = torchmux.compile(fn, backend="eager")
    x = torch.ones(3)
    assert torch.equal(compiled(x), x * 2)
    report = torchmux.report(compiled)
    assert report.graph_count == 0
    assert "this call runs in eager" in report.breaks[0].message()
    assert torch.equal(compiled(x), x * 2)
    assert torchmux.report(compiled).graph_count == 1
    assert STATE["scale"] == 3
    assert cached.cache_info().misses == 1


def test_a_cache_that_is_emptied_each_time_breaks_the_graph(cached):
    def fn(x):
        STATE["scale"] = STATE["scale"] + 1
        cached.cache_clear()
        return x * cached("a")

    compiled = torchmux.compile(fn, backend="eager")
    x = torch.ones(3)
    for scale in (2, 3, 4):
        assert torch.equal(compiled(x), x * scale)


def test_a_result_that_the_cache_has_forgotten_is_computed_anew(cached):
    def fn(x):
        STATE["seen"] = True
        return x * cached("a")

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    x = torch.ones(3)
    assert torch.equal(compiled(x), x)
    assert torch.equal(compiled(x), x)
    assert torchmux.report(compiled).graph_count == 1
    cached.cache_clear()
    STATE["scale"] = 5
    assert torch.equal(compiled(x), x * 5)


class Holder:
    def __init__(self, scale):
        self.scale = scale

    @functools.cache  # noqa: B019
    def scaled(self, n=2):
        return self.scale * n

    @functools.cache  # noqa: B019
    def sizes(self, shape):
        return [self.scale * shape[0]]


@functools.lru_cache
def of_two(first, second, *, names):
    return first.scale + second.scale + len(names)


def by_objects(x, first, second):
    return (
        x * first.scaled(3) + first.scaled() + first.sizes(tuple(x.shape))[0],
        x + of_two(first, second, names=("a", "b")) + of_two(first, first, names=()),
    )


def test_objects_are_keys_by_their_identity():
    compiled = torchmux.compile(by_objects, backend="eager", fullgraph=True)
    x, one, two = torch.ones(3), Holder(1), Holder(2)

    def check(first, second):
        for found, expected in zip(compiled(x, first, second), by_objects(x, first, second), strict=True):
            assert torch.equal(found, expected)

    for first, second in ((one, two), (two, one), (one, two), (one, one)):
        check(first, second)
    one.scale = 10  # what the caches have is returned all the same
    check(one, two)
    one.sizes((3,))[0] = 7  # the list in the cache
    check(one, two)
    Holder.scaled.cache_clear()
    of_two.cache_clear()
    check(one, two)
    Holder.scaled = lambda self, n=2: n
    check(one, two)


def test_objects_that_compare_themselves_are_no_keys():
    class Same(Holder):
        def __eq__(self, other):
            return True

        def __hash__(self):
            return 1

    def fn(x, first):
        return x * of_two(first, first, names=())

    compiled, x = torchmux.compile(fn, backend="eager"), torch.ones(3)
    for holder in (Same(3), Same(4)):
        assert torch.equal(compiled(x, holder), fn(x, holder))
    assert "of mutable objects" in torchmux.report(compiled).breaks[0].reason


class Keyed:
    def __init__(self, scale):
        self.scale = scale

    @functools.cache  # noqa: B019 - this is what programs do
    def times(self, n, sizes=()):
        return self.scale * n * len(sizes)


def test_an_object_is_a_key_by_its_identity():
    held = Keyed(2)
    compiled = torchmux.compile(lambda x, held: x * held.times(3, (x.shape[0], held)), backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(3), held), torch.full((3,), 12.0))
    assert torchmux.report(compiled).graph_count == 1
    other = Keyed(5)
    assert torch.equal(compiled(torch.ones(3), other), torch.full((3,), 30.0))
    assert torch.equal(compiled(torch.ones(3), held), torch.full((3,), 12.0))


class Equal(Keyed):
    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


def test_an_object_that_may_equal_another_breaks_the_graph():
    compiled = torchmux.compile(lambda x, held: x * held.times(3, (1,)), backend="eager")
    with torch.no_grad():
        assert torch.equal(compiled(torch.ones(3), Equal(2)), torch.full((3,), 6.0))
    assert "of mutable objects" in torchmux.report(compiled).breaks[0].message()


def test_what_equals_as_a_number_is_another_argument():
    @functools.lru_cache(typed=True)
    def kind_of(n):
        return 2 if type(n) is int else 3

    compiled = torchmux.compile(lambda x: (x * kind_of(1), x * kind_of(1.0), x * kind_of((True,)[0])), backend="eager")
    assert [y.item() for y in compiled(torch.ones(()))] == [2, 3, 3]


@functools.lru_cache
def ramp(n, *, scale=1.0):
    return torch.arange(n).float() / 2, torch.full((n,), scale)


ADDED = 1


@functools.lru_cache
def ramp_of_a_global(n):
    return torch.arange(n) + ADDED


def test_tensors_for_a_number_that_changes_are_the_cache_s_own():
    def fn(x, bump, scale=1.0):
        steps, ones = ramp(x.shape[0], scale=scale)
        if bump:
            steps.add_(1)
        return x * steps + ones, steps

    compiled = torchmux.compile(fn, backend="eager", fullgraph=True)
    ramp.cache_clear()
    for n, bump, scale in ((3, 0, 1.0), (4, 0, 1.0), (5, 1, 1.0), (5, 0, 2.0), (5, 0, 1.0), (3, 0, 3.0), (4, 1, 1.0)):
        before = ramp(n, scale=scale)[0].clone() if (n, scale) != (4, 1.0) else None
        got, steps = compiled(torch.ones(n), bump, scale)
        assert steps is ramp(n, scale=scale)[0]
        assert before is None or torch.equal(steps, before + bump)
        assert torch.equal(got, torch.ones(n) * steps + scale)
    assert torchmux.report(compiled).graph_count <= 5  # each way through "if" once, and once with each float
    with pytest.raises(RuntimeError, match="upper bound"):
        torchmux.compile(lambda x, n: x * ramp(n)[0].sum(), backend="eager", dynamic=True)(torch.ones(3), -2)


@functools.lru_cache
def parts_of(kind, sizes):
    return [*sizes, len(kind)], {"last": sizes[-1]}


def test_results_for_other_arguments_are_not_one_number_that_changes():
    inputs = []

    def backend(gm, example_inputs):
        inputs.append(len(example_inputs))
        return gm.forward

    compiled = torchmux.compile(lambda x: x * parts_of("a", (1, 2))[0][0] + parts_of("bc", (3,))[0][0], backend=backend)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    assert inputs == [1]


def test_a_cached_function_that_reads_a_global_is_called_where_the_program_calls_it():
    def fn(x):
        return x * ramp_of_a_global(x.shape[0])

    global ADDED
    compiled = torchmux.compile(fn, backend="eager")
    for n in (3, 4, 3):
        assert torch.equal(compiled(torch.ones(n)), torch.arange(n) + 1.0)
    ADDED = 5
    for n, added in ((3, 1), (4, 1), (5, 5), (6, 5)):
        assert torch.equal(compiled(torch.ones(n)), torch.arange(n) + float(added))
    ADDED = 1


def test_a_function_that_reads_what_the_graph_has_written_runs_behind_that():
    def make():
        total = torch.ones(2)

        @functools.lru_cache
        def table(k):
            return total.sum().item() * k

        def program(x, k):
            total.add_(1)
            return x * table(k)

        return program, table, total

    eager, compiled = make(), make()
    fast = torchmux.compile(compiled[0], backend="eager")
    x = torch.ones(2)
    for k in (2, 2, 3, 2, 3):
        for _, table, total in (eager, compiled):
            total.fill_(1)
            table.cache_clear()
        assert torch.equal(fast(x, k), eager[0](x, k))
        assert torch.equal(eager[2], compiled[2])
        assert eager[1](k) == compiled[1](k)


def test_a_check_does_not_run_a_function_that_reads_what_is_written_later():
    class Scaled:
        def __init__(self):
            self.n = 2

        @functools.lru_cache  # noqa: B019
        def table(self, k):
            return torch.arange(k) * self.n

        def step(self, x):
            self.n = self.n + 1
            return x * self.table(3)

    eager, compiled = Scaled(), Scaled()
    fast = torchmux.compile(compiled.step, backend="eager")
    x = torch.ones(3)
    for call in range(8):
        if call in (4, 6):
            Scaled.table.cache_clear()
        assert torch.equal(fast(x), eager.step(x)), call
        assert compiled.n == eager.n


class Counted:
    """Tells how often it has run."""

    def __init__(self):
        self.ran = 0

    def __get__(self, obj, cls=None):
        self.ran += 1
        return torch.ones(3) * obj.n


class Lazy:
    """Makes what it does not have."""

    n = 2

    def __init__(self):
        self.made = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        self.made.append(name)
        self.__dict__[name] = torch.ones(3) * self.n
        return self.__dict__[name]


def cached_property_of(base):
    class Holder(base):
        def __init__(self):
            super().__init__()
            self.n = 2

        @functools.cached_property
        def mask(self):
            return torch.ones(3) * self.n

    return Holder


def described():
    return type("Described", (), {"n": 2, "mask": Counted()})


@pytest.mark.parametrize(
    "make", [lambda: cached_property_of(object), lambda: cached_property_of(torch.nn.Module), lambda: Lazy, described]
)
def test_a_check_makes_no_attribute_that_is_gone(make):
    """Read by a check, it would be made before the program writes what it depends on."""

    def step(held, x):
        held.n = held.n + 1
        return x * held.mask

    classes = make(), make()
    eager, compiled = classes[0](), classes[1]()
    fast = torchmux.compile(lambda x: step(compiled, x), backend="eager")
    x = torch.ones(3)
    for call in range(9):
        if call in (3, 5, 7):
            for held in (eager, compiled):
                held.__dict__.pop("mask", None)
        if call == 4:
            eager.mask, compiled.mask = torch.zeros(3), torch.zeros(3)
        assert torch.equal(fast(x), step(eager, x)), call
        assert ("mask" in eager.__dict__) == ("mask" in compiled.__dict__)
    if isinstance(eager, Lazy):
        assert eager.made == compiled.made
    if "mask" in vars(type(eager)) and isinstance(vars(type(eager))["mask"], Counted):
        assert vars(type(compiled))["mask"].ran == vars(type(eager))["mask"].ran
