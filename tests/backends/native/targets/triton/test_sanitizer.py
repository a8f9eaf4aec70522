"""What kernels do wrong to memory is found, though the interpreter lets it pass."""

from __future__ import annotations

import pytest
import torch

from ...sanitizer import sanitized

pytestmark = [
    pytest.mark.parametrize("target", ["triton"], indirect=True),
    pytest.mark.usefixtures("target"),
]

HEAD = "import triton\nimport triton.language as tl\n@triton.jit\n"
KERNELS = {
    "past the end": (
        "def kernel(p0, p1):\n    x = tl.program_id(0) * 8 + tl.arange(0, 8)\n    tl.store(p1 + x, tl.load(p0 + x))\n",
        "reads element 12 of argument p0, which has 12",
    ),
    "masked": (
        "def kernel(p0, p1):\n"
        "    x = tl.program_id(0) * 8 + tl.arange(0, 8)\n"
        "    tl.store(p1 + x, tl.load(p0 + x, x < 12), x < 12)\n",
        None,
    ),
    "before the beginning": (
        "def kernel(p0, p1):\n    tl.store(p1 - 1 + tl.program_id(0), tl.load(p0))\n",
        "writes element -1 of argument p1",
    ),
    "one place": (
        "def kernel(p0, p1):\n    tl.store(p1, tl.load(p0 + tl.program_id(0)))\n",
        "writes in one program what another one writes",
    ),
    "the same in one place": ("def kernel(p0, p1):\n    tl.store(p1, tl.load(p0))\n", None),
    "read while written": (
        "def kernel(p0, p1):\n    x = tl.program_id(0)\n    tl.store(p0 + x, tl.load(p0 + 1 - x))\n",
        "reads in one program what another one writes",
    ),
    "added": ("def kernel(p0, p1):\n    tl.atomic_add(p1, tl.load(p0 + tl.program_id(0)))\n", None),
    "added and read": (
        "def kernel(p0, p1):\n    tl.atomic_add(p1, tl.load(p0) + tl.load(p1))\n",
        "reads in one program what another one adds to",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_it_is_found(name: str) -> None:
    from torchmux.backends.native.targets.triton import loading

    source, words = KERNELS[name]
    kernel = loading.defined(HEAD + source)["kernel"]
    memory = torch.arange(64, dtype=torch.float32)  # so that what is outside is still somebody's
    with sanitized() as found:
        loading.launch(kernel, 2, memory[16:28], memory[32:44])
        told, found.findings = found.findings, []
    assert found.launches == 1
    assert told == [] if words is None else any(words in finding for finding in told), told
