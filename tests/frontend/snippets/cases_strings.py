"""Strings and formatting, on values that are known while tracing."""

import torch

from .corpus import case, tensor


@case(one_graph=True)
def case_f_string(x):
    name, n = "rows", x.size(0)
    return x + n, f"{name}={n}", f"{n:>5}|{n!r}|{name!r:<8}|{3.14159:.2f}|{n=}"


@case(one_graph=True)
def case_f_string_nested(x):
    width = 6
    return x, f"{'a':*^{width}}", f"{{literal}} {x.dim() + 1}"


@case()
def case_percent_and_format(x):
    return x, "%s has %d" % ("x", x.dim()), "{0}-{1}-{0}-{k}".format(1, 2, k="v"), format(255, "x")  # noqa: UP030, UP031, UP032


@case(one_graph=True)
def case_string_methods(x):
    parts = "layer.0.weight".split(".")
    return (
        x + int(parts[1]),
        ".".join(reversed(parts)),
        "abc".upper().replace("B", "-"),
        "  s ".strip(),
        "abc".startswith(("x", "a")),
        "a,b".partition(","),
        "abc"[::-1],
        "ab" * 2,
        "abc".find("z"),
    )


@case(one_graph=True)
def case_join_of_generator(x):
    return x, "-".join(str(n) for n in x.shape), ",".join(map(str, range(3)))


@case(one_graph=True)
def case_string_iteration(x):
    n = 0
    for letter in "abc":
        n += ord(letter)
    return x + n, list("xy"), chr(n % 26 + 97)


@case(one_graph=True)
def case_string_comparison(x):
    return x + ("a" < "b"), max("banana"), sorted("cab"), "ab" == "ab"


@case(one_graph=True)
def case_dtype_and_shape_to_string(x):
    return x, str(x.dtype), f"{tuple(x.shape)}", repr(x.device), str(torch.Size([1, 2]))


@case(one_graph=True, inputs=lambda: (tensor(), "scale=2"))
def case_parse_string_argument(x, text):
    key, _, value = text.partition("=")
    return {key: x * int(value)}


@case(one_graph=False)
def case_str_of_tensor(x):
    return x + len(str(x.sum())), f"{x.sum().item():.3f}"


@case(one_graph=False)
def case_bytes(x):
    data = b"ab" + bytes([99])
    return x + data[0], data.decode(), "é".encode()


@case(one_graph=True)
def case_int_of_bad_string(x):
    try:
        return x + int("three")
    except ValueError as error:
        return str(error)


@case(one_graph=True)
def case_repr_of_containers(x):
    return x, repr([1, "a", (2.5, None)]), str({"k": {1}}), ascii("ü")


class Named:
    def __str__(self):
        return "as a text"

    def __repr__(self):
        return "as shown"


@case()
def case_percent_with_names(x):
    return x + 1, "%(a)s %(a)r" % {"a": Named()}, "%s" % {"a": [Named()]}, "%(b)r" % {"b": [Named()]}  # noqa: UP031


@case()
def case_fields_of_a_text(x):
    inside = "{0[0]} {1.numerator}".format([Named()], 3)  # noqa: UP030, UP032
    return x + 1, inside, "{} {!r:>9}".format([Named()], (Named(), 2))  # noqa: UP032
