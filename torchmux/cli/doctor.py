"""``torchmux doctor``: what this machine has, what does not fit together, and what to do about it."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shlex
import shutil
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

import torchmux
from torchmux.config import config
from torchmux.wording import counted

from .screen import in_a_line, one_line, show

_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}
_FEATURES = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")
_OPENMP = ("libgomp", "libiomp5", "libomp")
_LITTLE = 1 << 30  # bytes


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, how good that is, and what to do if it is not."""

    about: str
    state: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "doctor",
        help="check this machine: versions, compiler, processor, GPU, cache, backends",
        description="Check what torchmux depends on, and say what to do about what is missing. Nothing is changed, "
        "compiled or sent. Exits with 1 if something keeps torchmux from working. Add the output to reports of bugs. "
        "Example: torchmux doctor --json",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print all findings; the exit status is 1 if one of them is a problem."""
    findings = examine()
    if arguments.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for title in ("what", "state"):
            table.add_column(title, no_wrap=True)
        table.add_column("found, and what to do", overflow="fold")
        for each in findings:
            told = Text(each.found + (f"\n{each.advice}" if each.advice else ""))
            table.add_row(each.about, Text(each.state, style=_STYLES[each.state]), told)
        show(table)
    return int(any(finding.state == "problem" for finding in findings))


def examine() -> list[Finding]:
    """All findings.  A check that fails itself is a finding, too."""
    found: list[Finding] = []
    for check in (_system, _versions, _compiler, _processor, _openmp, _gpu, _cache, _backends):
        try:
            found += check()
        except Exception as error:
            found.append(Finding(check.__name__.strip("_"), "note", f"cannot be examined: {in_a_line(error)}"))
    return found


def _system() -> list[Finding]:
    system, machine = platform.system(), platform.machine()
    words = f"{system} {platform.release()}, {machine}"
    if system != "Linux":
        return [
            Finding("system", "problem", words, "torchmux runs on Linux; use WSL, a container or a virtual machine")
        ]
    if machine != "x86_64":
        return [Finding("system", "note", words, "torchmux is measured on x86_64 only")]
    return [Finding("system", "ok", words)]


def _versions() -> list[Finding]:
    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    found = []
    try:
        about = importlib.metadata.metadata("torchmux")
        python, needed = about["Requires-Python"] or "", importlib.metadata.requires("torchmux") or []
    except importlib.metadata.PackageNotFoundError:
        found.append(Finding("torchmux", "problem", "is not installed", "python -m pip install torchmux"))
        python, needed = "", []
    fits = SpecifierSet(python).contains(platform.python_version(), prereleases=True)
    advice = "" if fits else f"torchmux supports Python {python}"
    found.append(Finding("Python", "ok" if fits else "problem", platform.python_version(), advice))
    found.append(Finding("torchmux", "ok", torchmux.__version__))
    for requirement in map(Requirement, needed):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        command = f"python -m pip install '{requirement.name}{requirement.specifier}'"
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            found.append(Finding(requirement.name, "problem", "is not installed", command))
            continue
        if requirement.specifier.contains(version, prereleases=True):
            found.append(Finding(requirement.name, "ok", version))
        else:
            told = f"{version}, outside of the supported {requirement.specifier}"
            found.append(Finding(requirement.name, "problem", told, command))
    return found


def _compiler() -> list[Finding]:
    from torchmux.backends.native.targets.cpu import toolchain

    command = toolchain.compiler_command()
    if command is None:
        reason = toolchain.probe().reason
        advice = "native and inductor need it on the CPU: apt install g++, or dnf install gcc-c++"
        return [Finding("C++ compiler", "note", reason, advice)]
    try:
        said = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        advice = "reinstall it, or set CXX to one that works"
        return [Finding("C++ compiler", "problem", f"{shlex.join(command)} does not run: {one_line(error)}", advice)]
    return [Finding("C++ compiler", "ok", f"{shlex.join(command)}: {said.splitlines()[0] if said else '?'}")]


def _processor() -> list[Finding]:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    named = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = (named.get("flags") or named.get("Features") or "").split()
    features = [name for name in _FEATURES if name in flags]
    cores = len(os.sched_getaffinity(0))
    words = f"{named.get('model name', platform.machine())}, {counted(cores, 'usable core')}"
    words += f"; {', '.join(features) or 'none of the vector instructions that torchmux knows'}"
    if platform.machine() == "x86_64" and "avx2" not in features:
        return [Finding("processor", "problem", words, "native needs AVX2; choose another backend")]
    return [Finding("processor", "ok", words)]


def _openmp() -> list[Finding]:
    import torch

    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line}
    loaded = sorted(path for path in paths if Path(path).name.startswith(_OPENMP))
    words = f"{counted(torch.get_num_threads(), 'thread')} in torch; {', '.join(loaded) or 'no OpenMP is loaded'}"
    if len(loaded) > 1:
        return [Finding("OpenMP", "note", words, "several runtimes start threads of their own, which slows both down")]
    return [Finding("OpenMP", "ok", words)]


def _gpu() -> list[Finding]:
    import torch

    if torch.version.cuda is None and torch.version.hip is None:
        return [Finding("GPU", "ok", "torch is built for the CPU only")]
    if not torch.cuda.is_available():
        return [Finding("GPU", "note", f"torch {torch.__version__} finds none", "nvidia-smi says if the driver works")]
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return [Finding("GPU", "ok", f"{', '.join(names)}; CUDA {torch.version.cuda}")]


def _cache() -> list[Finding]:
    if not config.cache_enabled:
        return [Finding("cache", "note", "is off (TORCHMUX_CACHE_ENABLED), so each process compiles anew")]
    folder = Path(config.cache_dir)
    existing = next(each for each in (folder, *folder.parents) if os.path.exists(each))
    if not os.access(existing, os.W_OK):
        return [Finding("cache", "problem", f"{folder} cannot be written", "set TORCHMUX_CACHE_DIR to another folder")]
    free = shutil.disk_usage(existing).free
    words = f"{folder}, {free / 2**30:.1f} GiB free"
    if free < _LITTLE:
        return [Finding("cache", "note", words, "torchmux cache clear, or set TORCHMUX_CACHE_DIR")]
    return [Finding("cache", "ok", words)]


def _backends() -> list[Finding]:
    found = []
    for row in torchmux.backends():
        if row.retired:
            continue
        name = f"backend {row.name}"
        if row.available:
            found.append(Finding(name, "ok", row.version or row.summary))
        else:
            advice = f"to use it: {row.install}" if row.install and not row.error else ""
            found.append(Finding(name, "note", row.error or row.reason or "not checked", advice))
    return found
