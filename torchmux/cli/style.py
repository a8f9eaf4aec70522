"""One style for the help of all commands: paragraphs as wide as the terminal, and an example."""

from __future__ import annotations

import argparse
import textwrap

EXAMPLES = {
    "backends": "torchmux backends native --json",
    "doctor": "torchmux doctor --json",
    "explain": "torchmux explain model.py:Net --input 8x16 --backend native --html net.html",
    "breaks": "torchmux breaks TM003",
    "demo": "torchmux demo --models bert --backends native onnxrt --tiny",
    "bench": "torchmux bench bert model.py:make --backends native,onnxrt --plot bench.svg",
    "bisect": "torchmux bisect model.py:make --backend native --output wrong.py",
    "conformance": "torchmux conformance native --case 'semantics/*' --html native.html",
    "minify": "torchmux minify semantics/training/one_step --backend native --output small.py",
    "cache": "torchmux cache info",
    "cache info": "torchmux cache info --json",
    "cache clear": "torchmux cache clear",
    "cache export": "torchmux cache export artifacts.bin",
    "cache import": "torchmux cache import artifacts.bin",
    "decisions": "torchmux decisions list",
    "decisions list": "torchmux decisions list --json",
    "decisions show": "torchmux decisions show 3f2a",
    "decisions export": "torchmux decisions export fleet.json",
    "decisions import": "torchmux decisions import fleet.json",
    "decisions forget": "torchmux decisions forget --all",
    "decisions pin": "torchmux decisions pin 3f2a native",
    "decisions unpin": "torchmux decisions unpin 3f2a",
    "tune": "torchmux tune model.py:make --workers 2 --output decisions",
    "precompile": "torchmux precompile model.py:make --backend native --output model.tmx",
    "completion": "torchmux completion bash > ~/.local/share/bash-completion/completions/torchmux",
}
"""A command line for each command, by its words."""


class Paragraphs(argparse.HelpFormatter):
    """Descriptions keep their paragraphs, which are filled to the width of the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = (" ".join(each.split()) for each in text.strip().split("\n\n"))
        return "\n\n".join(
            textwrap.fill(each, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
            for each in paragraphs
        )


def parsers_of(parser: argparse.ArgumentParser, words: str = "") -> dict[str, argparse.ArgumentParser]:
    """The parser of each command and action below one, by its words."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                own = f"{words} {name}".strip()
                found |= {own: each, **parsers_of(each, own)}
    return found


def apply(parser: argparse.ArgumentParser) -> None:
    """Give all commands their example, and the one way of filling text."""
    parser.formatter_class = Paragraphs
    for words, each in parsers_of(parser).items():
        each.formatter_class = Paragraphs
        example = f"Example: {EXAMPLES[words]}"
        each.epilog = f"{each.epilog}\n\n{example}" if each.epilog else example
