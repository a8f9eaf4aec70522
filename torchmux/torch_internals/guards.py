"""Guards that torch checks in C++: on tensors, and on the global state that operators depend on."""

from __future__ import annotations

from torch._C._dynamo.guards import GlobalStateGuard as GlobalStateGuard, TensorGuards as TensorGuards
