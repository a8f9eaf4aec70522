"""One CUDA graph, with the memory it reads and writes."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch

from torchmux import torch_internals as internals

from ..common.pipeline.overlap import is_overlapping, span
from .pool import Pool

Run = Callable[..., Sequence[torch.Tensor]]


class Recording:
    """The kernels that ``run(*args)`` launches, recorded on the memory of ``args``.

    Args:
        copied_in: positions of tensor arguments that get a buffer, to which each call copies what it is given.  The
            kernels read the others where they are now, and :meth:`moved` tells whether a call's are there.
        copied_out: positions of results that each call copies; of the others the caller gets the memory itself, and
            :meth:`in_use` tells which of them the program still holds.
        writes: positions of arguments that ``run`` changes.

    Raises:
        RuntimeError: something in ``run`` cannot be recorded.
    """

    def __init__(
        self,
        run: Run,
        args: Sequence[Any],
        pool: Pool,
        copied_in: Collection[int],
        copied_out: Collection[int],
        writes: Sequence[int] = (),
    ) -> None:
        tensors = [p for p, value in enumerate(args) if isinstance(value, torch.Tensor)]
        self._fixed = [p for p in tensors if p not in copied_in]
        self._addresses = [args[p].data_ptr() if p in tensors else None for p in range(len(args))]
        self._copied_in = sorted(copied_in)
        with torch.inference_mode(False), torch.no_grad():
            buffers = {p: _like(args[p]) for p in self._copied_in}
            self._graph, self._outputs = _record(run, [buffers.get(p, a) for p, a in enumerate(args)], pool)
        self._of_inference = _of_inference(self._outputs)
        # An argument that shows memory twice is copied as the memory it shows, so its strides have to be the same.
        self._overlapping = {p: buffers[p].stride() for p in self._copied_in if is_overlapping(buffers[p])}
        self._buffers = [self._to_copy(p, buffer) for p, buffer in buffers.items()]
        self._copied_out = sorted(copied_out)
        self._writes = list(writes)
        self._given_back = [(p, buffers[p]) for p in self._writes if p in buffers]

        # Who holds the memory of an argument is of no interest: no call writes there.
        foreign = {args[p].untyped_storage().data_ptr() for p in self._fixed}
        own = {o.untyped_storage().data_ptr(): o.untyped_storage() for o in self._outputs}
        copied = {self._outputs[p].untyped_storage().data_ptr() for p in copied_out}
        self._lent = [storage for address, storage in own.items() if address not in foreign | copied]
        del own, buffers
        self._held = [internals.storage_use_count(s) for s in self._lent]
        self.addresses = frozenset(s.data_ptr() for s in self._lent)
        pool.add(self)

    def moved(self, args: Sequence[Any]) -> list[int]:
        """The positions of arguments that are not where the kernels read them."""
        if internals.addresses_equal(args, self._addresses, self._fixed):
            return []
        return [p for p in self._fixed if args[p].data_ptr() != self._addresses[p]]

    def fits(self, args: Sequence[Any]) -> bool:
        """Whether what is copied in can be."""
        return all(args[p].stride() == stride for p, stride in self._overlapping.items())

    def in_use(self) -> list[int]:
        """The positions of results of earlier calls whose memory the program still holds."""
        held = {
            storage.data_ptr()
            for storage, expected in zip(self._lent, self._held, strict=True)
            if internals.storage_use_count(storage) != expected
        }
        return [p for p, o in enumerate(self._outputs) if o.untyped_storage().data_ptr() in held] if held else []

    def replay(self, args: Sequence[Any]) -> list[torch.Tensor]:
        """Run the kernels on ``args``, which :meth:`fits` and of which none has :meth:`moved`."""
        if self._buffers:
            torch._foreach_copy_(self._buffers, [self._to_copy(p, args[p].detach()) for p in self._copied_in])
        self._graph.replay()
        for position in self._writes:
            torch.autograd.graph.increment_version(args[position])
        for position, buffer in self._given_back:
            args[position].detach().copy_(buffer)
        results = [o.detach() for o in (self._of_inference if torch.is_inference_mode_enabled() else self._outputs)]
        if self._copied_out:
            fresh = [_like(self._outputs[p]) for p in self._copied_out]
            torch._foreach_copy_(fresh, [self._outputs[p] for p in self._copied_out])
            for position, tensor in zip(self._copied_out, fresh, strict=True):
                results[position] = tensor
        return results

    def _to_copy(self, position: int, tensor: torch.Tensor) -> torch.Tensor:
        return span(tensor) if position in self._overlapping else tensor


def _record(run: Run, args: Sequence[Any], pool: Pool) -> tuple[Any, list[torch.Tensor]]:
    """The graph of ``run``'s kernels, none of which runs, and the tensors they will write."""
    torch.cuda.synchronize(pool.device)
    graph, handle = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    with torch.cuda.stream(pool.side), _without_garbage_collection():
        try:
            graph.capture_begin(pool=handle, capture_error_mode="thread_local")
            outputs = list(run(*args))
            graph.capture_end()
        except BaseException:
            with contextlib.suppress(RuntimeError):
                graph.capture_end()
            with contextlib.suppress(RuntimeError):
                internals.end_allocating_to_pool(pool.device, handle)
            _recover()
            raise
    return graph, outputs


def _of_inference(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same memory as tensors that were made in inference mode, which no other tensor becomes."""
    with torch.inference_mode():
        return [
            torch.empty(0, dtype=t.dtype, device=t.device).set_(
                t.untyped_storage(), t.storage_offset(), t.size(), t.stride()
            )
            for t in tensors
        ]


def _recover() -> None:
    """Undo what a recording that failed leaves: to torch its memory is still being recorded, and so is the generator,
    which draws nothing until a recording ends well."""
    graph, target = torch.cuda.CUDAGraph(), torch.empty(1, device="cuda")
    graph.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
    target.zero_()
    graph.capture_end()


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collecting someone's graph or event on the way would be an error while kernels are recorded."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _like(tensor: torch.Tensor) -> torch.Tensor:
    """Memory with the sizes and strides of ``tensor``."""
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device)
