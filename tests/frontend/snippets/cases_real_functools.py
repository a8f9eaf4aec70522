"""functools, inspect, decorators and every form of call, as libraries use them."""

import contextlib
import functools
import inspect
import operator
import warnings
from functools import cache, cached_property, lru_cache, partial, partialmethod, reduce, singledispatch, wraps

import torch

from .corpus import case, tensor

CALLS = []


@lru_cache(maxsize=None)
def slow_square(n):
    return n * n


@cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


class Lazy:
    def __init__(self, n):
        self.n = n

    @cached_property
    def big(self):
        CALLS.append("big")
        return self.n * 100

    @lru_cache(maxsize=4)
    def cached(self, k):
        return self.n + k


@singledispatch
def describe(value, scale=1):
    return ("object", scale)


@describe.register
def _(value: int, scale=1):
    return ("int", value * scale)


@describe.register(list)
@describe.register(tuple)
def _(value, scale=1):
    return ("sequence", [describe(v) for v in value])


@describe.register
def _(value: torch.Tensor, scale=1):
    return value * 2 * scale


class Dispatching:
    @functools.singledispatchmethod
    def go(self, value):
        return "object"

    @go.register
    def _(self, value: int):
        return value + 1

    @go.register(str)
    def _(self, value):
        return value.upper()


class Methods:
    def base(self, a, b=2, *, c=3):
        return a + b * c

    twice = partialmethod(base, 2)
    named = partialmethod(base, c=10)


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


def counted(function):
    @wraps(function)
    def wrapper(*args, **kwargs):
        wrapper.calls += 1
        return function(*args, **kwargs)

    wrapper.calls = 0
    return wrapper


def with_options(scale=1, *, shift=0):
    def decorate(function):
        @wraps(function)
        def wrapper(x, *args, **kwargs):
            return function(x, *args, **kwargs) * scale + shift

        return wrapper

    return decorate


@with_options(2, shift=1)
def decorated(x, power=1):
    """Its own words."""
    return x**power


class Timer(contextlib.ContextDecorator):
    def __enter__(self):
        CALLS.append("enter")
        return self

    def __exit__(self, *error):
        CALLS.append("exit")
        return False


@Timer()
def timed(x):
    return x + 1


class Callable_:
    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, *args):
        return self.function(*args)

    def __get__(self, obj, cls=None):
        return partial(self, obj)


class UsesCallable:
    @Callable_
    def method(self, x):
        return x * 3


def signature_target(a, b: int = 2, *args, c, d=4, **kwargs):
    return a, b, args, c, d, kwargs


@case(one_graph=True)
def case_lru_cache_inside(x):
    return x * slow_square(3) + fib(7)


@case(changes=("CALLS",))
def case_cached_property_runs_once(x):
    lazy = Lazy(2)
    return x * lazy.big + lazy.big, CALLS, "big" in vars(lazy)


@case(inputs=lambda: (tensor(), Lazy(3)), changes=("CALLS",))
def case_cached_property_of_argument(x, lazy):
    return x * lazy.big, lazy.big, CALLS


@case(inputs=lambda: (tensor(), Lazy(3)))
def case_cached_method(x, lazy):
    return x * lazy.cached(2) + lazy.cached(2)


@case(one_graph=True)
def case_singledispatch_on_builtins(x):
    return x, describe(3), describe(4, scale=2), describe("s")


@case()
def case_singledispatch_on_everything(x):
    return describe(x), describe([1, x]), describe((1, "a")), describe(True), describe.dispatch(int) is describe


@case()
def case_singledispatch_method(x):
    d = Dispatching()
    return x * d.go(1), d.go("a"), d.go(1.5)


@case(one_graph=True)
def case_partial_method(x):
    m = Methods()
    return x * m.twice(), m.twice(5), m.named(1), m.named(1, 1)


@case(one_graph=True)
def case_total_ordering_fills_in(x):
    a, b = Version(1), Version(2)
    return x, a <= b, a > b, a >= b, max(a, b).n, sorted([b, a])[0].n


@case()
def case_wrapper_counts(x):
    @counted
    def double(x):
        """Doubles."""
        return x * 2

    y = double(double(x))
    return y, double.calls, double.__name__, double.__doc__, double.__wrapped__(x)


@case(one_graph=True)
def case_decorator_with_arguments(x):
    return decorated(x, power=2), decorated.__name__


@case(changes=("CALLS",))
def case_context_decorator(x):
    return timed(x), CALLS


@case()
def case_callable_object_as_method(x):
    return UsesCallable().method(x)


@case(one_graph=True)
def case_nested_partials(x):
    add = partial(torch.add, alpha=2)
    again = partial(add, x)
    most = partial(partial(decorated, power=3), x)
    return again(x), most(), add.keywords, again.args == (x,) if False else len(again.args)


@case(one_graph=True)
def case_partial_is_updated(x):
    def f(*args, **kwargs):
        return args, kwargs

    p = partial(f, 1, a=2)
    return x, p(2, a=3, b=4), p.func is f, p.args, p.keywords


@case(one_graph=True)
def case_reduce_with_tensors(x):
    return reduce(operator.add, [x, x * 2, x * 3]), reduce(lambda a, b: a * 10 + b, (1, 2, 3), 0)


@case()
def case_reduce_of_nothing(x):
    try:
        reduce(operator.add, [])
    except TypeError as error:
        return x, str(error)


@case()
def case_cmp_to_key(x):
    return x, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


@case()
def case_signature_is_inspected(x):
    signature = inspect.signature(signature_target)
    names = list(signature.parameters)
    kinds = [p.kind.name for p in signature.parameters.values()]
    return x, names, kinds, signature.parameters["b"].default, "c" in signature.parameters


@case()
def case_signature_is_bound(x):
    bound = inspect.signature(signature_target).bind(1, 2, 3, c=x, e=5)
    bound.apply_defaults()
    return bound.arguments["c"] + 1, bound.args[:3], sorted(bound.kwargs)


@case(one_graph=True)
def case_signature_filters_keywords(x):
    given = {"power": 2, "other": 3}
    accepted = inspect.signature(decorated).parameters
    return decorated(x, **{k: v for k, v in given.items() if k in accepted})


@case()
def case_inspect_questions(x):
    return x, inspect.isfunction(decorated), inspect.ismethod(Methods().base), inspect.isclass(Methods), callable(3)


@case()
def case_warning_is_issued(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("careful", UserWarning, stacklevel=2)
        return x + 1


@case()
def case_warnings_are_recorded(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("careful")
    return x + 1, [str(w.message) for w in caught]


@case()
def case_warning_as_error(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("loud", DeprecationWarning)
        except DeprecationWarning as error:
            return x, str(error)
    return x


def positional_only(a, b=2, /, c=3, *, d=4):
    return a, b, c, d


@case()
def case_positional_only_arguments(x):
    errors = []
    for call in (lambda: positional_only(a=1), lambda: positional_only(1, b=1), lambda: positional_only(1, 2, 3, 4)):
        try:
            call()
        except TypeError as error:
            errors.append(str(error))
    return x, positional_only(1, c=5), positional_only(1, 2, 3, d=0), errors


@case(one_graph=True)
def case_keywords_in_order(x):
    def f(a=0, /, *args, b, **kwargs):
        return a, args, b, list(kwargs.items())

    options = {"z": 1, "y": 2}
    return x, f(b=1, **options, a=5), f(*[1, 2], *(3,), b=x, **{"c": 1}, **{"d": 2})


@case()
def case_starred_things(x):
    def f(*args, **kwargs):
        return args, kwargs

    class Mapping:
        def keys(self):
            return ["a", "b"]

        def __getitem__(self, key):
            return key * 2

    return x, f(*"ab", *range(2), *{5: 1}, **Mapping()), [*{1: 2}, *"c"], {**Mapping()}


@case()
def case_function_attributes_are_read(x):
    def f(a, b: "int" = 2, *, c=3) -> "str":
        """Doc."""

    f.tag = 5
    return x * f.tag, f.__defaults__, f.__kwdefaults__, f.__annotations__, f.__qualname__, f.__code__.co_argcount


@case()
def case_lambdas_in_tables(x):
    table = {name: (lambda v, k=k: v * k) for k, name in enumerate("abc", 1)}
    return [f(x) for f in table.values()], (lambda *a, **k: (a, k))(1, b=2), (lambda: (yield))


@case(one_graph=True)
def case_recursion_with_closures(x):
    seen = []

    def walk(tree, path=()):
        if isinstance(tree, dict):
            return {key: walk(value, (*path, key)) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            return type(tree)(walk(value, (*path, i)) for i, value in enumerate(tree))
        seen.append(path)
        return tree * len(path)

    return walk({"a": [x, (x + 1, {"b": x})], "c": x}), seen


@case(one_graph=True)
def case_method_table(x):
    class_table = {"relu": torch.Tensor.relu, "neg": torch.neg, "twice": lambda t: t * 2}
    for name in ("relu", "neg", "twice"):
        x = class_table[name](x)
    return x


@case()
def case_nested_function_is_reentrant(x):
    def outer(n):
        total = 0

        def inner(k):
            nonlocal total
            total += k
            if k > 0:
                inner(k - 1)
            return total

        return inner(n), outer(n - 1) if n else None

    return x, outer(3)


@case()
def case_unwrapped_function(x):
    return inspect.unwrap(decorated)(x), inspect.getdoc(decorated)
