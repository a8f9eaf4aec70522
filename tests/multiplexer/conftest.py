"""Backends of these tests: they run their parts in torch, remember them, and refuse what they are told to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchmux
from torchmux.registry import NodesRefused


class Picky:
    """Takes all operators but those whose names have one of the words in ``no``, or in ``late`` when it compiles."""

    decompositions: dict[Any, Any] = {}
    library_calls: dict[str, str] = {}

    def __init__(self, no: str = "", late: str = "", fails: str = "") -> None:
        self.no, self.late, self.fails = no.split(), late.split(), fails
        self.parts: list[torch.fx.GraphModule] = []
        self.requests: list[Any] = []

    def supports(self, node: torch.fx.Node) -> Any:
        return next((f"no {word}" for word in self.no if word in str(node.target)), True)

    def compile(self, gm: torch.fx.GraphModule, example_inputs: Any, request: Any) -> Any:
        for node in gm.graph.find_nodes(op="placeholder"):
            assert "val" in node.meta
        calls = [n for n in gm.graph.nodes if n.op == "call_function"]
        if self.fails and any(self.fails in str(n.target) for n in calls):
            raise ValueError(f"cannot do {self.fails}")
        late = {n.name: f"no {w} after all" for n in calls for w in self.late if w in str(n.target)}
        if late:
            raise NodesRefused(late)
        self.parts.append(gm)
        self.requests.append(request)
        return gm.forward

    @property
    def operators(self) -> list[list[str]]:
        """What each part computes."""
        targets = [[n.target for n in gm.graph.nodes if n.op == "call_function"] for gm in self.parts]
        return [[str(t).split(".")[1] for t in part if hasattr(t, "overloadpacket")] for part in targets]


Register = Callable[..., Picky]


@pytest.fixture
def picky(own_catalog: Any) -> Register:
    """``picky(name, no="sin cos")`` registers such a backend for this test."""

    def register(name: str, no: str = "", late: str = "", fails: str = "", **fields: Any) -> Picky:
        made = Picky(no, late, fails)
        told = {"training": True, "dynamic_shapes": True, "dtypes": ("*",), **fields}
        torchmux.register_backend(made, name=name, **told)
        return made

    return register
