"""The options of the openvino backend, with OpenVINO's own names where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torchmux.registry.errors import InvalidOption
from torchmux.registry.names import did_you_mean, listed

from ..common.adapter.options import check_option, freeze_option

_DEVICES = ("AUTO", "CPU", "GPU", "NPU")

# For each value of the option ``precision``: OpenVINO's name for it, the capability that a device must report, and the
# name of torch's dtype in which float32 is computed (a listing of options imports no torch).
PRECISIONS: Mapping[str, tuple[str, str, str]] = {
    "model": ("f32", "FP32", "float32"),
    "bf16": ("bf16", "BF16", "bfloat16"),
    "f16": ("f16", "FP16", "float16"),
}


@dataclass(frozen=True)
class OpenvinoOptions:
    """How models are compiled.

    Without ``freeze``, parameters are inputs of every call.  Changes to them take effect, but OpenVINO cannot pack them
    for its matrix kernels.

    Raises:
        InvalidOption: the device is missing, it does not support the precision or a configuration key, or the number of
            streams is below 1.
    """

    device: str = field(
        default="CPU",
        metadata={
            "help": "AUTO, CPU, GPU or NPU, as OpenVINO names them (GPU.0 for one of several); it must be available"
        },
    )
    performance_hint: Literal["LATENCY", "THROUGHPUT", "CUMULATIVE_THROUGHPUT"] = field(
        default="LATENCY", metadata={"help": "what OpenVINO optimizes for"}
    )
    num_streams: int | None = field(
        default=None, metadata={"help": "inferences that run at the same time; None: as the performance hint implies"}
    )
    precision: Literal["model", "bf16", "f16"] = field(
        default="model",
        metadata={"help": "'model' computes float32 in float32; the others are faster at the cost of accuracy"},
    )
    freeze: bool = freeze_option("so that OpenVINO packs and folds them")
    check: bool = check_option("model", "one that differs is compiled once more, and then left to torch")
    config: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "further properties of the device, by their OpenVINO names"}
    )

    def __post_init__(self) -> None:
        if self.num_streams is not None and self.num_streams < 1:
            raise InvalidOption(f"The option 'num_streams' of openvino must be at least 1, not {self.num_streams}.")
        if (self.device, self.precision, self.config) != ("CPU", "model", {}):  # the default needs no openvino
            _check(self)


def _check(options: OpenvinoOptions) -> None:
    import openvino

    core = openvino.Core()
    available = core.available_devices
    kind, _, rest = options.device.partition(".")
    found = [name for name in available if name.partition(".")[0] == kind]
    if kind not in _DEVICES:
        raise InvalidOption(
            f"openvino has no device {options.device!r}.{did_you_mean(options.device, _DEVICES)} "
            f"This machine has {listed(available)}, and AUTO, which selects one of them."
        )
    if kind != "AUTO" and not (found and (not rest or options.device in found)):
        raise InvalidOption(
            f"openvino finds no {options.device} on this machine, which has {listed(available)}. "
            f"A missing device usually means a missing driver."
        )
    devices = available if kind == "AUTO" else [options.device]
    _, capability, _ = PRECISIONS[options.precision]
    for device in devices:
        if capability not in core.get_property(device, "OPTIMIZATION_CAPABILITIES"):
            raise InvalidOption(
                f"The option precision={options.precision!r} of openvino is not available: {device} "
                f"({core.get_property(device, 'FULL_DEVICE_NAME').strip()}) does not support {capability}."
            )
    if options.config:
        known = sorted({str(name) for name in core.get_property(options.device, "SUPPORTED_PROPERTIES")})
        for name in options.config:
            if name not in known:
                raise InvalidOption(f"openvino's {options.device} has no property {name!r}.{did_you_mean(name, known)}")
        if "INFERENCE_PRECISION_HINT" in options.config:
            raise InvalidOption("Set the option 'precision' of openvino instead of INFERENCE_PRECISION_HINT.")
