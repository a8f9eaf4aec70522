"""A program that compiles one captured graph, for the developer of a backend that failed to compile it."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

import torch

from torchmux.config import config
from torchmux.quoting import is_name, quoted
from torchmux.version import __version__

log = logging.getLogger("torchmux")

_PROGRAM = '''\
"""{name} fails to compile this graph.  Written by torchmux {version}, torch {torch_version}."""

import torch

import torchmux
{imports}
{note}

class Graph(torch.nn.Module):
{forward}

inputs = [
{inputs}
]
torchmux.compile(Graph(), backend={backend!r}, fullgraph=True)(*inputs)
'''


def write(backend: str, gm: Any, text: str, inputs: list) -> tuple[Path, bool] | None:
    """Write the program into the cache folder; its path and whether it can be run.  None where it cannot be written.

    ``text`` is the graph's code before the backend had it, ``gm`` may have been changed by then.
    """
    body = text.strip("\n").split("\n")
    start = next((i for i, line in enumerate(body) if line.startswith("def ")), 0)
    # parts of the graph are separate graphs, or it uses what only a capture of the original program provides
    runs = not any(word in text for word in ("self.", "_enter_autocast"))
    program = _PROGRAM.format(
        name=quoted(backend),
        backend=backend,
        version=__version__,
        torch_version=torch.__version__,
        imports="\n".join(_imports(gm)),
        note=""
        if runs
        else "\n# This program is only for reading: the graph refers to objects that cannot be written as text.",
        forward="\n".join("    " + line if line.strip() else "" for line in body[start:]),
        inputs="\n".join(f"    {_make(value)}," for value in inputs),
    )
    folder = Path(config.cache_dir) / "reproducers"
    path = folder / f"{_safe(backend)}-{hashlib.sha256(program.encode()).hexdigest()[:12]}.py"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(program, encoding="utf-8")
    except OSError as error:
        log.warning("cannot write %s: %s", path, error)
        return None
    return path, runs


# Names that FX gives to what its code uses besides torch.
_KNOWN_NAMES = {
    "inf": "from math import inf",
    "nan": "from math import nan",
    "NoneType": "NoneType = type(None)",
    "device": "from torch import device",
    "fx_pytree": "import torch.fx._pytree as fx_pytree",
    "pytree": "import torch.utils._pytree as pytree",
}


def _imports(gm: Any) -> list[str]:
    lines = []
    for name, value in sorted(gm.graph.python_code("self").globals.items()):
        if name in _KNOWN_NAMES:
            lines.append(_KNOWN_NAMES[name])
        elif name != "torch" and (module := getattr(value, "__module__", None)):
            own = getattr(value, "__name__", "")
            if not (is_name(module) and is_name(own)):
                lines.append(f"# {quoted(name)} is {quoted(own)} of {quoted(module)}, which cannot be imported")
            else:
                lines.append(f"from {module} import {own} as {name}")
    return lines


def _safe(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name).strip("_") or "backend"


def _make(value: Any) -> str:
    """An expression for an input like ``value``; what is in a tensor is not kept."""
    if not isinstance(value, torch.Tensor):
        return repr(value if isinstance(value, (int, float, bool, str, type(None))) else int(value))
    size, stride = tuple(map(int, value.shape)), tuple(map(int, value.stride()))
    kind = value.dtype
    if kind.is_floating_point or kind.is_complex:
        made = "torch.randn" if kind in (torch.float32, torch.float64, torch.complex64, torch.complex128) else ""
        text = f"{made}({size}, dtype={kind})" if made else f"torch.randn({size}).to({kind})"
    else:
        text = f"torch.zeros({size}, dtype={kind})"
    if value.device.type != "cpu":
        text += f".to({str(value.device)!r})"
    if stride != tuple(torch.empty(size, device="meta").stride()):
        text = f"torch.empty_strided({size}, {stride}, dtype={kind}, device={str(value.device)!r}).copy_({text})"
    return text + (".requires_grad_()" if value.requires_grad else "")
