"""AOTAutograd."""

from __future__ import annotations

import torch

from torchmux import torch_internals as ti

from .walk import checks


@checks("aot_autograd", "min_cut_partition", "functorch_config")
def test_aot() -> None:
    gm = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    compiled = ti.aot_autograd()(gm, [torch.ones(2)], fw_compiler=lambda g, inputs: g.forward)
    assert torch.equal(compiled(torch.ones(2))[0], torch.ones(2).sin())
    assert callable(ti.min_cut_partition())
    assert hasattr(ti.functorch_config(), "patch")


@checks("keep_saved_buffers")
def test_kept_buffers() -> None:
    with ti.tracing_context(ti.new_fake_mode()):
        ti.keep_saved_buffers()  # nothing was compiled yet
    from torch._guards import TracingContext

    class Metadata:
        bw_donated_idxs = None

    with ti.tracing_context(ti.new_fake_mode()):
        TracingContext.get().fw_metadata = Metadata()
        ti.keep_saved_buffers()
        assert TracingContext.get().fw_metadata.bw_donated_idxs == []
