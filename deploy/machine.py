"""What the machine must have that runs a file: system, processor, and the versions of torch and the runtimes."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from torchmux.backends.common.cache.versions import processor
from torchmux.registry.errors import LoadRefused
from torchmux.registry.names import JOINT
from torchmux.registry.resolve import known_spec
from torchmux.version import __version__

# Instructions that compilers use by themselves, as /proc/cpuinfo calls them.
_INSTRUCTIONS = re.compile(
    r"avx\w*|sse\w*|ssse3|fma|f16c|bmi[12]|popcnt|abm|movbe|amx_\w+|aes|vaes|pclmulqdq|vpclmulqdq|gfni|adx|sha_ni|"
    r"rdrand|rdseed|fsgsbase|xsave\w*|lahf_lm|cx16|asimd\w*|sve\w*|bf16|i8mm|fphp|fcma|jscvt|lrcpc|atomics|crc32"
)
_OF_ANY_PROCESSOR = ("eager", "aot_eager", "onnxrt", "openvino")  # their artifacts are translated where they are loaded

_WAYS_OUT = "Save the file again there, or call load(..., model=model, recompile=True), which compiles the model anew."


def needs(backends: Iterable[str]) -> dict[str, Any]:
    """What files with code of these backends need, for JSON."""
    members = {name for backend in backends for name in backend.split(JOINT)}
    versions = {"torch": _public(torch.__version__), "torchmux": __version__}
    for name in sorted(members):
        for requirement in known_spec(name).requires:
            for alternative in requirement.split("|"):
                distribution = re.match(r"[\w.-]+", alternative.strip())
                if distribution is not None and (found := _version(distribution[0])) is not None:
                    versions[distribution[0]] = found
                    break
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "instructions": sorted(instructions()) if members - set(_OF_ANY_PROCESSOR) else [],
        "versions": versions,
    }


def check(needed: Mapping[str, Any]) -> None:
    """Compare what a file needs with what is here.

    Raises:
        LoadRefused: something is missing or another.
    """
    here = platform.system(), platform.machine()
    if (needed["system"], needed["machine"]) != here:
        raise LoadRefused(
            f"The file was saved for {needed['system']} on {needed['machine']}, and this is {here[0]} on {here[1]}. "
            f"{_WAYS_OUT}"
        )
    for distribution, wanted in needed["versions"].items():
        found = {"torch": _public(torch.__version__), "torchmux": __version__}.get(distribution)
        found = _version(distribution) if found is None else found
        if found != wanted:
            now = "is not installed" if found is None else f"is version {found} here"
            raise LoadRefused(
                f"The file was saved with {distribution} {wanted}, which {now}. Install {distribution}=={wanted}. Or: "
                f"{_WAYS_OUT[0].lower()}{_WAYS_OUT[1:]}"
            )
    missing = set(needed["instructions"]) - instructions() if needed["instructions"] else set()
    if missing:
        raise LoadRefused(
            f"The file holds code for a processor with {', '.join(sorted(missing)[:6])}, which this one lacks. "
            f"{_WAYS_OUT}"
        )


def instructions() -> frozenset[str]:
    """The instructions of this processor that compilers use."""
    return frozenset(word for word in processor().split() if _INSTRUCTIONS.fullmatch(word))


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _public(version: str) -> str:
    """Without the part that says for which accelerator torch was built."""
    return version.split("+")[0]
