"""What importing torchmux, and listing backends, does not import."""

from __future__ import annotations

COMPILERS = ("onnxruntime", "onnxscript", "openvino", "tvm", "triton", "torch_tensorrt", "torch._inductor")

REPORT = f"""
import json, sys
loaded = [name for name in {(*COMPILERS, "torch._dynamo", "transformers")!r} if name in sys.modules]
print(json.dumps(loaded))
"""


def test_import_torchmux(run_python):
    assert run_python("import torchmux" + REPORT) == "[]\n"


def test_listing_backends(run_python):
    code = "import torchmux\nassert 'eager' in [b.name for b in torchmux.backends()]\nassert torchmux.list_backends()"
    assert run_python(code + REPORT) == "[]\n"


def test_looking_backends_up(run_python):
    code = (
        "import torchmux\ntorchmux.lookup_backend('eager')\ntorchmux.list_options('onnxrt')\n"
        "torchmux.list_mode_options(backend='inductor')"
    )
    assert run_python(code + REPORT) == "[]\n"


def test_the_front_door(run_python):
    """All public names resolve, and none of them needs a compiler or torch's own tracer."""
    code = (
        "import torchmux\nfor name in torchmux.__all__:\n    getattr(torchmux, name)\n"
        "assert callable(torchmux.compile) and set(torchmux.__all__) <= set(dir(torchmux))"
    )
    assert run_python(code + REPORT) == "[]\n"


def test_the_check_itself_sees_imports(run_python):
    assert "torch._dynamo" in run_python("import torch._dynamo" + REPORT)


def test_the_registry_does_without_torch(run_python):
    assert run_python("import torchmux.registry, sys\nprint('torch' in sys.modules)") == "False\n"


def test_backends_is_a_function_and_a_package(run_python):
    run_python(
        "import torchmux\nassert torchmux.backends()\nimport torchmux.backends.eager\nassert torchmux.backends()"
    )
    run_python("import torchmux.backends.eager as eager, torchmux\nassert eager.SPEC and torchmux.backends()")


def test_unknown_attribute(run_python):
    code = "import torchmux\ntry:\n    torchmux.complie\nexcept AttributeError as error:\n    print(error)"
    assert run_python(code) == "module 'torchmux' has no attribute 'complie'\n"
