"""Cases that cover every pair of circumstances: program, dtype, layout, sizes, phase, threads, freezing, dynamic sizes.

A fault often needs two circumstances at once, and seldom three.  A covering design has each pair of values in some
case, in few cases (:func:`covering`).  The quick level covers the pairs of circumstances, with a program for each case
by turns; the full level covers the pairs with programs too.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F

import torchmux
from torchmux.registry.names import members_of

from .case import Case, Trial

PREFIX = "pairs/"

SEED = 20
"""Of the design; reports have it."""

_CANDIDATES = 20

Row = dict[str, str]


def covering(factors: Mapping[str, Sequence[str]], allowed: Callable[[Row], bool], seed: int) -> list[Row]:
    """Rows with a value of each factor, so that each pair of values of two factors that ``allowed`` allows is in one.

    Always the same for one seed.  Each row is the best of some random ones around a pair that is still missing.
    """
    draw, names = random.Random(seed), list(factors)
    missing = dict.fromkeys(
        ((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in factors[a] for y in factors[b]
    )
    rows: list[Row] = []
    while missing:
        wanted = next(iter(missing))
        made = ({**{n: draw.choice(factors[n]) for n in names}, **dict(wanted)} for _ in range(10 * _CANDIDATES))
        found = list(itertools.islice((row for row in made if allowed(row)), _CANDIDATES))
        if not found:
            del missing[wanted]  # no row may have it
            continue
        best = max(found, key=lambda row: sum(pair in missing for pair in _pairs(row)))
        rows.append(best)
        for pair in _pairs(best):
            missing.pop(pair, None)
    return rows


def _pairs(row: Row) -> Iterator[Any]:
    return itertools.combinations(row.items(), 2)


_Program = Callable[[torch.Tensor], Any]


def _weight(x: torch.Tensor, *shape: int) -> torch.Tensor:
    size = torch.Size(shape).numel()
    return torch.linspace(-1, 1, size, dtype=x.dtype, device=x.device).view(shape)


def _attention(x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(x, x, x * 0.5)


_ANY: dict[str, _Program] = {
    "elements": lambda x: ((x * 2 + 1).abs() * x, x > 0),
    "sums": lambda x: (x.sum(0), x.sum(-1), x.cumsum(0)),
    "joins": lambda x: torch.cat([x, x * 2, x[:, 1:]], 1),
    "masks": lambda x: (torch.where(x > 0, x, -x), x.masked_fill(x < 0, 1)),
    "moves": lambda x: (x.t().contiguous(), x.flip(1), x[:, ::2] + 1, x.repeat(2, 1)),
}
_FLOAT: dict[str, _Program] = {
    "activations": lambda x: (F.gelu(x), F.silu(x), x.tanh()),
    "softmax": lambda x: (x.softmax(-1), x.log_softmax(0)),
    "norms": lambda x: (F.layer_norm(x, x.shape[1:]), x / (x.norm(dim=-1, keepdim=True) + 1)),
    "products": lambda x: (x @ x.t(), x.t() @ x),
    "means": lambda x: (x.mean(0), x.mean(-1), x.square().mean()),
}
_IMAGES: dict[str, _Program] = {
    "convolution": lambda x: F.conv2d(x, _weight(x, 4, 3, 3, 3), padding=1),
    "pooling": lambda x: (F.max_pool2d(x, 2, ceil_mode=True), F.avg_pool2d(x, 3, 1, 1)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "attention": _attention,
    "resizing": lambda x: (F.pad(x, (1, 2), value=0.5), F.interpolate(x, scale_factor=2)),
}
PROGRAMS = {**_ANY, **_FLOAT, **_IMAGES}

FACTORS: dict[str, Sequence[str]] = {
    "dtype": ("float32", "bfloat16", "float16", "float64", "int64"),
    "layout": ("contiguous", "transposed", "strided", "offset", "last"),
    "size": ("even", "odd", "large", "one", "none"),
    "phase": ("inference", "training"),
    "threads": ("1", "2", "4"),
    "freeze": ("", "freeze"),
    "dynamic": ("", "dynamic"),
}

_ROWS = {"even": (4, 16), "odd": (3, 7), "large": (67, 129), "one": (1, 1), "none": (0, 5)}
_SHAPES = {"even": (2, 3, 4, 8), "odd": (3, 3, 5, 7), "large": (2, 3, 33, 17), "one": (1, 3, 1, 1)}


def _allowed(row: Row) -> bool:
    whole, program = row["dtype"] == "int64", row.get("program", "elements")
    if row["freeze"] and row["phase"] == "training":
        return False
    if program in _IMAGES and (row["size"] == "none" or (program == "batch_norm" and row["size"] == "one")):
        return False
    return not whole or (row["phase"] == "inference" and program in _ANY)


@functools.cache
def _design(full: bool) -> tuple[Row, ...]:
    if full:
        return tuple(covering({"program": list(PROGRAMS), **FACTORS}, _allowed, SEED))
    names, rows = itertools.cycle(PROGRAMS), []
    for row in covering(FACTORS, _allowed, SEED):
        fit = (name for name in names if _allowed({**row, "program": name}))
        rows.append({"program": next(fit), **row})
    return tuple(rows)


def cases(*, full: bool) -> Iterator[Case]:
    """The cases of the design of a level; the full level has those of the quick one too."""
    seen: set[str] = set()
    for quick, row in [(True, row) for row in _design(False)] + [(False, row) for row in _design(True) if full]:
        values = "-".join(value for name, value in row.items() if value and name not in ("program", "threads"))
        name = f"{PREFIX}{row['program']}/{values}-{row['threads']}_threads"
        if name in seen:
            continue
        seen.add(name)
        needs = {row["dtype"], *(["training"] if row["phase"] == "training" else [])}
        yield Case(
            name,
            functools.partial(_run, row),
            f"{row['program']} under circumstances of a covering design",
            frozenset(needs | ({"dynamic_shapes"} if row["dynamic"] else set())),
            quick=quick,
            reference=row["dtype"] not in ("float64", "int64"),
            cancels=True,
            terms=2048,
        )


def _run(row: Row, trial: Trial) -> Any:
    program, image = PROGRAMS[row["program"]], row["program"] in _IMAGES
    shape = (_SHAPES if image else _ROWS)[row["size"]]
    keywords: dict[str, Any] = {"dynamic": bool(row["dynamic"])}
    if row["freeze"] and trial.backend is not None and _freezes(trial.backend):
        keywords["options"] = {**(trial.options or {}), "freeze": True}
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(int(row["threads"]))
    try:
        compiled = trial.compile(program, **keywords)
        for more in (0, 1):
            x = _made(trial, row, (shape[0] + more, *shape[1:]))
            if row["phase"] == "inference":
                with torch.no_grad():
                    found.append(compiled(x))
                continue
            x = x.detach().requires_grad_()
            results = compiled(x)
            results = results if isinstance(results, tuple) else (results,)
            ends = [r for r in results if r.requires_grad]
            weights = [torch.linspace(0.5, 1.5, max(r.numel(), 1)).to(r)[: r.numel()].view(r.shape) for r in ends]
            torch.autograd.backward(ends, weights)
            found.append(([r.detach() for r in results], x.grad))
    finally:
        torch.set_num_threads(before)
    return found


def _freezes(backend: Any) -> bool:
    return isinstance(backend, str) and members_of(backend) is None and "freeze" in torchmux.list_options(backend)


def _made(trial: Trial, row: Row, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor of that shape in the layout of the row."""
    layout, dtype = row["layout"], getattr(torch, row["dtype"])
    if layout == "transposed":
        return trial.tensor(*shape[:-2], shape[-1], shape[-2], dtype=dtype).transpose(-1, -2)
    if layout == "strided":
        return trial.tensor(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]
    if layout == "offset":
        return trial.tensor(torch.Size(shape).numel() + 3, dtype=dtype)[3:].view(shape)
    x = trial.tensor(*shape, dtype=dtype)
    if layout == "last":
        return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x.t().contiguous().t()
    return x
