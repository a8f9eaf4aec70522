"""Compiled code in a copy of the process, such as one that loads data, runs; more is compiled, or left to torch."""

from __future__ import annotations

import os
import select
import signal

import pytest
import torch

import torchmux

BACKENDS = ("native", "onnxrt", "openvino", "tvm")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_calls_and_compiles(backend, tmp_path, monkeypatch) -> None:
    if backend != "native":
        pytest.importorskip({"onnxrt": "onnxruntime"}.get(backend, backend))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # those of OpenMP are not copied, and eager would wait for them
    try:
        x = torch.arange(24.0).view(4, 6)
        compiled = torchmux.compile(lambda x: (x.sin() + 1) * x.sum(0), backend=backend)
        compiled(x)
        monkeypatch.setattr(torchmux.config, "cache_dir", tmp_path)
        source, told = os.pipe()
        copy = os.fork()
        if not copy:
            try:
                right = torch.allclose(compiled(x), (x.sin() + 1) * x.sum(0), rtol=1e-5)
                torchmux.reset()
                more = torchmux.compile(lambda x: x.cosh().log1p() - 7, backend=backend)(x)
                os.write(told, b"right" if right and torch.allclose(more, x.cosh().log1p() - 7) else b"wrong")
            finally:
                os._exit(0)
        os.close(told)
        answered = select.select([source], [], [], 60)[0]
        said = os.read(source, 9) if answered else b"never"
        os.close(source)
        os.kill(copy, signal.SIGKILL)
        os.waitpid(copy, 0)
        assert said == b"right"
    finally:
        torch.set_num_threads(threads)
