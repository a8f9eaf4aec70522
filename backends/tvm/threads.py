"""TVM's threads: as many as torch's."""

from __future__ import annotations

import torch

_configured = 0


def follow_torch() -> None:
    """Give TVM's pool as many threads as torch has; cheap when nothing has changed."""
    global _configured
    wanted = torch.get_num_threads()
    if wanted != _configured:
        import tvm

        tvm.get_global_func("runtime.config_threadpool")(1, wanted)
        _configured = wanted
