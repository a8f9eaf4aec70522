"""What is said of a backend is not so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx import GraphModule

from .kit import Faults, Run

faults = Faults("honesty")


@faults("semantics/use/runs_what_it_says")
def silent_fallback(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend claims to compute by itself, but lets torch run the graph."""
    return gm.forward


@faults("semantics/training/convolutions")
def silent_fallback_in_training(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend claims to compute training by itself, but lets torch run it."""
    return gm.forward


@faults("semantics/layers/pooling")
def silent_fallback_of_layers(gm: GraphModule, inputs: Sequence[Any]) -> Run:
    """The backend claims layers that no probe of a few operators asks for, but lets torch run them."""
    return gm.forward


@faults("semantics/use/unknown_option")
def ignored_option(gm: GraphModule, inputs: Sequence[Any], **options: Any) -> Run:
    """The backend accepts every option and ignores it."""
    return gm.forward
