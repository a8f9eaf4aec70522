"""The code of a part as files: what was generated, as C++ and assembly or as Triton, and the library of it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from torchmux.registry.spec import ToolFile

from ..common.cache import code_or_refusal
from . import targets


def tool_files(target: str, code: str, host: str, own: Mapping[str, Any], key: str | None) -> list[ToolFile]:
    """The kernels, the Python function ``run`` that calls them, and the library if it is kept under ``key``.

    The library exports ``run0`` and so on, which take a table of addresses, scratch memory and sizes, as ``host`` has
    it.
    """
    found = [_of_text("host", ".py", functools.partial(str, host))]
    if not code:
        return found
    texts = targets.named(target).texts(code, own)
    found += [_of_text(text.kind, text.suffix, text.make, text.needs) for text in texts]
    kept = None if key is None or not texts[-1].is_linked else code_or_refusal.load_code(key)
    if kept is not None and kept.code:
        found.append(ToolFile("library", ".so", functools.partial(_write, lambda: kept.code), needs=texts[-1].needs))
    return found


def _of_text(kind: str, suffix: str, text: Callable[[], str], needs: str = "") -> ToolFile:
    return ToolFile(kind, suffix, functools.partial(_write, lambda: text().encode()), text, needs=needs)


def _write(
    content: Callable[[], bytes], path: Path, names: Sequence[str], weights: Mapping[int, torch.Tensor]
) -> list[Path]:
    path.write_bytes(content())
    return [path]
