"""Files of programs whose graphs break: between the graphs runs the Python of the user's own module."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import textwrap
import threading
import zipfile
from pathlib import Path
from unittest import mock

import pytest
import torch

import torchmux
from torchmux.deploy import container
from torchmux.deploy.container import MANIFEST
from torchmux.frontend.capture import capture

HERE = Path(__file__).parent


@pytest.fixture
def programs(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    import broken_programs

    return broken_programs


@pytest.fixture
def saved(programs, tmp_path):
    """A function that compiles and saves one of the programs; its path, and what ``save`` says."""

    def save(name, backend="aot_eager", **more):
        program = programs.net() if name == "net" else getattr(programs, name)
        compiled = torchmux.compile(program, backend=backend)
        with torch.no_grad():
            for args, kwargs in programs.CALLS[name] * 2:
                compiled(*args, **kwargs)
            return tmp_path / name, torchmux.save(compiled, tmp_path / name, **more)

    return save


LOADING = """
    import sys, torch, torchmux
    from unittest import mock
    from torchmux.frontend.capture import capture
    sys.path.insert(0, {here!r})
    import broken_programs as programs
    model = programs.net()
    for name, path, model in (("branches", sys.argv[1], None), ("net", sys.argv[2], model)):
        with mock.patch.object(capture, "capture", side_effect=AssertionError("it traces")), torch.no_grad():
            loaded = torchmux.load(path, model)
            program = getattr(programs, name) if model is None else programs.net()
            for args, kwargs in programs.CALLS[name]:
                torch.testing.assert_close(loaded(*args, **kwargs), program(*args, **kwargs))
        assert sum(entry.calls for entry in loaded.entries) > len(programs.CALLS[name])
    assert model.seen.item() == 3 and model.blocks[0].calls == 3
    assert programs.LOG == ["forward"] * 6
"""
SLOW = [
    pytest.param(name, marks=pytest.mark.slow) for name in ("native", "onnxrt", "openvino", "tvm", ("onnxrt", "native"))
]


@pytest.mark.parametrize("backend", ["aot_eager", *SLOW], ids=str)
def test_another_process_runs_the_graphs_and_what_is_between(backend, saved):
    paths = [os.fspath(saved(name, backend)[0]) for name in ("branches", "net")]
    program = textwrap.dedent(LOADING).format(here=str(HERE))
    done = subprocess.run([sys.executable, "-P", "-c", program, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_what_runs_in_eager_is_told(saved):
    assert saved("between")[1] == []
    _, told = saved("net")
    assert any("Net.forward" in line and "a loop that is left to eager" in line for line in told)


def test_a_call_that_was_not_compiled_says_which_function(saved, programs):
    loaded = torchmux.load(saved("between")[0])
    with torch.no_grad():
        with pytest.raises(torchmux.Unsupported, match=r"call of between \(.*broken_programs.py:\d+\).*dtype"):
            loaded(torch.ones(3).double())
        assert torch.equal(loaded(torch.ones(9)), programs.between(torch.ones(9)))
    with pytest.raises(torchmux.Unsupported, match="grad mode changed"):
        loaded(torch.ones(3))  # gradients are on


def test_globals_are_those_of_the_module(saved, programs, monkeypatch):
    path, _ = saved("branches")
    args, kwargs = programs.CALLS["branches"][0]
    monkeypatch.setattr(programs, "SCALE", 3.0)
    with torch.no_grad(), pytest.raises(torchmux.Unsupported, match=r"SCALE == 2\.0 no longer holds \(now 3\.0\)"):
        torchmux.load(path)(*args, **kwargs)


def test_a_process_that_has_pinned_something(saved, programs, monkeypatch):
    """Its guards ask for the region of each call, which a file names."""
    monkeypatch.setattr(torchmux.use_backend, "used", True)
    torchmux.reset()  # what was captured before asks for none
    loaded = torchmux.load(saved("branches")[0])
    args, kwargs = programs.CALLS["branches"][0]
    with torch.no_grad():
        assert torch.equal(loaded(*args, **kwargs)["y"], programs.branches(*args, **kwargs)["y"])
        with torchmux.use_backend("eager"), pytest.raises(torchmux.Unsupported, match="around the call"):
            loaded(*args, **kwargs)


def test_models_and_functions_that_are_others(saved, programs, monkeypatch):
    path, _ = saved("net", key="secret")
    with pytest.raises(torchmux.LoadRefused, match=r"Pass the model: load\(..., model=model\)"):
        torchmux.load(path, key="secret")
    model = programs.net()
    model.blocks[1] = programs.Other(8)
    with pytest.raises(torchmux.LoadRefused, match="blocks.1 is another"):
        torchmux.load(path, model, key="secret")
    path, _ = saved("between")
    with pytest.raises(torchmux.LoadRefused, match="the model itself was not there"):
        torchmux.load(path, programs.net())
    monkeypatch.setattr(programs, "between", programs.helper)
    with pytest.raises(torchmux.LoadRefused, match="broken_programs.between, whose Python runs between its graphs"):
        torchmux.load(path)
    monkeypatch.setattr("torchmux.deploy.broken.program.python_version", lambda: "3.99")
    with pytest.raises(torchmux.LoadRefused, match="this is Python 3.99"):
        torchmux.load(path)


def test_threads(saved, programs):
    loaded, wrong = torchmux.load(saved("branches")[0]), []

    def work():
        with torch.no_grad():
            for args, kwargs in programs.CALLS["branches"] * 5:
                if not torch.equal(loaded(*args, **kwargs)["y"], programs.branches(*args, **kwargs)["y"]):
                    wrong.append(args)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_forged_descriptions_are_refused_with_one_error(saved):
    path, _ = saved("between")
    whole = path.read_bytes()
    draw = random.Random(0)
    for _ in range(60):
        path.write_bytes(whole)
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        name = draw.choice([MANIFEST, "entries/0.json"])
        told = json.loads(members[name])
        holder = told["broken"] if name == MANIFEST else draw.choice([told, told["ending"]])
        at = draw.choice(sorted(holder))
        if isinstance(holder[at], list) and holder[at] and draw.random() < 0.7:
            holder, at = holder[at], draw.randrange(len(holder[at]))
        holder[at] = draw.choice([None, 7, -1, 10**9, "text", [], ["code", "os", "system", ""], {}, [[1]], 1.5])
        members[name] = json.dumps(told).encode()
        container.write(path, members, None)
        with mock.patch.object(capture, "capture", side_effect=AssertionError("it traces")):
            try:
                torchmux.load(path)
            except torchmux.LoadRefused:
                continue
