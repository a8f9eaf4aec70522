"""The code of a part as files of TVM: the compiled library, and the module in Relax that it was made from."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from torchmux.registry.spec import ToolFile

from ..common.cache import code_or_refusal
from ..common.cache.keys import text_key
from .relax.library import CALL

_LIBRARY = (
    "the functions torchmux.tvm.call and torchmux.tvm.call_into, which run torch's kernels; options={'library': "
    "'none'} compiles most graphs without them"
)


def keep_relax(key: str, relax: str) -> None:
    """Keep the module in Relax of which the code that is kept under ``key`` was made."""
    code_or_refusal.keep_code(_beside(key), None, relax.encode())


def relax_of(key: str | None) -> list[str]:
    """What :func:`keep_relax` has kept; nothing if it is gone."""
    found = None if key is None else code_or_refusal.load_code(_beside(key))
    return [] if found is None else [found.code.decode()]


def tool_files(key: str | None) -> list[ToolFile]:
    """What is kept under ``key``, as files.  A library takes its weights as arguments."""
    kept = None if key is None else code_or_refusal.load_code(key)
    texts = relax_of(key)
    needs = _LIBRARY if any(CALL in text for text in texts) else ""
    found = []
    if kept is not None:
        found.append(ToolFile("tvm-library", ".so", functools.partial(_write, kept.code), needs=needs))
    for text in texts:
        write = functools.partial(_write, text.encode())
        found.append(ToolFile("relax", ".py", write, functools.partial(str, text), needs=needs))
    return found


def _write(content: bytes, path: Path, names: Sequence[str], weights: Mapping[int, torch.Tensor]) -> list[Path]:
    path.write_bytes(content)
    return [path]


def _beside(key: str) -> str:
    return text_key("relax", key)
