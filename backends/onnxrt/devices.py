"""Where a session runs: providers for the tensors of a part, CUDA streams, and onnxruntime's actual placement.

onnxruntime falls back to the CPU by itself if a provider's libraries do not load, and for nodes without a kernel in the
provider.  Here the first is an error, and the report shows the second.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch

from torchmux.registry.errors import GraphRefused

from .options import CPU, CUDA, OnnxrtOptions

# Providers that work on torch's CUDA memory and take a stream, with the settings that keep float32 in float32.
_ON_CUDA = {CUDA: {"use_tf32": "0"}, "TensorrtExecutionProvider": {}}


def place_for(values: Sequence[Any], options: OnnxrtOptions) -> Place:
    """Where a part with these tensors runs.

    Raises:
        GraphRefused: the tensors are on a GPU that the providers do not serve, or on several.
    """
    found = {v.device for v in values if isinstance(v, torch.Tensor) and v.device.type != "cpu"}
    if not found:
        return Place(options.provider_names or (CPU,), options)
    if len(found) > 1:
        raise GraphRefused(f"a session runs on one device, but the tensors are on {sorted(map(str, found))}")
    device = found.pop()
    providers = options.provider_names or (CUDA, CPU)
    if providers[0] not in _ON_CUDA:
        raise GraphRefused(f"the tensors are on {device}, but the option 'providers' prefers {providers[0]}")
    return CudaPlace(providers, device, options)


class Place:
    """Runs sessions on the host's memory."""

    takes_constants = True
    """Whether tensors can be initializers on torch's memory; onnxruntime shares none on a GPU."""

    def __init__(self, providers: Sequence[str], options: OnnxrtOptions) -> None:
        self.providers = tuple(providers)
        self._asked = {name: options.options_of(name) for name in providers}

    def with_options(self) -> list[Any]:
        """The providers as ``InferenceSession`` takes them."""
        return [(name, self._asked[name]) if self._asked[name] else name for name in self.providers]

    def prepare(self, settings: Any) -> None:
        """Ask for what :meth:`notes` tells."""
        if self.providers[0] != CPU:
            settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")

    def check(self, session: Any) -> None:
        """Make sure that onnxruntime uses the preferred provider.

        Raises:
            RuntimeError: it does not, usually because a library is missing.
        """
        found = session.get_providers()
        if found[:1] != list(self.providers[:1]):
            raise RuntimeError(
                f"onnxruntime does not start {self.providers[0]} (it has {', '.join(found)}): a library that the "
                f"provider needs is missing, or has the wrong version"
            )

    def notes(self, session: Any) -> tuple[str, ...]:
        """Which ONNX operators run on the CPU although another provider was requested."""
        if self.providers[0] == CPU or not hasattr(session, "get_provider_graph_assignment_info"):
            return ()
        counts: Counter[str] = Counter()
        total = 0
        for assigned in session.get_provider_graph_assignment_info():
            nodes = assigned.get_nodes()
            total += len(nodes)
            if assigned.ep_name == CPU:
                counts.update(node.op_type for node in nodes)
        if not counts:
            return ()
        words = ", ".join(f"{name} ({times} times)" if times > 1 else name for name, times in sorted(counts.items()))
        return (f"onnxruntime runs {counts.total()} of {total} ONNX nodes on the CPU: {words}",)

    def run(self, session: Any, bound: Any) -> None:
        """Run with what is bound."""
        session.run_with_iobinding(bound)


class CudaPlace(Place):
    """Runs sessions on a GPU, on a separate stream that waits for torch's stream and vice versa.

    So the host never waits, results are ready for what torch launches next, and torch may be on any stream.
    """

    takes_constants = False

    def __init__(self, providers: Sequence[str], device: torch.device, options: OnnxrtOptions) -> None:
        super().__init__(providers, options)
        self.device = device
        self._stream = torch.cuda.Stream(device)
        self._lock = threading.Lock()  # runs of one session share the stream and what it allocates
        self._settings: Any = None

    def with_options(self) -> list[Any]:
        shared = {"device_id": str(self.device.index or 0), "user_compute_stream": str(self._stream.cuda_stream)}
        own = {name: {**_ON_CUDA[name], **self._asked[name], **shared} for name in self.providers if name in _ON_CUDA}
        return [(name, own[name]) if name in own else name for name in self.providers]

    def run(self, session: Any, bound: Any) -> None:
        if self._settings is None:
            import onnxruntime

            self._settings = onnxruntime.RunOptions()
            self._settings.add_run_config_entry("disable_synchronize_execution_providers", "1")
        current = torch.cuda.current_stream(self.device)
        with self._lock:
            self._stream.wait_stream(current)
            session.run_with_iobinding(bound, self._settings)
            current.wait_stream(self._stream)
