"""Classes that hold tensors, as arguments and results: outputs of models, dataclasses, named tuples, trees."""

import collections
import dataclasses
import enum
import typing

import pytest
import torch
import torch.utils._pytree as pytree

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of, leaf


class ModelOutput(collections.OrderedDict):
    """As libraries of models have it: a dictionary, an object with attributes and a tuple in one."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                self[field.name] = value

    def __getitem__(self, key):
        return dict(self.items())[key] if isinstance(key, str) else self.to_tuple()[key]

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def to_tuple(self):
        return tuple(self[key] for key in self.keys())


@dataclasses.dataclass
class Output(ModelOutput):
    logits: torch.Tensor
    loss: torch.Tensor | None = None
    hidden: tuple | None = None


@feature()
def model_output_is_returned(x):
    return Output(logits=x * 2, hidden=(x, x + 1))


@feature(inputs=lambda: (Output(logits=leaf(3, 4)),))
def model_output_is_an_argument(out):
    return out.logits * 2, out["logits"] + 1, out[0] - 1, "loss" in out, out.loss, len(out), list(out.keys())


@feature()
def model_output_is_changed(x):
    out = Output(logits=x)
    out.loss = x.sum()
    out["hidden"] = (x + 1,)
    return out, out.to_tuple()


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)

    def scaled(self):
        return self.x * self.scale


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: torch.Tensor
    n: int = 1


@feature(inputs=lambda: (Batch(tensor()),))
def dataclass_is_an_argument(batch):
    batch.names.append("seen")
    return (
        batch.scaled(),
        dataclasses.replace(batch, scale=3.0),
        Batch(batch.x + 1),
        [f.name for f in dataclasses.fields(batch)],
    )


@feature()
def fields_of_a_dataclass_change():
    def run(batch):
        return batch.x * batch.scale

    batch = Batch(tensor())
    yield run, (batch,)
    batch.scale = 3.0
    yield run, (batch,)
    batch.x = torch.ones(2, dtype=torch.float64)
    yield run, (batch,)


@feature(inputs=lambda: (Frozen(leaf(3)),))
def frozen_dataclass(frozen):
    return Frozen(frozen.x * 2, frozen.n + 1), dataclasses.replace(frozen, n=5).n * frozen.x


@feature()
def dataclass_as_a_dictionary(x):
    made = Batch(x * 2)
    return dataclasses.asdict(made)["scale"], made == made, made.x


class Pair(typing.NamedTuple):
    left: torch.Tensor
    right: torch.Tensor
    n: int = 3


Point = collections.namedtuple("Point", "x y")


@feature(inputs=lambda: (Pair(leaf(3), tensor()[0, :3]), Point(torch.ones(3), 2)))
def named_tuples(pair, point):
    left, right, n = pair
    moved = point._replace(x=left + right)
    return (
        Pair(left * n, pair.right),
        moved,
        point._asdict()["x"] + 1,
        pair[0] * point.y,
        Point._fields,
        len(pair),
        pair._replace(n=1),
    )


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@feature()
def enums():
    def run(x, color):
        return x * color.value if color is Color.RED else x + 1, color.name, Color(2), Color["RED"]

    yield run, (tensor(), Color.RED)
    yield run, (tensor(), Color.BLUE)


class Box:
    def __init__(self, inside, label):
        self.inside = inside
        self.label = label


pytree.register_pytree_node(
    Box, lambda box: ([box.inside], box.label), lambda children, label: Box(children[0], label),
    serialized_type_name="torchmux.tests.Box",
)  # fmt: skip


@feature()
def trees(x):
    tree = {"a": [x, x + 1], "b": (x * 2, {"c": None}), "d": 3}
    leaves, spec = pytree.tree_flatten(tree)
    doubled = pytree.tree_map(lambda leaf: leaf * 2 if isinstance(leaf, torch.Tensor) else leaf, tree)
    return doubled, pytree.tree_unflatten(leaves, spec), len(leaves), pytree.tree_leaves(doubled)[0]


@feature()
def trees_by_kind(x):
    tree = [x, 2, (x + 1, "text")]
    return (
        pytree.tree_map_only(torch.Tensor, torch.sin, tree),
        pytree.tree_all(lambda leaf: leaf is not None, tree),
        pytree.tree_any_only(int, lambda n: n == 2, tree),
    )


@feature()
def trees_of_two(x):
    return pytree.tree_map(torch.add, {"a": x, "b": [x]}, {"a": x + 1, "b": [x * 2]})


@feature(inputs=lambda: (Box(tensor(), "b"),))
def registered_classes(box):
    doubled = pytree.tree_map(lambda leaf: leaf * 2, {"box": box})
    return doubled, pytree.tree_leaves(box), doubled["box"].label


@feature(inputs=lambda: ({"a": [tensor(), {"b": leaf(2)}], "c": (torch.ones(2), 3)},))
def nested_containers(tree):
    tree["new"] = tree["a"][1]["b"] * 2
    tree["a"].append(tree["c"][0])
    return {**tree, "n": tree["c"][1]}, [*tree["a"], 1]


class Config(dict):
    __getattr__ = dict.__getitem__


@feature()
def containers_of_subclasses():
    config = Config(scale=2.0, bias=torch.ones(4))

    def run(x):
        return x * config.scale + config["bias"]

    yield run, (tensor(),)
    config["scale"] = 3.0
    yield run, (tensor(),)


@feature()
def shared_and_aliased_results(x):
    y = x * 2
    view = y.view(-1)
    return [y, y, {"again": y}], view, (x, x.t()), Point(y, view[0])


class Thing:
    def __init__(self):
        self.w = torch.ones(4)
        self.count = 0

    def step(self, x):
        self.count += 1
        self.w = self.w + x.mean(0)
        return x * self.w


@feature()
def objects_keep_tensors():
    thing = Thing()

    def run(x):
        return thing.step(x), thing.count

    for _ in range(3):
        yield run, (tensor(),)
    yield thing.w


@feature()
def generators_of_results(x):
    def halves():
        yield x[:1]
        yield x[1:]

    first, second = halves()
    return first + second[:1], dict(enumerate(halves()))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_structures_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_structures_take_no_more_graphs(name):
    check_graphs(__name__, name)
