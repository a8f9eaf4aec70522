"""The requirements of the backends that come with torchmux, with the known failures of the underlying compilers.

Each ``BackendSpec`` has what a backend claims (training, dynamic shapes, dtypes, devices), and its ``supports`` asks
the installed compiler which operators it accepts.  This package lists failures that an adapter cannot avoid.  Each
entry names a script of this repository that shows the failure with only that compiler.

* ``shared``: failures of torch that backends share; ``inductor``: those of torch's own compiler.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from torchmux.registry.lookup import list_backends
from torchmux.registry.names import JOINT, members_of, normalize
from torchmux.registry.resolve import known_spec

from ..requirements import Expected, Requirements
from .inductor import Inductor
from .shared import CUMULATIVE, DATA, SCRIPTS


def _plain_sums(runtime: str, versions: str, *models: str) -> tuple[Expected, ...]:
    """Models of the full level: gradients of what thousands of numbers are added to, up to 2.5 times the bound."""
    return tuple(
        Expected(
            f"models/{model}/training",
            f"{runtime} adds up many numbers one after another: gradients that cancel have more error than eager's.",
            f"{SCRIPTS}{runtime.lower().replace(' ', '')}_plain_sums.py",
            versions,
            only=r"\['gradient\.",
            sometimes=True,  # in how many lanes depends on the processor
        )
        for model in models
    )


class Native(Requirements):
    """torchmux's own compiler, which keeps processes that compile with Triton."""

    backend = "native"
    processes = (os.path.join("triton", "worker.py"),)
    expected = (CUMULATIVE, DATA)


class Onnxrt(Requirements):
    """ONNX Runtime on a CPU, which writes an error to standard errors before it raises it; 1.30 keeps a log."""

    backend = "onnxrt"
    says = ("[E:onnxruntime:", "\x1b[m")
    files = ("mat-debug-",)
    expected = (
        CUMULATIVE,
        DATA,
        Expected(
            "semantics/numbers/nan_in_pooling",
            "ONNX Runtime skips nan in max pooling, and begins with the lowest finite number.",
            SCRIPTS + "onnxruntime_nan_in_max_pooling.py",
            "onnxruntime>=1.20,<1.33",
        ),
        *(
            Expected(
                f"semantics/{case}",
                "ONNX Runtime loses the sign of zeros.",
                SCRIPTS + "onnxruntime_signs_of_zeros.py",
                "onnxruntime>=1.20,<1.33",
            )
            for case in ("special/signs_of_zeros", "identities/nothing_and_one", "kinds/moves_of_minus_zero")
        ),
        Expected(
            "models/mobilevit/training",
            "ONNX Runtime adds up many numbers one after another: a mean that cancels has more error than eager's.",
            SCRIPTS + "onnxruntime_plain_sums.py",
            "onnxruntime>=1.20,<1.33",
        ),
        *_plain_sums("ONNX Runtime", "onnxruntime>=1.20,<1.33", "mobilevitv2", "pvt", "dpt"),
    )


class Openvino(Requirements):
    """OpenVINO on a CPU, whose Python package makes a folder for its telemetry when it is imported."""

    backend = "openvino"
    files = ("intel",)
    expected = (
        DATA,
        *(
            Expected(
                f"semantics/*/{cases}",
                "OpenVINO's code for a CPU treats nan as a number in relu, softmax and max pooling.",
                SCRIPTS + "openvino_nan.py",
                "openvino>=2025.0,<2027",
            )
            for cases in ("nan_in_pooling", "rectifier", "masked_rows", "numbers_far_apart", "at_kinks")
        ),
        *(
            Expected(
                cases,
                "OpenVINO's code for a CPU takes subnormal numbers for zeros without a sign.",
                SCRIPTS + "openvino_subnormal_numbers.py",
                "openvino>=2025.0,<2027",
                sometimes=True,
            )
            for cases in (
                "semantics/accuracy/subnormal_numbers",
                "semantics/special/signs_of_zeros",
                "semantics/edges/numbers_that_are_nearly_zero",
                "models/owlvit/*",
                "operators/nn.functional.multi_head_attention_forward/*",
            )
        ),
        *(
            Expected(
                f"semantics/accuracy/{case}",
                "OpenVINO adds up many numbers one after another: long sums have more error than eager's.",
                SCRIPTS + "openvino_plain_sums.py",
                "openvino>=2025.0,<2027",
                sometimes=True,  # in how many lanes depends on the processor
            )
            for case in ("sums_float32", "four_million_numbers")
        ),
        Expected(
            "models/mobilevit/training",
            "OpenVINO adds up many numbers one after another: a mean that cancels has more error than eager's.",
            SCRIPTS + "openvino_plain_sums.py",
            "openvino>=2025.0,<2027",
        ),
        *_plain_sums("OpenVINO", "openvino>=2025.0,<2027", "mobilevitv2", "segformer", "dpt"),
    )


class Tvm(Requirements):
    """TVM, whose threads take their settings from the environment; it prints uncaught exceptions by itself, also what
    ran when the process dies, and the places in its sources that warn.  ``inspect`` finds its sources, too."""

    backend = "tvm"
    says = ("/project/",)
    sets = ("TVM_BIND_THREADS", "TVM_NUM_THREADS", "TVM_THREAD_POOL_SPIN_COUNT", "sys hooks", "import hooks",
            "actions of signals", "functions of inspect")  # fmt: skip
    expected = (CUMULATIVE, DATA, *_plain_sums("TVM", "apache-tvm>=0.25,<0.28", "mobilevitv2", "dpt", "sew")) + tuple(
        Expected(f"semantics/{case}", why)
        for case, why in (
            ("accuracy/roundings_float64", "To be mended: float64 functions have constants of less precision."),
            ("aliasing/memory_of_results_is_theirs", "To be mended: results lie in TVM's memory, of a fixed size."),
        )
    )


class Cudagraphs(Requirements):
    """torch's kernels, recorded."""

    backend = "cudagraphs"
    expected = (
        CUMULATIVE,
        Expected(
            "semantics/turns/interrupts",
            "A recording has the kernels that a program's operator launches, not what its Python code does besides.",
            SCRIPTS + "torch_recorded_operators.py",
            "torch>=2.11,<2.16",
        ),
    )


class Auto(Requirements):
    """``auto``, waiting for the decision on each graph; it keeps the process that forks candidates."""

    backend = "auto"
    processes = ("torchmux.multiplexer.nursery",)
    seconds = 1200.0  # each graph of a case is decided on in its own budget
    options: Mapping[str, Any] = {"wait": True}

    @property
    def fingerprint(self) -> str:
        """The versions of all backends that may be measured."""
        allow, forbid = self.options.get("allow"), self.options.get("forbid", ())
        names = [name for name in list_backends() if name not in forbid and (allow is None or name in allow)]
        told = {name: known_spec(name).fingerprint() for name in sorted(names) if name != self.name}
        return "; ".join(f"{name} {version}" for name, version in told.items() if version)


class AotEager(Requirements):
    """torch's kernels, after AOTAutograd."""

    backend = "aot_eager"
    expected = (CUMULATIVE, DATA)


REQUIREMENTS: dict[str, type[Requirements]] = {
    str(each.backend): each for each in (AotEager, Native, Onnxrt, Openvino, Tvm, Inductor, Cudagraphs, Auto)
}
"""By backend name; the other backends have no known failures."""


def known(backend: str) -> Requirements:
    """The requirements of a backend, or those of the members of a chain together.

    What a member gets wrong may fail in a chain, and passes where another member runs it.
    """
    names = members_of(backend)
    if names is None:
        return REQUIREMENTS.get(backend, Requirements)(backend)
    members = [REQUIREMENTS.get(name, Requirements)(name) for name in map(normalize, names)]
    chain = Requirements(JOINT.join(member.name for member in members))
    chain.sets = [name for member in members for name in member.sets]
    chain.processes = [part for member in members for part in member.processes]
    chain.says = [part for member in members for part in member.says]
    chain.files = [name for member in members for name in member.files]
    chain.expected = [dataclasses.replace(each, sometimes=True) for member in members for each in member.expected]
    chain.options = {member.name: dict(member.options) for member in members if member.options} or None
    return chain
