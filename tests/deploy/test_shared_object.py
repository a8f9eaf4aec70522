"""``torchmux.save(format="so")``: what native has compiled, run without Python and torch."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from runpy import run_path

import pytest
import torch
from c_model import CModel

import torchmux

EXAMPLE = Path(__file__).parents[2] / "examples" / "shared_object"

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def compiled(program, *calls, backend="native"):
    made = torchmux.compile(program, backend=backend)
    with torch.no_grad():
        for call in calls:
            made(*call)
    return made


def needed(path: Path) -> str:
    return subprocess.run(["ldd", path], check=True, capture_output=True, text=True).stdout


def test_the_example_runs_without_python(tmp_path, capsys):
    run_path(str(EXAMPLE / "export.py"))["main"](tmp_path)
    wanted = [[float(n) for n in line.split()] for line in capsys.readouterr().out.splitlines()]
    links = ["-I", tmp_path, EXAMPLE / "main.cpp", "-L", tmp_path, "-lnet", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(["g++", "-std=c++17", *links, "-o", tmp_path / "main"], check=True)
    ran = subprocess.run([tmp_path / "main"], env={}, check=True, capture_output=True, text=True)
    *rows, refused = ran.stdout.splitlines()
    torch.testing.assert_close(torch.tensor([[float(n) for n in row.split()] for row in rows]), torch.tensor(wanted))
    assert refused == "refused: dimension 1 of input has size 9; this program takes 8"
    assert "torch" not in needed(tmp_path / "libnet.so") and "python" not in needed(tmp_path / "libnet.so")
    assert len((EXAMPLE / "main.cpp").read_text().splitlines()) < 70


class Wide(torch.nn.Module):
    """Rows of an embedding, a product that is large enough for tiles, dtypes, views and reductions."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = torch.nn.Embedding(10, 96)
        self.layer = torch.nn.Linear(96, 70)

    def forward(self, x, ids, *, scale=2.0):
        y = torch.nn.functional.gelu(self.layer(x + self.rows(ids))) * scale
        narrow = y[:, :5]
        return {"y": y, "t": narrow.t(), "d": narrow.double().atan2(narrow + 1).sum(-1)}


def test_fixed_and_symbolic_sizes_and_weights_beside(tmp_path):
    torch.manual_seed(0)
    net = Wide().eval()

    def inputs(n):
        return torch.randn(n, 96), torch.randint(0, 10, (n,))

    made = compiled(net, inputs(7), inputs(9))
    path = tmp_path / "libwide.so"
    assert torchmux.save(made, path, format="so", weights=False) == []
    model = CModel(path, 3, tmp_path / "wide.safetensors")
    for n in (7, 2, 33):
        x, ids = inputs(n)
        with torch.no_grad():
            wanted = net(x, ids)
        y, t, d = model(x, ids)
        torch.testing.assert_close((y, t, d.float()), (wanted["y"], wanted["t"], wanted["d"].float()))
        assert d.dtype is torch.float64
    with pytest.raises(RuntimeError, match="index out of range in self"):
        model(torch.randn(3, 96), torch.tensor([0, 10, 1]))
    with pytest.raises(RuntimeError, match="x must be float32, which is dtype 6; its dtype is 7"):
        model(torch.randn(3, 96).double(), torch.tensor([0, 1, 2]))
    with pytest.raises(RuntimeError, match="this program needs"):
        model(torch.randn(3, 96), torch.tensor([0, 1]))
    described = (tmp_path / "wide.h").read_text()
    assert "inputs[1]  ids: int64 [any]" in described and "scale == 2.0" in described

    with pytest.raises(RuntimeError, match="does not have the tensors"):
        CModel(path, 3, tmp_path / "wide.h")
    with pytest.raises(RuntimeError, match="no file of weights"):
        CModel(path, 3)
    with torch.no_grad():
        net.layer.bias.fill_(3.0)
    torchmux.save(made, tmp_path / "libagain.so", format="so", weights=False)
    other = CModel(path, 3, tmp_path / "again.safetensors")  # trained further, say
    x, ids = inputs(4)
    with torch.no_grad():
        torch.testing.assert_close(other(x, ids)[0], net(x, ids)["y"])


class Inverts(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.inv(x) + 1


class Writes(torch.nn.Module):
    def forward(self, x):
        x.add_(1)
        return x * 2


def test_what_needs_torch_is_refused_by_name(tmp_path):
    path = tmp_path / "net.so"
    square = torch.eye(3)
    with pytest.raises(torchmux.SaveRefused, match=r"only torch computes:\n  aten._linalg_check_errors.*test_s"):
        torchmux.save(compiled(Inverts(), (square,)), path, format="so")
    with pytest.raises(torchmux.SaveRefused, match="a write to an input"):
        torchmux.save(compiled(Writes(), (square,)), path, format="so")
    with pytest.raises(torchmux.SaveRefused, match="a graph of eager"):
        torchmux.save(compiled(torch.nn.Linear(3, 3), (square,), backend="eager"), path, format="so")
    made = compiled(torch.nn.Linear(3, 3), (square,))
    with pytest.raises(ValueError, match="gives the functions no name"):
        torchmux.save(made, tmp_path / "3 nets.so", format="so")
    with pytest.raises(ValueError, match="cannot be signed"):
        torchmux.save(made, path, format="so", key="of mine")
    with pytest.raises(ValueError, match="'torchmux' or 'so'"):
        torchmux.save(made, path, format="onnx")
    assert not list(tmp_path.iterdir())


class Images(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1, stride=2)
        self.norm = torch.nn.BatchNorm2d(16)
        self.second = torch.nn.Conv2d(16, 16, 3, padding=2, dilation=2, groups=4)
        self.last = torch.nn.Conv1d(16, 5, 3)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x)))
        y = torch.relu(self.second(torch.nn.functional.max_pool2d(y, 3, 2, 1)))
        return self.last(y.flatten(2)), torch.nn.functional.interpolate(y, scale_factor=2, mode="bilinear")


class Attends(torch.nn.Module):
    def forward(self, x, mask):
        scores = torch.nn.functional.scaled_dot_product_attention
        return scores(x, x, x, attn_mask=mask), scores(x, x * 2, x, is_causal=True)


@pytest.mark.slow
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_convolutions(layout, tmp_path):
    torch.manual_seed(0)
    net = Images().eval()
    given = [torch.randn(n, 3, 21, 17).to(memory_format=layout) for n in (2, 3, 7)]
    path = tmp_path / "images.so"
    torchmux.save(compiled(net, *((x,) for x in given[:2])), path, format="so")
    for x in given:
        with torch.no_grad():
            torch.testing.assert_close(tuple(CModel(path, 2)(x.contiguous())), net(x))


@pytest.mark.slow
@pytest.mark.parametrize("length", [9, 200])
def test_attention(length, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(2, 4, length, 16)
    mask = torch.where(torch.rand(2, 1, length, length) < 0.3, -float("inf"), 0.0)
    path = tmp_path / "attends.so"
    torchmux.save(compiled(Attends(), (x, mask)), path, format="so")
    torch.testing.assert_close(tuple(CModel(path, 2)(x, mask)), Attends()(x, mask))


def test_arguments_that_c_does_not_have_are_those_of_the_last_call(tmp_path):
    """Entries for other values would be chosen by sizes."""

    def program(x, mode):
        return x.sum(0) if mode == "sum" else x.mean(0)

    made = torchmux.compile(program, backend="native", dynamic=False)
    calls = [(torch.ones(3, 4), "sum"), (torch.ones(5, 4), "mean"), (torch.ones(6, 4), "mean")]
    for call in calls:
        made(*call)
    (left_out,) = torchmux.save(made, tmp_path / "libprogram.so", format="so")
    assert "an entry for other arguments than the last one (mode == 'sum')" in left_out
    model = CModel(tmp_path / "libprogram.so", 1)
    for size in (5, 6):
        x = torch.randn(size, 4)
        torch.testing.assert_close(model(x)[0], x.mean(0))
    with pytest.raises(RuntimeError, match="3"):
        model(torch.ones(3, 4))
