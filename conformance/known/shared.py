"""What torch itself does under each backend that traces with it, where the scripts are that show known failures, and
the words of differences."""

from __future__ import annotations

from ..requirements import Expected

SCRIPTS = "tests/conformance/upstream/"

# How the words of differences begin.
STRIDES = r"(\[.*\]: strides |call\[\d+\]\['strides'\])"
RAISED = r"(\[.*\]|call\[\d+\]\['raised'\]): 'RuntimeError', eager has 'IndexError'"
SHARES = r"(\[.*\]: shares memory |call\[\d+\]\['(shares memory with|is an input)'\])"
FAILS = "CompilationFailed: inductor raised InductorError"


def results(*numbers: int) -> str:
    """How the words of a difference in one of these results begin."""
    return rf"\[({'|'.join(map(str, numbers))})\]: "


CUMULATIVE = Expected(
    "semantics/slopes/at_kinks",
    "Traced by torch 2.11, the gradient of a cumulative product with zeros and infinities is nan.",
    SCRIPTS + "torch_cumulative_products.py",
    "torch>=2.11,<2.12",
    only=r"\[0\]\[1\]\[46\]: ",
)


DATA = Expected(
    "models/gemma3n/training",
    "Traced by AOTAutograd, a write to the data of a weight counts in its version.",
    SCRIPTS + "torch_data_versions.py",
    "torch>=2.11,<2.14",
    only="calls: .*what it reads",
)
