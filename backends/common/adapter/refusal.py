"""The old home of :class:`torchmux.registry.NodesRefused`, for ``backends/native`` until it names the new one."""

from torchmux.registry.errors import NodesRefused

__all__ = ["NodesRefused"]
