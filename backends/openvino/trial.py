"""Tries single operators: converts them, runs them on generated numbers, and compares them with torch.

What an installed frontend does with an operator depends on its arguments and dtypes: rules ignore arguments, integers
are computed in float, half precision is rounded differently.  No list documents this, but a trial shows it.  Each kind
of call is tried once, and the artifact cache keeps the answer.

To compile a model takes ten times longer than what one more operator adds to it, so all the operators of a graph that
were never tried stand in one model, beside each other.  Whatever is not right there is tried alone, which decides.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import openvino
import torch
from torch.fx import GraphModule, Node

from torchmux import torch_internals as internals

from ..common.adapter.bugs import raise_mistake
from ..common.adapter.graphs import alone, copy_graph, elements_in_use, values_in_use
from ..common.cache.cache import default_cache
from ..common.cache.keys import describe, text_key
from ..common.pipeline import aliasing
from .integers import is_long
from .runtime import borrowed, compile_model
from .translate import reason_of, to_openvino

# By the key of a kind of call: why it is refused, or an empty string.
_answers: dict[str, str] = {}

# Kinds of calls that were not right beside others: they are not tried that way again.
_only_alone: set[str] = set()

_aten = torch.ops.aten

# Magnitudes of the integers to try, until torch takes them and its results fit into 32 bits.  For operators that
# compute with integers: the first is beyond what float32 holds exactly.
_COMPUTING = (2**29, 2**14, 6, 1)
# For operators that use integers as indices and check them: also from the end, as far as they go.
_CHECKED = (6, 1, 0)
# For the rest, some of which torch itself would read out of bounds with any other index.
_UNCHECKED = (0,)

_COMPUTE = frozenset(
    (_aten.sum, _aten.cumsum, _aten.mean, _aten.amax, _aten.amin, _aten.argmax, _aten.argmin, _aten.sort, _aten.topk,
     _aten.argsort, _aten.max, _aten.min, _aten.any, _aten.all, _aten.cat, _aten.stack, _aten.clone, _aten._to_copy,
     _aten.flip, _aten.roll, _aten.repeat, _aten.constant_pad_nd, _aten.tril, _aten.triu, _aten.mm, _aten.bmm,
     _aten.linear, _aten.matmul, _aten.mv, _aten.dot, _aten.addmm, _aten.baddbmm,
     _aten.copy, _aten.prod, _aten.cummax, _aten.where, _aten.masked_fill, _aten.floor_divide, _aten.fill,
     _aten.full_like, _aten.zeros_like, _aten.ones_like, _aten.new_full, _aten.new_zeros, _aten.new_ones)
)  # fmt: skip
_CHECK = frozenset(
    (_aten.index, _aten.gather, _aten.embedding, _aten.index_select, _aten.take_along_dim, _aten.scatter,
     _aten.scatter_add, _aten.index_put, _aten.one_hot)
)  # fmt: skip

# Operators to which one number is like another.
_ARITHMETIC = frozenset(
    (_aten.add, _aten.sub, _aten.mul, _aten.div, _aten.eq, _aten.ne, _aten.lt, _aten.le, _aten.gt, _aten.ge)
)

# Halves, ties and zeros, where rounding and comparing differ.
_SPECIAL = (0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.0, -1.0, 3.0, -3.0, 100.0, -100.0, 1e-6, -3e-5)

# What a wrong rule, or vector code that compares as a processor does, makes something else of.
_EXTREME = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 20.0, -20.0, 90.0, -90.0)

# Reductions that one such number determines, besides elementwise operators.
_DECIDED = frozenset(
    (_aten.sum, _aten.mean, _aten.prod, _aten.any, _aten.all, _aten.cumsum, _aten.cumprod, _aten.logsumexp)
)

# The allowed error as a fraction of the largest result: far above float32's rounding, far below bfloat16's.
_TOLERANCE = 1e-4

# The same of each element, where an operator computes each from its own: rules by formulas that cancel have no digits.
_POINTWISE_TOLERANCE = 1e-2

# Small tensors are tried several times, until about so many numbers have been seen: fewer where each stands alone, as
# tries of one tensor go on where the last one ended, and more where pairs of numbers decide.
_NUMBERS, _NUMBERS_OF_ONE, _MOST_ROUNDS = 256, 64, 16

_SEED = 20_240_229

_SMALL = 1 << 12
"""So many numbers are kept for the next operator that takes the same."""

LARGEST_TOGETHER = 1 << 18
"""Numbers of an operator that is tried beside others: the memory of all is in use at once."""

MOST_TOGETHER = 64
"""How many operators one model has."""

_CONFIGURATION = {"INFERENCE_PRECISION_HINT": "f32"}


def refusal(node: Node, fingerprint: str, others: Callable[[], Iterable[Node]] = tuple) -> str:
    """Why ``node`` cannot run in OpenVINO and mean the same, or an empty string.  Trials run on the CPU.

    ``others`` are nodes that will be asked about as well: they are tried together with ``node``.
    """
    key = _key(node, fingerprint)
    if _known(key) is None and key not in _only_alone:
        unknown = {k: n for n in (node, *others()) if (k := _key(n, fingerprint)) not in _only_alone}
        unknown = {k: n for k, n in unknown.items() if _known(k) is None and _size(n) <= LARGEST_TOGETHER}
        right = _right_together(list(unknown.values())) if len(unknown) > 1 else set()
        for each, tried in unknown.items():
            if tried in right:
                _keep(each, "")
            else:
                _only_alone.add(each)
        _only_alone.add(key)  # a large one is not tried beside others, and the graph is not searched for it again
    if _known(key) is None:
        _keep(key, _try(node))
    return _answers[key]


def _key(node: Node, fingerprint: str) -> str:
    return text_key("openvino trial", fingerprint, _signature(node))


def _known(key: str) -> str | None:
    """The answer from this process or from the artifact cache."""
    if key not in _answers:
        cache = default_cache()
        stored = cache.load(key) if cache is not None else None
        if stored is not None:
            _answers[key] = stored.decode()
    return _answers.get(key)


def _keep(key: str, answer: str) -> None:
    _answers[key] = answer
    if (cache := default_cache()) is not None:
        cache.store(key, answer.encode())


def _signature(node: Node) -> str:
    """Nodes of one signature are calls of one kind: same operator, arguments, and what is known of the inputs."""
    number = {value: position for position, value in enumerate(node.all_input_nodes)}

    def described(value: Node) -> _Described:
        return _Described(f"%{number[value]} {describe(value.meta.get('val'))}")

    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), described)
    if node.target.overloadpacket in _ARITHMETIC:
        args = tuple(_Described(_kind(a)) if isinstance(a, (int, float)) else a for a in args)
    used = elements_in_use(node) if isinstance(node.meta.get("val"), (tuple, list)) else ""
    return f"{node.target} {args!r} {kwargs!r} {used}"


def _kind(number: float) -> str:
    """What about a number decides how it is converted: numbers of one kind need one trial."""
    exact = float(torch.tensor(number, dtype=torch.float32)) == number
    size = next((str(limit) for limit in (0, 1, 2**24, 2**31, 2**63) if abs(number) <= limit), "more")
    return f"{type(number).__name__} {'-' if number < 0 else ''}{size} {exact} {number == number // 1}"


class _Described:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class _NoAnswer(Exception):
    """torch takes none of the inputs that are generated."""


# Inputs, torch's results, and what tells how others differ from them, or an empty string.
_Question = tuple[list[Any], Sequence[torch.Tensor], Callable[[torch.Tensor, torch.Tensor], str]]


def _try(node: Node) -> str:
    if _only_on_zeros(node):
        return "its effect on integers cannot be tested"
    with internals.without_modes(), internals.disable_autocast(), torch.no_grad():
        gm = alone(node)
        try:
            compiled = compile_model(to_openvino(copy_graph(gm)), "CPU", _CONFIGURATION)
            for inputs, wanted, difference in _questions(gm, node):
                for got, expected in zip(_run(compiled, inputs, wanted), wanted, strict=True):
                    if differs := difference(got, expected):
                        return f"OpenVINO's result differs from torch's{differs}"
        except _NoAnswer:
            return "torch itself does not accept the generated inputs, so OpenVINO's result cannot be compared"
        except Exception as error:
            raise_mistake(error)
            return reason_of(error)
    return ""


def _right_together(nodes: list[Node]) -> set[Node]:
    """Those of the nodes that mean the same in OpenVINO; of the others, nothing is known yet."""
    with internals.without_modes(), internals.disable_autocast(), torch.no_grad():
        tried = {}
        for node in nodes:
            with contextlib.suppress(Exception):  # alone, it says why
                gm = alone(node)
                if not _only_on_zeros(node) and (questions := list(_questions(gm, node))):
                    tried[node] = (questions, gm, to_openvino(copy_graph(gm)))
        found: set[Node] = set()
        each = iter(tried.items())
        while some := dict(itertools.islice(each, MOST_TOGETHER)):
            with contextlib.suppress(Exception):
                found |= _right_in_one_model(some)
        return found


def _right_in_one_model(tried: Mapping[Node, tuple[list[_Question], GraphModule, Any]]) -> set[Node]:
    """Those of the nodes, each with its questions and its model, that are right in one model of all of them."""
    models = [model for _, _, model in tried.values()]
    for model in models:
        for port in (*model.inputs, *model.outputs):
            port.get_tensor().set_names(set())  # each name may stand for one tensor
    joined = openvino.Model(
        [result for model in models for result in model.get_results()],
        [parameter for model in models for parameter in model.get_parameters()],
    )
    compiled = compile_model(joined, "CPU", _CONFIGURATION)
    right = set(tried)
    for turn in range(max(len(questions) for questions, _, _ in tried.values())):
        asked = [questions[min(turn, len(questions) - 1)] for questions, _, _ in tried.values()]
        inputs, wanted = [v for i, _, _ in asked for v in i], [w for _, results, _ in asked for w in results]
        got = iter(_run(compiled, inputs, wanted))
        for (node, (questions, _, _)), (_, results, difference) in zip(tried.items(), asked, strict=True):
            pairs = [(next(got), expected) for expected in results]
            if turn < len(questions) and any(difference(*pair) for pair in pairs):
                right.discard(node)
    return right


def _questions(gm: GraphModule, node: Node) -> Iterator[_Question]:
    """What to ask of code for ``node``.

    Raises:
        _NoAnswer: torch takes no inputs.
    """
    pointwise = torch.Tag.pointwise in node.target.tags
    for seed in range(_rounds(node)):
        found = _torchs_answer(gm, node, seed)
        if found is None:
            raise _NoAnswer
        yield *found, functools.partial(_difference, pointwise=pointwise)
    if _decides(node):
        yield from _extremes(gm, node)


def _decides(node: Node) -> bool:
    """Whether one number that is not finite shows in a result of ``node``, in a way that torch defines."""
    target: Any = node.target
    if target is _aten.relu.default:
        return False  # hides a nan, but what else would be fused behind convolutions? (docs/backends.md)
    floats = (v for v in values_in_use(node) if isinstance(v, torch.Tensor) and v.is_floating_point())
    if next(floats, None) is None:
        return False
    if target.overloadpacket is _aten._to_copy:
        return node.meta["val"].dtype is torch.bool  # an integer of nan is whatever the processor makes of it
    return torch.Tag.pointwise in target.tags or target.overloadpacket in _DECIDED


def _extremes(gm: GraphModule, node: Node) -> Iterator[_Question]:
    """Whether nan, infinities and large numbers come through as torch has them."""
    for seed in range(_rounds(node)):
        inputs, _ = _torchs_answer(gm, node, seed) or ([], ())
        random = torch.Generator().manual_seed(_SEED + seed)
        inputs = [_with_extremes(v, random, seed if _is_of_one(node) else None) for v in inputs]
        yield inputs, gm.forward(*inputs), _difference_of_extremes


def _difference_of_extremes(got: torch.Tensor, wanted: torch.Tensor) -> str:
    same = torch.allclose(got, wanted, rtol=1e-2, atol=1e-4, equal_nan=True)
    return "" if same else " where a number is nan, infinite or large"


def _with_extremes(value: Any, random: torch.Generator, turn: int | None) -> Any:
    """Extreme numbers in place of those of ``value``: in their order from a ``turn`` on, or drawn."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return value
    part = min(value.numel(), 100_003)
    if turn is None:
        places = torch.randint(0, len(_EXTREME), (part,), generator=random)
    else:
        places = (torch.arange(part) + turn * part) % len(_EXTREME)
    extreme = torch.tensor(_EXTREME)[places]
    return extreme.repeat(-(-value.numel() // max(1, extreme.numel())))[: value.numel()].reshape(value.shape)


def _only_on_zeros(node: Node) -> bool:
    """Whether a trial would see no integer but zero where integers decide integers."""
    values, count = values_in_use(node), len(node.all_input_nodes)
    taken, made = (any(map(_is_integer, part)) for part in (values[:count], values[count:]))
    return taken and made and _magnitudes(node) is _UNCHECKED


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32)


def _size(node: Node) -> int:
    """How many numbers its tensors have, in the first call where sizes are symbolic; what data decides is large."""
    tensors = [v for v in values_in_use(node) if isinstance(v, torch.Tensor)]
    sizes = [[s if type(s) is int else s.node.hint for s in v.shape] for v in tensors]
    return sum(math.prod(LARGEST_TOGETHER + 1 if s is None else s for s in shape) for shape in sizes)


def _rounds(node: Node) -> int:
    sizes = [v.meta["val"].numel() for v in node.all_input_nodes if isinstance(v.meta["val"], torch.Tensor)]
    least = min((s if type(s) is int else s.node.hint for s in sizes), default=_NUMBERS)
    wanted = _NUMBERS_OF_ONE if _is_of_one(node) else _NUMBERS
    return min(_MOST_ROUNDS, -(-wanted // max(1, least)))


def _is_of_one(node: Node) -> bool:
    """Whether ``node`` takes one tensor of floats, and nothing else that is made up."""
    fakes = [value.meta["val"] for value in node.all_input_nodes]
    return len(fakes) == 1 and isinstance(fakes[0], torch.Tensor) and fakes[0].dtype.is_floating_point


def _torchs_answer(gm: GraphModule, node: Node, seed: int) -> tuple[list[Any], Sequence[torch.Tensor]] | None:
    """Inputs that torch takes, and its results."""
    for inputs in _inputs(node, seed):
        try:
            results = gm.forward(*inputs)
        except (RuntimeError, IndexError, ZeroDivisionError, ValueError):
            continue
        if all(_fits(r) for r in results):
            return inputs, results
    return None


def _fits(result: torch.Tensor) -> bool:
    return not is_long(result) or not result.numel() or int(result.abs().max()) < 2**31


def _inputs(node: Node, seed: int) -> Iterator[list[Any]]:
    fakes = [value.meta["val"] for value in node.all_input_nodes]
    integers = any(isinstance(f, torch.Tensor) and not f.dtype.is_floating_point for f in fakes)
    turn = seed if _is_of_one(node) else None
    shapes = tuple((f.dtype, _shape(f)) if isinstance(f, torch.Tensor) else _number(f) for f in fakes)
    for magnitude in _magnitudes(node) if integers else _UNCHECKED:
        for signed in (True, False) if magnitude else (False,):
            yield _made_up_once(shapes, magnitude, signed, seed, turn)


def _shape(fake: torch.Tensor) -> tuple[int, ...]:
    return tuple(_number(size) for size in fake.shape)


def _number(value: Any) -> int:
    return value if type(value) is int else value.node.hint


def _made_up_once(shapes: tuple[Any, ...], magnitude: int, signed: bool, seed: int, turn: int | None) -> list[Any]:
    """Inputs of these dtypes and shapes; the operators of a graph have small ones in common, and write to none."""
    small = sum(math.prod(each[1]) for each in shapes if isinstance(each, tuple)) <= _SMALL
    return (_kept_inputs if small else _kept_inputs.__wrapped__)(shapes, magnitude, signed, seed, turn)


@functools.lru_cache(maxsize=512)
def _kept_inputs(shapes: tuple[Any, ...], magnitude: int, signed: bool, seed: int, turn: int | None) -> list[Any]:
    random = torch.Generator().manual_seed(_SEED + seed)
    return [_made_up(each, magnitude, signed, random, turn) for each in shapes]


def _magnitudes(node: Node) -> tuple[int, ...]:
    target: Any = node.target
    packet = target.overloadpacket
    if torch.Tag.pointwise in target.tags or packet in _COMPUTE or aliasing.is_view(node):
        return _COMPUTING
    return _CHECKED if packet in _CHECK else _UNCHECKED


def _made_up(kind: Any, magnitude: int, signed: bool, random: torch.Generator, turn: int | None) -> Any:
    """A tensor of a dtype and a shape, or the number that ``kind`` is.

    Special numbers are among those that are drawn, or come by turns, so that a tensor of few elements meets each.
    """
    if not isinstance(kind, tuple):
        return kind
    dtype, shape = kind
    count = math.prod(shape)
    # Large tensors repeat a part, since making random numbers takes longer than computing with them.
    part = min(count, 100_003)
    if dtype.is_floating_point:
        values = torch.randn(part, generator=random)
        if turn is None and part < len(_SPECIAL):
            drawn = torch.tensor(_SPECIAL)[torch.randint(0, len(_SPECIAL), (part,), generator=random)]
            values = torch.where(torch.rand(part, generator=random) < 0.5, drawn, values)
        else:
            special = torch.tensor(_SPECIAL[(turn or 0) * part :][:part])
            values[: len(special)] = special
            values = values[torch.randperm(part, generator=random)]
    elif dtype is torch.bool:
        values = torch.randint(0, 2, (part,), generator=random)
    else:
        most = min(magnitude, torch.iinfo(dtype).max)
        least = max(-magnitude if signed else 0, torch.iinfo(dtype).min)
        values = torch.randint(least, most + 1, (part,), generator=random)
        # Small numbers among the large ones: rounding shows in those, and lost digits in these.
        scale = 2 ** torch.randint(0, most.bit_length() or 1, (part,), generator=random)
        values = torch.div(values, scale, rounding_mode="trunc")
    values = values.to(dtype)
    repeated = values.repeat(-(-count // part))[:count] if part else values
    return repeated.reshape(shape)


def _run(compiled: Any, inputs: Sequence[Any], wanted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """What the compiled model makes of ``inputs``, in memory that holds anything but ``wanted`` before.

    OpenVINO leaves some results unwritten (2026.4: ``repeat`` of a scalar by no sizes), and what memory that was just
    freed holds is often the right answer.
    """
    arrays = [v.numpy() if isinstance(v, torch.Tensor) else torch.tensor(v).numpy() for v in inputs]
    request = compiled.create_infer_request()
    memories = [_wrong(w) for w in wanted]  # which nothing of OpenVINO's keeps alive
    for port, (output, memory) in enumerate(zip(compiled.outputs, map(borrowed, memories), strict=True)):
        # Where type or shape differ, so does the result, and is told from torch's.
        fits = output.partial_shape.is_dynamic or output.shape == memory.shape
        if fits and memory.size and output.element_type == memory.element_type:
            request.set_output_tensor(port, memory)
    results = request.infer(arrays)
    return [torch.from_numpy(results[port]) for port in compiled.outputs]


def _wrong(wanted: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor that differs from ``wanted`` in each element."""
    if wanted.is_floating_point():
        return torch.where(wanted.isnan(), 7.0, torch.nan).to(wanted.dtype).contiguous()
    return wanted.bitwise_not().contiguous()


def _difference(got: torch.Tensor, wanted: torch.Tensor, pointwise: bool) -> str:
    """In what a result differs from torch's, or an empty string."""
    told = _told(got, wanted, pointwise)
    return f": {told}" if told else ""


def _told(got: torch.Tensor, wanted: torch.Tensor, pointwise: bool) -> str:
    """In what a result differs from torch's, or an empty string."""
    if got.dtype is not wanted.dtype:
        return f"{got.dtype} where torch has {wanted.dtype}"
    if got.shape != wanted.shape:
        return f"a result of shape {list(got.shape)} where torch has {list(wanted.shape)}"
    if not wanted.dtype.is_floating_point:
        count = int((got != wanted).sum())
        return f"{count} of {wanted.numel()} numbers differ" if count else ""
    if torch.allclose(got, wanted, _TOLERANCE / 10, 0.0, equal_nan=True):
        return ""  # each element is within less than what is allowed, which takes less time to say
    finite, infinite = wanted.isfinite(), wanted.isinf()
    if not torch.equal(got.isnan(), wanted.isnan()) or not torch.equal(got[infinite], wanted[infinite]):
        return "nan or infinity in different positions"
    got, wanted = got[finite].double(), wanted[finite].double()
    if not wanted.numel():
        return ""
    error = float((got - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6))
    if error > _TOLERANCE:
        return f"a relative error of {error:.0e}"
    worst = float(((got - wanted).abs() / wanted.abs().clamp_min(1e-12)).max()) if pointwise else 0.0
    return "" if worst <= _POINTWISE_TOLERANCE else f"an element with a relative error of {worst:.0e}"
