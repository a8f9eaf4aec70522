"""Names of the user's program in generated code: nothing that they hold can end a comment, a string or a line."""

from __future__ import annotations

import ast
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import torchmux
from torchmux.backends.native.targets.cpu import build
from torchmux.config import config
from torchmux.quoting import MOST, is_name, quoted

HOSTILE = {
    "newline": "a\nint injected = 1;\n//",
    "carriage return": "a\rint injected = 1;",
    "vertical": "a\v\f\x1c\x1d\x1eint injected;",
    "end of a comment": "a */ int injected; /*",
    "trigraph": "a??/",
    "trigraph newline": "a??/\nint injected;",
    "backslash": "a\\",
    "backslash newline": "a\\\nint injected;",
    "backslashes": "\\" * 7,
    "nul": "a\0b",
    "quotes": "\"\"\"'''\nimport os\n",
    "braces": "{injected} {0} %s %(x)s ${x} `x`",
    "line separators": "a\u2028int injected;\u2029\x85b",
    "bidirectional": "a\u202e;detcejni tni",
    "surrogates": "a\udc80b",
    "html": "</script><script>injected()</script><!--",
    "coding": "-*- coding: utf-7 -*-",
    "long": "x" * 10_000,
    "long lines": "\n" * 10_000,
    "universal character name": "\\u000aint injected;",
    "raw string": 'R"(',
    "empty": "",
}


def random_names(count: int) -> list[str]:
    """Names of pieces that mean something to one language or another."""
    numbers = random.Random(7)
    pieces = ["\n", "\r", "*/", "/*", "//", "??/", "\\", '"', "'", '"""', "\0", "\u2028", "x", " ", "#", "}", ";"]
    return ["".join(numbers.choices(pieces, k=numbers.randint(1, 12))) for _ in range(count)]


ALL = [*HOSTILE.values(), *random_names(300)]


def test_it_is_one_line_of_what_can_be_read() -> None:
    for name in ALL:
        text = quoted(name)
        assert text.isprintable()
        assert len(text.splitlines()) <= 1
        assert len(text) <= 10 * MOST
        assert not set('?*"') & set(text)
        assert not text.endswith("\\")
        text.encode()


def test_ordinary_names_stay() -> None:
    for name in ("/home/me/model.py:12", "<string>:1", "aten.relu.default", "C:/x y/(z)[1].py", "/tmp/été/模型.py"):
        assert quoted(name) == name


def test_python_comments_and_docstrings() -> None:
    for name in ALL:
        tree = ast.parse(f"# {quoted(name)}\nx = 1\n")
        assert len(tree.body) == 1
        tree = ast.parse(f'"""{quoted(name)}"""\nx = 1\n')
        assert len(tree.body) == 2


@pytest.mark.parametrize("standard", ["c++11", "c++17"])
def test_comments_in_cpp(tmp_path, standard) -> None:
    """Trigraphs are part of the language until C++17."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    lines = [f"// {quoted(name)}\nint line{n}; /* {quoted(name)} */ int other{n};" for n, name in enumerate(ALL)]
    used = [f"line{n} + other{n}" for n in range(len(ALL))]
    (tmp_path / "a.cpp").write_text("\n".join(lines) + f"\nint sum() {{ return {' + '.join(used)}; }}\n")
    command = [compiler, f"-std={standard}", "-w", "-fsyntax-only", "a.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:2000]
    command = [compiler, f"-std={standard}", "-w", "-E", "-P", "a.cpp"]
    symbols = subprocess.run(command, cwd=tmp_path, capture_output=True)
    assert b"injected" not in symbols.stdout


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_files_with_hostile_names(name, tmp_path) -> None:
    """A program in such a file, whose function has such a name, through the whole compiler and its traces."""
    name = name.replace("\0", "")  # Python itself refuses these
    namespace = {"torch": torch}
    exec(compile("def f(x):\n    return torch.softmax(x.relu() * 0.25, -1)\n", name or "x", "exec"), namespace)
    f = namespace["f"]
    x = torch.randn(3, 7)
    options = {"trace.enabled": True, "trace.graph_diagram": True, "trace.debug_dir": str(tmp_path / "trace")}
    with config.patch(cache_dir=tmp_path / "cache"), torch.no_grad():
        compiled = torchmux.compile(f, backend="native", options=options, strict=True)
        torch.testing.assert_close(compiled(x), f(x))
    (code, python) = torchmux.report(compiled).graphs[0].report.output_code
    outside = [line for line in code.splitlines() if not line.startswith("//")]
    assert not [line for line in outside if "injected" in line]
    ast.parse(python)
    for file in Path(tmp_path / "trace").rglob("graph.svg"):
        from xml.etree import ElementTree

        ElementTree.parse(file)


def test_only_names_are_imported() -> None:
    assert is_name("torch.nn.functional")
    for name in ("x\nimport os", "a b", "", "class", "a..b", "a;b", "*"):
        assert not is_name(name)


def test_no_cached_format_is_pickled() -> None:
    """Whoever could write such a file could run code; nor does anything else here read pickles."""
    root = Path(build.__file__).parents[4]
    assert (root / "backends" / "tensorrt").is_dir()
    for room in ("backends", "torchmux", "registry"):
        for file in sorted((root / room).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                banned = {"pickle", "cPickle", "marshal", "dill", "cloudpickle", "shelve"}
                assert not banned & {name.partition(".")[0] for name in names}, file
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "torch":
                    assert node.attr != "load" or "weights_only=True" in ast.unparse(ast.parse(file.read_text())), file
