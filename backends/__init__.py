"""The backends that come with torchmux: one module or package per compiler.

Each provides a light ``SPEC``; the compiler itself is imported at the first compilation.

* ``common``: the pipeline, the artifact cache and the adapter kit that they share,
* ``eager``, ``aot_eager``: no compiler; torch runs the captured graph, or the ATen graph traced from it,
* ``native``: a compiler of our own,
* ``onnxrt``, ``openvino``, ``tvm``, ``tensorrt``: adapters of other runtimes,
* ``cudagraphs``: torch's own kernels, recorded,
* ``inductor``: torch's compiler, with its own pipeline,
* ``tombstones``: retired names.

The name ``torchmux.backends`` has two meanings by design: this package, and the function that lists known backends.
The package is therefore callable, so that neither meaning depends on earlier imports.

Examples:
    >>> {"eager", "native", "onnxrt"} <= {row.name for row in torchmux.backends()}
    True
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
