"""``torchmux.compile_repeated_blocks``: the equal layers of a model, compiled once for all of them."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from torchmux.frontend.api import compile
from torchmux.registry.names import class_with_article
from torchmux.wording import require


def compile_repeated_blocks(model: torch.nn.Module, blocks: Sequence[str] | None = None, **arguments: Any) -> list[str]:
    """Compile the layers that a model repeats, in place, so that layers of one class share their code.

    A layer is an argument of the shared code: it takes each layer for which its guards hold, with that layer's weights.
    What lies between the layers runs in eager.  Compiling ``model`` as a whole makes faster code, and takes longer.

    Args:
        model: its layers get another ``forward``.
        blocks: names of classes, such as ``["LlamaDecoderLayer"]``; without them, the classes that stand at least twice
            in a ``ModuleList`` or ``Sequential``, the outermost of them.
        arguments: those of :func:`torchmux.compile`.

    Returns:
        The names of the layers.

    Raises:
        TypeError: ``model`` is no module.
        ValueError: there are no such layers.

    Examples:
        >>> class Layer(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.inner = torch.nn.Linear(4, 4)
        ...     def forward(self, x):
        ...         return torch.relu(self.inner(x))
        >>> model = torch.nn.Sequential(Layer(), Layer())
        >>> torchmux.compile_repeated_blocks(model, backend="eager")
        ['0', '1']
        >>> model(torch.ones(2, 4)).shape
        torch.Size([2, 4])
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"compile_repeated_blocks() takes a module, not {class_with_article(model)}")
    require(blocks, (list, tuple, type(None)), "compile_repeated_blocks(): blocks")
    found = _repeated(model) if blocks is None else _of_classes(model, blocks)
    if not found:
        raise ValueError(
            "compile_repeated_blocks() finds no layers that are repeated. Name their classes: blocks=['Layer']."
        )
    shared: dict[type, Any] = {}
    for block in found.values():
        kind = type(block)
        if kind not in shared:
            shared[kind] = compile(kind.forward, **arguments)
        block.forward = functools.partial(shared[kind], block)
    return list(found)


def _repeated(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    found: dict[str, torch.nn.Module] = {}
    for name, holder in model.named_modules():
        if not isinstance(holder, (torch.nn.ModuleList, torch.nn.Sequential)) or _is_inside(name, found):
            continue
        kinds = [type(child) for child in holder.children()]
        for key, child in holder.named_children():
            if kinds.count(type(child)) > 1:
                found[f"{name}.{key}".lstrip(".")] = child
    return found


def _of_classes(model: torch.nn.Module, blocks: Sequence[str]) -> dict[str, torch.nn.Module]:
    found: dict[str, torch.nn.Module] = {}
    for name, module in model.named_modules():
        if type(module).__name__ in blocks and name and not _is_inside(name, found):
            found[name] = module
    return found


def _is_inside(name: str, found: dict[str, torch.nn.Module]) -> bool:
    return any(name.startswith(f"{outer}.") or name == outer for outer in found)
