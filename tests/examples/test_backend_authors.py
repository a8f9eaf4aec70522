"""docs/backend-authors.md, step by step, in an environment with torchmux, pytest, what these need, and nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "backend-authors.md"
# What torchmux and pytest need, and what installs a package.
ROOTS = ("torch", "numpy", "packaging", "rich", "pytest", "setuptools", "wheel")

pytestmark = pytest.mark.slow


def needed(names) -> set[str]:
    """These distributions and all that they require, by name."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            requires = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name)
        parsed = map(Requirement, requires)
        waiting += [r.name for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def link(name: str, site: Path) -> None:
    """Make an installed distribution visible in another folder, its own files and no others."""
    distribution = importlib.metadata.distribution(name)
    for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
        target = site / top
        if not target.exists():
            target.symlink_to(Path(str(distribution.locate_file(top))).resolve())


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> dict[str, str]:
    """The variables of a shell in a new environment, which holds a wheel of this checkout; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("authors")
    ignored = shutil.ignore_patterns(".git", "build", "*.egg-info", ".tox", "*_cache", "__pycache__")
    checkout = shutil.copytree(ROOT, folder / "torchmux", ignore=ignored, symlinks=True)
    venv.create(folder / "env", symlinks=True, with_pip=True)
    python = folder / "env" / "bin" / "python"
    # Before 3.12 it brings a setuptools that is too old for us.
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "--yes", "setuptools"], check=True)
    told = subprocess.check_output([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True)
    for name in needed(ROOTS):
        link(name, Path(told.strip()))
    variables = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "TORCHMUX": str(checkout),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads this switch the other way round
        "PYTHONPATH": "",
        "PYTEST_ADDOPTS": "",
    }
    variables.pop("VIRTUAL_ENV", None)
    shell("python -m pip install --quiet --disable-pip-version-check .", checkout, variables)
    return variables


def shell(commands: str, folder: Path, variables: dict[str, str]) -> str:
    """Run the commands, each of which must succeed, and return what they print."""
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder, env=variables, capture_output=True, text=True, timeout=2400,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-3000:]
    return ran.stdout


def steps() -> dict[str, str]:
    """The commands of the page, by the number of their step."""
    sections = re.split(r"^## (\d)\. ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    numbered = zip(sections[::2], sections[1::2], strict=True)
    found = {number: re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE) for number, text in numbered}
    return {number: "\n".join(blocks) for number, blocks in found.items() if blocks}


def test_it_is_fresh(fresh, tmp_path):
    program = (
        "import importlib.util as u\n"
        "names = ['expecttest', 'transformers', 'onnxruntime', 'openvino', 'tvm', 'xdist', 'torchmux', 'pytest']\n"
        "print([name for name in names if u.find_spec(name)])"
    )
    assert shell(f'python -c "{program}"', tmp_path, fresh).strip() == "['torchmux', 'pytest']"


def test_every_step(fresh, tmp_path):
    """The commands of steps 3 to 6, one step after the other, in one folder."""
    told = steps()
    assert list(told) == ["3", "4", "5", "6"]
    shell(told["3"], tmp_path, fresh)
    folder = tmp_path / "my-backend"
    assert "matmul_precision" in shell(told["4"], folder, fresh)
    printed = shell(told["5"], folder, fresh)
    assert "class Numpy(Requirements)" in printed
    assert re.search(r"\d+ passed", printed)
    assert re.search(r"\d+ fallback", printed)
    assert "conformance of numpy" in printed
    printed = shell(told["6"], folder, fresh)
    assert "still wrong" in printed
    assert "mismatch: " in printed


def test_the_example_passes_the_quick_level(fresh, tmp_path):
    """With its own file, torchmux and pytest; models need transformers, and are skipped."""
    source = shutil.copytree(Path(fresh["TORCHMUX"]) / "examples" / "plugin", tmp_path / "plugin")
    shell("python -m pip install --quiet --disable-pip-version-check .", source, fresh)
    printed = shell("python -m pytest -q -rs tests/test_conformance.py", source, fresh)
    assert "failed" not in printed.splitlines()[-1]
    counts = dict(re.findall(r"^(\S+/\S+) +(.*)$", printed, re.MULTILINE))
    assert "fallback" in counts["operators/torch"]
    assert set(counts) >= {"semantics/use", "semantics/training", "operators/nn.functional", "models/inference"}
    assert re.fullmatch(r"\d+ skipped", counts["models/inference"])
