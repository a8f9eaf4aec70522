"""``examples/plugin`` as a third party would ship it: built, installed into a fresh environment, used by name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """The interpreter of a new environment with the plugin's wheel; all else is read from the one that runs the tests.

    Nothing is downloaded.
    """
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PLUGIN, folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    pip("wheel", "--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    site = subprocess.check_output(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
    ).strip()
    # addsitedir, unlike a bare path, also reads the .pth files there: an editable torchmux is one.
    outer = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(site) / "outer.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in outer))
    pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    return python


def test_it_is_not_in_this_environment():
    import importlib.util

    assert importlib.util.find_spec("torchmux_numpy") is None


def test_listed_without_being_imported(environment, run_python):
    printed = run_python(
        "import sys, torchmux\n"
        "row = {row.name: row for row in torchmux.backends()}['numpy']\n"
        "print(row.available, row.distribution, row.options, row.modes, row.error)\n"
        "print('torchmux_numpy.backend' in sys.modules, 'torchmux_numpy' in sys.modules)",
        python=str(environment),
    )
    assert printed.splitlines() == ["True torchmux-numpy ('matmul_precision',) ('default', 'precise') ", "False True"]


MODEL = """
import torch, torchmux
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4), torch.nn.Softmax(-1))
x = torch.randn(3, 8)
"""


def test_by_name_through_torchmux(environment, run_python):
    """Under ``strict`` a right result means that numpy computed all of it, and softmax, which it lacks, is refused."""
    printed = run_python(
        MODEL
        + "with torch.no_grad():\n"
        + "    compiled = torchmux.compile(model[:3], backend='numpy', mode='precise', strict=True)\n"
        + "    torch.testing.assert_close(compiled(x), model[:3](x))\n"
        + "    torch.testing.assert_close(torchmux.compile(model, backend='numpy')(x), model(x))\n"
        + "    try:\n        torchmux.compile(model, backend='numpy', strict=True)(x)\n"
        + "    except torchmux.FallbackRefused as error:\n        print(error)",
        python=str(environment),
    )
    assert "softmax" in printed


def test_by_name_through_torch(environment, run_python):
    run_python(
        MODEL
        + "compiled = torch.compile(model, backend='torchmux_numpy')\n"
        + "torch.testing.assert_close(compiled(x), model(x))\n"
        + "weights = list(model.parameters())\n"
        + "gradients = [torch.autograd.grad(f(x).square().sum(), weights) for f in (compiled, model)]\n"
        + "torch.testing.assert_close(*gradients)\n"
        + "import sys\nassert 'torchmux_numpy.backend' in sys.modules",
        python=str(environment),
    )


def test_its_own_tests(environment, run_python):
    """They pass there; their number is named, so that an empty run does not count.

    The conformance suite is one of them, and has its own place in tests/conformance.
    """
    tests = PLUGIN / "tests"
    printed = run_python(
        "import subprocess, sys\n"
        f"command = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', {str(tests)!r}]\n"
        f"command += ['--rootdir', '.', '-c', '/dev/null', '--ignore', {str(tests / 'test_conformance.py')!r}]\n"
        "print(subprocess.run(command, capture_output=True, text=True).stdout)",
        python=str(environment),
    )
    assert "7 passed" in printed
