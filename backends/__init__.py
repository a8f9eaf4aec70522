"""The backends that come with torchmux: one module or package per compiler.

Each offers a light ``SPEC``; the compiler itself is imported at the first compile.

* ``common``: the pipeline, the artifact cache and the adapter kit that they share,
* ``eager``, ``aot_eager``: no compiler; the captured graph, and what it is traced to, run by torch,
* ``native``: a compiler of our own,
* ``onnxrt``, ``openvino``, ``tvm``, ``tensorrt``: adapters of other runtimes,
* ``cudagraphs``: torch's own kernels, recorded,
* ``inductor``: torch's compiler, with its own pipeline,
* ``tombstones``: names that are retired.

The name ``torchmux.backends`` has two meanings by design: this package, and the function that lists what is known.
The package is therefore callable, so that neither meaning depends on what was imported before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchmux.registry import BackendInfo


class _CallablePackage(ModuleType):
    def __call__(self) -> list[BackendInfo]:
        """All known backends, best first; see :func:`torchmux.registry.backends`."""
        from torchmux.registry import backends

        return backends()


sys.modules[__name__].__class__ = _CallablePackage
