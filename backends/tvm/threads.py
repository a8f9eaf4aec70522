"""TVM's threads: as many as torch's, without disturbing them.

TVM has its own pool besides torch's OpenMP threads, and library calls alternate between the two.  By default TVM pins
threads to cores, including the calling thread, so OpenMP's threads, which inherit this, share one core.  Its idle
threads also spin for milliseconds on cores that torch needs.  BERT-base ran 9 times slower with the first setting, and
1.5 times with the second.  TVM reads these settings from the environment when a thread first runs something in
parallel; values that the user set there are kept.
"""

from __future__ import annotations

import os
import threading

import torch
import tvm_ffi

_local = threading.local()  # a pool belongs to the thread that calls


def follow_torch() -> None:
    """Give this thread's pool as many threads as torch has; cheap when nothing has changed."""
    wanted = torch.get_num_threads()
    if getattr(_local, "configured", 0) != wanted:
        _configure(wanted)
        _local.configured = wanted


def _configure(wanted: int) -> None:
    os.environ.setdefault("TVM_BIND_THREADS", "0")
    os.environ.setdefault("TVM_THREAD_POOL_SPIN_COUNT", "0")
    # What a pool can ever have; without it TVM takes half of the cores.
    os.environ.setdefault("TVM_NUM_THREADS", str(max(wanted, os.cpu_count() or 1)))
    tvm_ffi.get_global_func("runtime.config_threadpool")(1, wanted)
