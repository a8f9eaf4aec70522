"""The graphs of a program, with the inputs of a call, as data that another machine can measure."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch.fx import GraphModule

from torchmux.registry.spec import ANY, BackendSpec, CompileRequest

from ..candidates import Field, candidates_for
from ..decisions import Fingerprint, key_of
from ..options import AutoOptions
from ..parcel import Unknown, pack
from ..running.buckets import Sizes


@dataclass(frozen=True)
class Captured:
    """A graph with its inputs; ``fingerprint`` is that of this machine."""

    name: str
    fingerprint: Fingerprint
    parcel: bytes
    options: AutoOptions


class Recorder:
    """A backend that records the graphs that it is given, and leaves them to torch.

    It is no data class: compiled code is shared among backends that are equal, and each recorder is to see the graphs.
    """

    def __init__(self, options: AutoOptions) -> None:
        self.options = options
        self.name = ""  # of the program that is captured now
        self.captured: list[Captured] = []
        self.skipped: list[str] = []  # graphs that cannot be measured, and why

    def spec(self) -> BackendSpec:
        """For ``torchmux.compile(backend=...)``."""
        return BackendSpec(
            name="tune",
            summary="records graphs",
            load=self,
            graph="torch",
            training=True,
            dynamic_shapes=True,
            devices=(ANY,),
            dtypes=(ANY,),
        )

    def supports(self, node: Any) -> bool:
        return True

    def compile(self, gm: GraphModule, example_inputs: Sequence[Any], request: CompileRequest) -> Any:
        training = request.phase != "inference"
        number = sum(each.name.partition(", ")[0] == self.name for each in self.captured)
        name = f"{self.name}, graph {number}"
        found = field_for(example_inputs, training, self.options)
        sizes = Sizes.of_graph(gm, self.options.buckets)
        bucket = sizes.words(sizes.bucket(example_inputs)) if sizes.places else ""
        key = key_of(gm, example_inputs, request, found.fingerprint, self.options.asked, bucket=bucket)
        try:
            parcel = pack(
                gm,
                example_inputs,
                training=training,
                static_inputs=request.static_inputs,
                strict=request.strict,
                dynamic=request.dynamic,
            )
            if key is None:
                raise Unknown("it cannot be described")
        except Unknown as why:
            self.skipped.append(f"{name}: {why}")
            return gm.forward
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "parcel"
            parcel.save(path)
            self.captured.append(Captured(name, key, path.read_bytes(), self.options))
        return gm.forward


def field_for(inputs: Sequence[Any], training: bool, options: AutoOptions) -> Field:
    """The candidates of this machine."""
    return candidates_for(
        inputs,
        training=training,
        freeze=options.freeze,
        allow=options.allow,
        forbid=options.forbid,
        mode=options.also_mode,
    )
