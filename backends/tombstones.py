"""Names that used to compile and still answer usefully."""

from torchmux.registry.spec import Tombstone

IPEX = Tombstone(
    name="ipex",
    reason="Intel Extension for PyTorch is archived upstream; its last release is 2.8, and its work went into torch",
    successor="inductor",
)
