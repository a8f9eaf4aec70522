"""Calls: defaults, keywords, star-arguments, positional-only, recursion, methods, partial, decorators, lambdas."""

import functools

import torch

from .corpus import case, tensor


def scaled(x, scale=2, *, bias=0):
    return x * scale + bias


def everything(a, /, b, *rest, c=1, **extra):
    return a + b * c, rest, extra


@case(one_graph=True)
def case_defaults(x):
    return scaled(x), scaled(x, 3), scaled(x, bias=1), scaled(scale=4, x=x)


@case(one_graph=True)
def case_all_kinds_of_arguments(x):
    return everything(x, 2, 3, 4, c=5, d=6)


@case(one_graph=True)
def case_star_call(x):
    args = (x, 3)
    options = {"c": 2, "z": x.sum()}
    return everything(*args, *[7, 8], **options)


@case(one_graph=True)
def case_merged_keywords(x):
    return dict(**{"a": x}, **{"b": x + 1})


@case()
def case_duplicate_keyword(x):
    options = {"bias": 1}
    return scaled(x, bias=2, **options)


@case(one_graph=False)
def case_missing_argument(x):
    return everything(x + 1)


@case(one_graph=False)
def case_unexpected_keyword(x):
    return scaled(x, size=3)


@case(one_graph=False)
def case_too_many_arguments(x):
    return scaled(x, 1, 2)


@case(one_graph=False)
def case_not_callable(x):
    n = x.dim()
    return n(x)


@case(one_graph=True)
def case_recursion(x):
    def power(base, n):
        return base if n == 1 else base * power(base, n - 1)

    return power(x, 4)


def even(x, n):
    return x if n == 0 else odd(x + 1, n - 1)


def odd(x, n):
    return -x if n == 0 else even(x * 2, n - 1)


@case(one_graph=True)
def case_mutual_recursion(x):
    return even(x, 5)


@case(one_graph=True)
def case_lambda(x):
    double = lambda t, n=2: t * n  # noqa: E731
    return double(x), (lambda *a: sum(a))(x, 1, 2)


@case()
def case_partial(x):
    half = functools.partial(scaled, scale=0.5)
    again = functools.partial(half, bias=1)
    return half(x), again(x), again.keywords


def doubled(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


def times(n):
    def decorate(function):
        def wrapper(x):
            for _ in range(n):
                x = function(x)
            return x

        return wrapper

    return decorate


@doubled
def decorated(x):
    """Adds one."""
    return x + 1


@times(3)
@doubled
def decorated_twice(x):
    return x - 1


@case(one_graph=True)
def case_decorators(x):
    return decorated(x), decorated_twice(x), decorated.__name__, decorated.__doc__


@case(one_graph=True)
def case_bound_method_as_value(x):
    add = x.add
    size = x.size
    return add(1), size(0)


@case(one_graph=True)
def case_unbound_tensor_method(x):
    return torch.Tensor.mul(x, 2), torch.Tensor.size(x, 1)


@case(one_graph=True, inputs=lambda: (tensor(), [torch.sin, torch.cos, lambda t: t + 1]))
def case_functions_in_a_list(x, functions):
    for function in functions:
        x = function(x)
    return x


@case(one_graph=True)
def case_function_attributes(x):
    return scaled.__name__, scaled.__defaults__, scaled.__kwdefaults__, x + scaled.__code__.co_argcount


@case(one_graph=True)
def case_mutable_default(x):
    def collect(item, into=[]):  # noqa: B006
        into.append(item)
        return into

    collect(x)
    return collect(x + 1)


@case(one_graph=True)
def case_getattr_call(x):
    return getattr(x, "relu")(), getattr(torch, "sin")(x), getattr(x, "nothing", 5)  # noqa: B009


@case(one_graph=True)
def case_call_result_of_call(x):
    return (lambda n: lambda t: t * n)(3)(x)


@case(one_graph=True)
def case_builtin_functions(x):
    return max(x.shape), min(3, x.dim()), abs(-2), divmod(7, 2), pow(2, 5), round(2.567, 1), x + sum(x.shape)


@case(one_graph=True, inputs=lambda: (tensor(), scaled))
def case_function_argument(x, function):
    return function(x, bias=x)


@functools.lru_cache(maxsize=None)
def table(n):
    return tuple(i * i for i in range(n))


@case(one_graph=True)
def case_cached_function(x):
    return x * table(4)[2] + table(4)[1]


@case(one_graph=True)
def case_many_locals(x):
    a = b = c = x
    d, e, f = a + 1, b + 2, c + 3
    g = h = d * e
    return a, d, e, f, g, h, locals().keys() >= {"a", "g"}
