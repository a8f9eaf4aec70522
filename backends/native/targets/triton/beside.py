"""Several small kernels as one: each program of it belongs to one of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ...ir.expressions import Buffer
from .scopes import TritonKernel
from .shapes import MULTIPROCESSORS, Shape

_FEW_PROGRAMS = 8 * MULTIPROCESSORS
"""More of them take longer than it takes to start a kernel."""
_WARPS = 4
"""A kernel of fewer warps runs with so many: its warps then do the same, which costs less than a start."""
_LONGEST = 120
"""So many lines: every kernel of a launch is compiled anew for each place where it stands."""


def kind(kernel: TritonKernel) -> Hashable:
    """What :func:`joined` kernels have in common; None for one that is better started alone."""
    small = type(kernel.programs) is int and 0 < kernel.programs <= _FEW_PROGRAMS
    if not small or kernel.sizes or kernel.source.count("\n") > _LONGEST:
        return None
    # Products walk their terms in stages, and take much longer than other kernels of as many programs.
    return max(kernel.shapes[0].warps, _WARPS), kernel.shapes[0].stages


def joined(kernels: Sequence[TritonKernel]) -> TritonKernel:
    """A kernel whose programs are those of ``kernels``, one after the other, with their first shapes."""
    buffers: dict[Buffer, str] = {}
    parts: dict[str, str] = {}
    lines = []
    begin = 0
    verifies = any(k.verifies for k in kernels)
    for kernel in kernels:
        count, shape = kernel.programs, kernel.shapes[0]
        assert type(count) is int
        part = parts.setdefault(kernel.source, f"kernel_{len(parts)}")
        given = [buffers.setdefault(b, f"p{len(buffers)}") for b in kernel.buffers]
        given += ["bad"] if kernel.verifies else []
        given += [str(size) for _, size in shape.blocks]
        lines.append(f"    if (program >= {begin}) & (program < {begin + count}):")
        lines.append(f"        {part}({', '.join([f'program - {begin}' if begin else 'program', *given])})")
        begin += count
    arguments = [*buffers.values(), *(["bad"] if verifies else [])]
    texts = [
        source.replace("def kernel(", f"def {part}(program, ", 1).replace("tl.program_id(0)", "program")
        for source, part in parts.items()
    ]
    head = ["@triton.jit", f"def kernel({', '.join(arguments)}):", "    program = tl.program_id(0)"]
    source = "\n\n".join([*texts, "\n".join([*head, *lines, ""])])
    shapes = [kernel.shapes[0] for kernel in kernels]
    warps, stages = max(_WARPS, *(s.warps for s in shapes)), max(s.stages for s in shapes)
    return TritonKernel("kernel", source, tuple(buffers), (), verifies, (Shape((), warps, stages, begin),))
