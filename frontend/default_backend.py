"""The backend of a ``compile()`` call that names none.

The device decides.  The device of a function is known only when the function is called.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchmux.logs import emit
from torchmux.registry import resolve
from torchmux.registry.resolve import ResolvedBackend
from torchmux.registry.spec import BackendSpec

log = logging.getLogger("torchmux")


class DefaultBackend:
    """Stands for a backend until a graph with tensors is compiled; each device has its own.

    Args:
        settings: the other arguments of :func:`torchmux.registry.resolve`.
        model: what is compiled; its parameters and buffers determine the expected device.

    Raises:
        TorchmuxError: as :func:`torchmux.registry.resolve`, for the expected device.
    """

    def __init__(self, settings: Mapping[str, Any], model: Any) -> None:
        self._settings = settings
        self._known: dict[str, ResolvedBackend] = {}
        held = itertools.chain(model.parameters(), model.buffers()) if isinstance(model, torch.nn.Module) else ()
        shown = _device_of(held)
        self._device = torch.get_default_device().type if shown is None else shown
        self._expected = self._on(self._device) if shown is not None else resolve(None, device=self._device, **settings)

    @property
    def key(self) -> Hashable:
        """Equal for calls that choose the same backend."""
        return ("default", self._expected.key)

    @property
    def spec(self) -> BackendSpec:
        """That of the backend for the expected device."""
        return self._expected.spec

    def for_inputs(self, inputs: Sequence[Any]) -> ResolvedBackend:
        """The backend for a graph on these inputs."""
        return self._on(_device_of(inputs) or self._device)

    def _on(self, device: str) -> ResolvedBackend:
        found = self._known.get(device)
        if found is None:
            found = self._known[device] = told(resolve(None, device=device, **self._settings))
        return found


def told(chosen: ResolvedBackend) -> ResolvedBackend:
    """The same; the log has why it was chosen."""
    log.info("%s", chosen.why)
    emit("backends", chosen.why)
    return chosen


def _device_of(values: Iterable[Any]) -> str | None:
    """The device type of some tensors: an accelerator if there is one, None if there is no tensor."""
    kinds = dict.fromkeys(value.device.type for value in values if isinstance(value, torch.Tensor))
    return next((kind for kind in kinds if kind not in ("cpu", "meta")), next(iter(kinds), None))
