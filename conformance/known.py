"""The requirements of the backends that come with torchmux, with the known failures of the underlying compilers.

Each ``BackendSpec`` has what a backend claims (training, dynamic shapes, dtypes, devices), and its ``supports`` asks
the installed compiler which operators it accepts.  This module lists failures that an adapter cannot avoid.  Each entry
names a script of this repository that shows the failure with only that compiler.
"""

from __future__ import annotations

from collections.abc import Mapping

from .requirements import Expected, Requirements

_SCRIPTS = "tests/conformance/upstream/"


class Onnxrt(Requirements):
    """ONNX Runtime on a CPU."""

    backend = "onnxrt"
    expected = (
        Expected(
            "semantics/numbers/nan_in_pooling",
            "ONNX Runtime skips nan in max pooling.",
            _SCRIPTS + "onnxruntime_nan_in_max_pooling.py",
            "onnxruntime>=1.20,<1.33",
        ),
        Expected(
            "models/mobilevit/training",
            "ONNX Runtime adds up many numbers one after another: a mean that cancels has more error than eager's.",
            _SCRIPTS + "onnxruntime_plain_sums.py",
            "onnxruntime>=1.20,<1.33",
        ),
    )


class Openvino(Requirements):
    """OpenVINO on a CPU."""

    backend = "openvino"
    expected = (
        *(
            Expected(
                f"semantics/*/{cases}",
                "OpenVINO's code for a CPU treats nan as a number in relu, softmax and max pooling.",
                _SCRIPTS + "openvino_nan.py",
                "openvino>=2025.0,<2027",
            )
            for cases in ("nan_in_pooling", "rectifier", "masked_rows")
        ),
        Expected(
            "models/mobilevit/training",
            "OpenVINO adds up many numbers one after another: a mean that cancels has more error than eager's.",
            _SCRIPTS + "openvino_plain_sums.py",
            "openvino>=2025.0,<2027",
        ),
    )


class Inductor(Requirements):
    """torch's own compiler, with the option for torch's random numbers; by default it draws different ones."""

    backend = "inductor"
    options: Mapping[str, bool] = {"fallback_random": True}
    expected = tuple(
        Expected(
            cases,
            "torch uses zeros for results without a gradient, under torch.compile as well.",
            _SCRIPTS + "torch_zeros_for_no_gradient.py",
            "torch>=2.11,<2.16",
        )
        for cases in ("semantics/training/a_part_of_the_results", "semantics/training/beside_an_infinite_derivative")
    )


REQUIREMENTS: dict[str, type[Requirements]] = {each.backend: each for each in (Onnxrt, Openvino, Inductor)}
"""By backend name; the other backends have no known failures."""
