"""What the backends that come with torchmux are held to, and which failures of the compilers behind them are known.

What they claim (training, dynamic shapes, dtypes, devices) is in each ``BackendSpec``, and which operators they take
their ``supports`` asks of the compiler that is installed.  What stands here is what an adapter cannot help; each entry
names a script of this repository that shows it with that compiler alone.
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
            "ONNX Runtime leaves nan out of max pooling.",
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
                "OpenVINO's code for a CPU takes nan for a number in relu, softmax and max pooling.",
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
    """torch's own compiler, asked for torch's random numbers, which it draws otherwise unless it is told to."""

    backend = "inductor"
    options: Mapping[str, bool] = {"fallback_random": True}
    expected = tuple(
        Expected(
            cases,
            "torch computes with zeros for results that got no gradient, under torch.compile as well.",
            _SCRIPTS + "torch_zeros_for_no_gradient.py",
            "torch>=2.11,<2.16",
        )
        for cases in ("semantics/training/a_part_of_the_results", "semantics/training/beside_an_infinite_derivative")
    )


REQUIREMENTS: dict[str, type[Requirements]] = {each.backend: each for each in (Onnxrt, Openvino, Inductor)}
"""By the backend's name; the others have no known failures."""
