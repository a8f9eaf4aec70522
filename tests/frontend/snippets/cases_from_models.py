"""What the models of ``transformers`` do besides layers: configurations copied, constants computed, caches asked."""

import copy
import functools

import numpy as np
import torch
from torch._higher_order_ops.associative_scan import associative_scan

from .corpus import case, tensor


class Config:
    def __init__(self):
        self.sizes = [1, 2]
        self.names = {"a": (1, 2), "b": None}
        self.ignored = {1, 2, 3}
        self.kinds = frozenset({1, 2})
        self.dtype = torch.float32

    def to_dict(self):
        output = copy.deepcopy(self.__dict__)
        output["kind"] = type(self).__name__
        output.pop("dtype", None)
        return output


@case(one_graph=True, inputs=lambda: (tensor(), Config()))
def case_copied_namespace(x, config):
    output = config.to_dict()
    output["sizes"].append(3)
    output["ignored"].discard(1)
    shared = output["kinds"] is config.kinds
    return x + len(config.sizes), output, shared, 1 in config.ignored, list(output)


@case(one_graph=True)
def case_copied_set(x):
    inner = {1, 5, 9, 17}
    made = copy.deepcopy({"a": inner, "b": inner, "c": frozenset({2})})
    made["a"].add(33)
    return x, made, made["a"] is made["b"], inner


@case(one_graph=True)
def case_classes_for_dtypes(x):
    return (
        torch.tensor([0], dtype=int),
        x.to(int),
        torch.zeros(2, dtype=float),
        x.to(bool),
        torch.ones(1, dtype=complex),
    )


@case()
def case_numpy_numbers(x):
    scale = np.log(10.0) / np.sqrt(x.shape[0])
    x = x * scale + np.prod([2, 3]) - np.int64(2) ** 2
    x *= np.float32(0.1)
    return scale * x, 1 + scale, scale, np.max([1, 2]), isinstance(scale, float), int(np.floor(scale)), scale > 1


@case()
def case_numpy_number_in_a_tensor(x):
    return torch.tensor(np.float64(2.0)), torch.full((2,), np.sqrt(4)), x * np.float64(-0.0), x + np.bool_(True)


@case(inputs=lambda: (tensor(), np.float64(0.0)))
def case_numpy_number_from_outside(x, scale):
    return 1.0 / (x * scale), scale + 1


@case()
def case_numpy_fails(x):
    try:
        np.sqrt("a")
    except TypeError as error:
        return x, type(error)


@case(one_graph=True)
def case_annotated_inner_functions(x):
    def flatten(node: tuple | list, into: list[torch.Tensor]) -> dict[str, list[int]]:
        into.extend(node)
        return {"n": [len(into)]}

    found: list[torch.Tensor] = []
    return flatten((x, x + 1), found), found, type(tuple[int, ...]).__name__


@case(one_graph=True)
def case_associative_scan(x):
    """The recurrence of state space models."""

    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    return associative_scan(combine, (x.sigmoid(), x), dim=1, combine_mode="generic")


SCALE = {"by": 1}


def new_cache(*known):
    """A cached function that has run for some arguments, and a list of all that it ran for."""
    ran = []

    @functools.lru_cache
    def scaled(text):
        ran.append(text)
        return [text, SCALE["by"]]

    for text in known:
        scaled(text)
    return scaled, ran


@case(one_graph=True, inputs=lambda: (tensor(), *new_cache("known")), changes=("SCALE",))
def case_cached_result_amid_changes(x, scaled, ran):
    """What the cache has does not depend on what was changed before."""
    SCALE["by"] = SCALE["by"] + 1
    return x * 2, scaled("known"), scaled("known") is scaled("known")


@case(inputs=lambda: (tensor(), *new_cache("known")), changes=("SCALE",))
def case_cached_function_runs_amid_changes(x, scaled, ran):
    SCALE["by"] = SCALE["by"] + 1
    found = scaled("new")
    return x * 2 + found[1], found, scaled("known"), scaled(text="new")


@case(inputs=lambda: (tensor(), *new_cache(1, "1")), changes=("SCALE",))
def case_cached_result_by_other_keys(x, scaled, ran):
    SCALE["by"] = SCALE["by"] + 1
    return x, scaled(1), scaled("1"), scaled(1.0), scaled(True)
