"""``torchmux.artifacts``: each file gives the model's results in its own tool, in a process without torchmux."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

import torchmux

# How each tool runs a file, as a program without torchmux: it reads ``path``, ``given`` (arrays in the order of the
# inputs that are left) and makes ``found``, a list of arrays.
ONNX = """
    import onnxruntime
    session = onnxruntime.InferenceSession(path)
    found = session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
"""
OPENVINO = """
    import openvino
    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    result = model({i.any_name: given[i.any_name] for i in model.inputs})
    found = [result[f"output_{n}"] for n in range(len(model.outputs))]
"""
TVM = """
    import tvm
    from tvm import relax
    if path.endswith(".so"):
        executable = tvm.runtime.load_module(path)
    else:
        module = tvm.script.from_source(open(path).read())
        executable = relax.build(module, target="llvm")
    machine = relax.VirtualMachine(executable, tvm.cpu())
    found = [t.numpy() for t in machine["main"](*(tvm.runtime.tensor(given[name]) for name in order))]
"""
# What native makes links to torch's library, and is called by the function in the file of the kind "host".
NATIVE = """
    import ctypes, os, struct, subprocess, torch
    if not path.endswith(".so"):
        flags = ["-x", "assembler"] if path.endswith(".s") else ["-x", "c++", "-O2", "-std=c++17", "-march=native",
            "-fopenmp", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-ffp-contract=off", "-Wno-psabi"]
        subprocess.run(["g++", "-shared", "-nostdlib", "-fPIC", *flags, path, "-o", path + ".so"], check=True)
        path += ".so"
    ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"), ctypes.RTLD_GLOBAL)
    run0 = ctypes.CDLL(path).run0
    run0.argtypes = (ctypes.c_void_p,) * 3
    names = {"torch": torch, "pack": struct.pack, "run0": run0, "inf": float("inf"),
        "empty": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype)}
    exec(open(host).read(), names)
    found = [t.numpy() for t in names["run"](*(torch.from_numpy(given[name]) for name in order))]
"""
SLOW = pytest.mark.slow
TOOLS = [
    pytest.param("onnxrt", {}, {"onnx": ONNX}, id="onnxrt"),
    pytest.param("onnxrt", {"freeze": True}, {"onnx": ONNX}, id="onnxrt-frozen"),
    pytest.param("openvino", {}, {"openvino-ir": OPENVINO}, id="openvino"),
    pytest.param("openvino", {"freeze": True}, {"openvino-ir": OPENVINO}, id="openvino-frozen", marks=SLOW),
    pytest.param("tvm", {"library": "none"}, {"tvm-library": TVM, "relax": TVM}, id="tvm", marks=SLOW),
    pytest.param("native", {}, {"c++": NATIVE, "assembly": NATIVE, "library": NATIVE}, id="native", marks=SLOW),
]


def run_alone(program, artifact, folder, x, host=None):
    """What a tool makes of a file, in a process that has not imported torchmux."""
    path = folder / f"part{artifact.suffix}"
    written = artifact.save(path)
    assert written[0] == path
    assert all(file.exists() for file in written)
    tensors = {"x": x, **artifact.weights}
    np.savez(folder / "given.npz", **{name: t.detach().numpy() for name, t in tensors.items()})
    head = f"""
    import sys, numpy as np
    path, host, order = {str(path)!r}, {str(host)!r}, {[port.name for port in artifact.inputs]!r}
    given = dict(np.load({str(folder / "given.npz")!r}))
    """
    tail = f"""
    assert "torchmux" not in sys.modules
    np.savez({str(folder / "found.npz")!r}, *found)
    """
    text = "".join(map(textwrap.dedent, (head, program, tail)))
    done = subprocess.run([sys.executable, "-P", "-c", text], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [torch.from_numpy(a) for a in np.load(folder / "found.npz").values()]


@pytest.mark.parametrize("warm", [False, pytest.param(True, marks=SLOW)], ids=["cold", "warm"])
@pytest.mark.parametrize(("backend", "options", "programs"), TOOLS)
def test_each_file_gives_the_models_results_without_torchmux(backend, options, programs, warm, net, tmp_path):
    for _ in range(1 + warm):
        torchmux.reset()
        compiled = torchmux.compile(net, backend=backend, options=options)
        with torch.no_grad():
            compiled(torch.ones(3, 8))
    found = {artifact.kind: artifact for artifact in torchmux.artifacts(compiled)}
    host = None
    if "host" in found:
        (host,) = found.pop("host").save(tmp_path / "host.py")
    assert found.keys() == programs.keys()
    x = torch.randn(3, 8)
    with torch.no_grad():
        wanted = net(x)
    for kind, artifact in found.items():
        assert artifact.backend == backend
        assert not artifact.needs or backend == "native"
        ports = {port.name: port for port in artifact.inputs}
        assert (ports["x"].dtype, ports["x"].shape, ports["x"].is_weight) == ("float32", (3, 8), False)
        assert artifact.weights["inner.weight"] is net.inner.weight
        results = run_alone(programs[kind], artifact, tmp_path, x, host)
        torch.testing.assert_close(results[0].reshape(3, 4), wanted["y"], msg=kind)
        torch.testing.assert_close(results[1].reshape(()), wanted["total"], msg=kind)


def test_weights_may_stay_inputs(net, tmp_path):
    import onnxruntime

    compiled = torchmux.compile(net, backend="onnxrt")
    with torch.no_grad():
        compiled(torch.ones(3, 8))
    (artifact,) = torchmux.artifacts(compiled)
    artifact.save(tmp_path / "part", weights=False)
    session = onnxruntime.InferenceSession(tmp_path / "part.onnx")
    assert [i.name for i in session.get_inputs()] == [port.name for port in artifact.inputs]
    assert "Gemm" in artifact.text


def test_parts_of_chains_and_of_graphs_that_break(tmp_path):
    def f(x):
        y = torch.relu(x) + 1
        print("here")
        return torch.cumsum(y, 0) * 2

    compiled = torchmux.compile(f, backend=["onnxrt", "native"])
    with torch.no_grad():
        compiled(torch.ones(4))
    found = torchmux.artifacts(compiled)
    assert len({artifact.graph for artifact in found}) == 2
    assert {artifact.backend for artifact in found} <= {"onnxrt", "native"}
    for number, artifact in enumerate(found):
        assert artifact.save(tmp_path / f"file{number}")[0].stat().st_size


def test_what_has_no_file_says_why(net, tmp_path):
    with pytest.raises(torchmux.SaveRefused, match="Call it with inputs first"):
        torchmux.artifacts(torchmux.compile(net, backend="eager"))
    compiled = torchmux.compile(net, backend="native")
    compiled(torch.ones(3, 8))
    (artifact,) = torchmux.artifacts(compiled)
    assert artifact.kind == "none"
    with pytest.raises(torchmux.SaveRefused, match="compiled for training"):
        artifact.save(tmp_path / "file")
    with pytest.raises(TypeError, match="what torchmux.compile"):
        torchmux.artifacts(net)


@pytest.mark.parametrize("backend", ["native", "onnxrt", "openvino", pytest.param("tvm", marks=SLOW), "aot_eager"])
def test_output_code_is_printed(backend, net, capsys):
    torchmux.reset()  # code of an equal module would be used again
    torchmux.set_logs(output_code=True)
    try:
        compiled = torchmux.compile(net, backend=backend)
        with torch.no_grad():
            compiled(torch.ones(3, 8))
    finally:
        torchmux.set_logs()
    shown = capsys.readouterr().err
    wanted = {"native": "run0", "onnxrt": "Gemm", "openvino": "<net", "tvm": "R.function", "aot_eager": "aten.addmm"}
    assert "[torchmux output_code]" in shown
    assert wanted[backend] in shown
