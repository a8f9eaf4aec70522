"""What the arguments of a captured graph may be, a parcel's file holds."""

from __future__ import annotations

import torch

from torchmux.multiplexer.parcel import Parcel


def test_a_file_holds_every_kind_of_argument(tmp_path) -> None:
    held = [torch.channels_last, torch.preserve_format, torch.bfloat16, torch.strided, torch.device("cpu"), ..., 2j]
    nodes = [("call_method", "to", (value,), {"a": slice(1, None)}, None) for value in held]
    Parcel(nodes, {}, [torch.ones(2)], [False], (), False, False).save(tmp_path / "parcel")
    found = Parcel.load(tmp_path / "parcel")
    assert [args[0] for _, _, args, _, _ in found.nodes] == held
