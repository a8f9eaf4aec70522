"""Plugins as they are installed: good ones, broken ones, two of one name, and those that only torch knows.

Each is a dist-info folder and a module made on the fly; what imports them runs in another interpreter.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GOOD = """
from torchmux.registry import BackendSpec

def compiler(gm, example_inputs, **options):
    return gm.forward

SPEC = BackendSpec({name!r}, "for tests", "{module}:compiler", training=True)
"""

LISTING = """
import json, torchmux
print(json.dumps({row.name: row.to_dict() for row in torchmux.backends()}))
"""

RESOLVE = """
import json
from torchmux.registry import TorchmuxError, resolve
try:
    resolve({name!r})
except TorchmuxError as error:
    print(json.dumps([type(error).__name__, str(error), type(error.__cause__).__name__]))
else:
    print(json.dumps(["resolved", "", ""]))
"""


class Site:
    """A folder of made-up distributions."""

    def __init__(self, folder: Path, run_python) -> None:
        self.folder = folder
        self._run = run_python
        folder.mkdir()

    def add(self, distribution: str, code: str, entries: dict[str, str], group: str = "torchmux.backends") -> None:
        module = distribution.replace("-", "_")
        (self.folder / f"{module}.py").write_text(code)
        info = self.folder / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        lines = [f"{name} = {module}:{attribute}" for name, attribute in entries.items()]
        (info / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))

    def good(self, distribution: str, name: str) -> None:
        self.add(distribution, GOOD.format(name=name, module=distribution.replace("-", "_")), {name: "SPEC"})

    def listing(self) -> dict[str, dict]:
        return json.loads(self.run(LISTING))

    def resolve(self, name: str) -> list[str]:
        """Name of the error, its message, name of its cause."""
        return json.loads(self.run(RESOLVE.format(name=name)))

    def run(self, code: str) -> str:
        return self._run(code, path=(self.folder,))


@pytest.fixture
def site(tmp_path, run_python) -> Site:
    return Site(tmp_path / "site", run_python)


def test_a_good_one(site):
    site.good("acme-plugin", "acme")
    row = site.listing()["acme"]
    assert (row["available"], row["reason"], row["error"]) == (True, "", "")
    assert (row["distribution"], row["version"], row["foreign"]) == ("acme-plugin", "1.0", False)
    assert site.resolve("Acme")[0] == "resolved"


BROKEN = {
    "raises": ("import no_such_thing", "BackendUnavailable", "No module named 'no_such_thing'", "ModuleNotFoundError"),
    "exits": ("raise SystemExit('bye')", "BackendUnavailable", "raised SystemExit: bye", "SystemExit"),
    "empty": ("", "BackendUnavailable", "has no attribute 'SPEC'", "AttributeError"),
    "number": ("SPEC = 3", "InvalidSpec", "as 3 (int). It must be a BackendSpec", "NoneType"),
    "future": (
        "from torchmux.registry import BackendSpec\nSPEC = BackendSpec('future', '', 'a:b', api=99)",
        "InvalidSpec",
        "version 99 of the contract, but this torchmux supports version 1",
        "NoneType",
    ),
    "renamed": (
        "from torchmux.registry import BackendSpec\nSPEC = BackendSpec('another', '', 'a:b')",
        "InvalidSpec",
        "under the name 'renamed', but its own name is 'another'",
        "NoneType",
    ),
    "typed": (
        "from torchmux.registry import BackendSpec\nSPEC = BackendSpec('typed', '', 'a:b', requires='numpy')",
        "InvalidSpec",
        "requires must be a tuple of strings",
        "NoneType",
    ),
    "unreadable": (
        "from dataclasses import dataclass\nfrom torchmux.registry import BackendSpec\n"
        "@dataclass\nclass O:\n    x: 'NoSuchName' = 1\n"
        "SPEC = BackendSpec('unreadable', '', 'a:b', options=O, modes={'m': {'x': 1}})",
        "InvalidSpec",
        "an unreadable description of the backend 'unreadable': NameError",
        "NameError",
    ),
}


def test_broken_ones_are_listed_with_their_error_and_hurt_nobody(site):
    site.good("acme-plugin", "acme")
    for name, (code, *_) in BROKEN.items():
        site.add(f"{name}-plugin", code, {name: "SPEC"})
    rows = site.listing()
    assert rows["acme"]["available"] is True
    assert rows["eager"]["available"] is True
    for name, (_, _, message, _) in BROKEN.items():
        assert rows[name]["available"] is False
        assert message in rows[name]["error"]
        assert f"{name}-plugin 1.0" in rows[name]["error"]
    # Asked for, each raises the same; all in one interpreter, which is what they must not hurt.
    code = "\n".join(RESOLVE.format(name=name) for name in [*BROKEN, *BROKEN, "acme"])
    answers = [json.loads(line) for line in site.run(code).splitlines()]
    assert answers[-1][0] == "resolved"
    expected = [(kind, cause) for _, kind, _, cause in BROKEN.values()] * 2
    assert [(kind, cause) for kind, _, cause in answers[:-1]] == expected
    for answer, name in zip(answers, [*BROKEN, *BROKEN], strict=False):
        assert answer[1] == rows[name]["error"]


def test_two_distributions_of_one_name(site):
    site.good("acme-one", "same")
    site.good("acme-two", "same")
    site.good("acme-plugin", "acme")
    rows = site.listing()
    assert rows["acme"]["available"] is True
    assert rows["same"]["available"] is False
    kind, message, _ = site.resolve("same")
    assert kind == "BackendConflict"
    assert "acme-one 1.0 (acme_one:SPEC)" in message
    assert "acme-two 1.0 (acme_two:SPEC)" in message
    assert rows["same"]["error"] == message
    site.run(
        "import torchmux\nfrom torchmux.registry import resolve\n"
        "torchmux.unregister_backend('same', distribution='acme-two')\n"
        "assert resolve('same').spec.load == 'acme_one:compiler'"
    )


def test_a_name_of_ours_cannot_be_taken_over(site):
    site.good("acme-plugin", "eager")
    rows = site.listing()
    assert (rows["eager"]["distribution"], rows["eager"]["available"], rows["eager"]["error"]) == ("torchmux", True, "")
    other = rows["acme_plugin:eager"]
    assert (other["distribution"], other["available"], other["error"]) == ("acme-plugin", True, "")
    assert "the name 'eager' is that of torchmux's own backend" in other["reason"]
    printed = site.run(
        "import torch, torchmux\nfrom torchmux.registry import resolve\n"
        "assert resolve('eager').spec.load.startswith('torchmux.')\n"
        "for name in ('acme-plugin:eager', 'acme_plugin:Eager'):\n"
        "    compiled = torchmux.compile(lambda x: x + 1, backend=name)\n"
        "    assert compiled(torch.ones(1)).item() == 2\n"
        "    print(torchmux.report(compiled).graphs[0].report.backend)\n"
        "torchmux.unregister_backend('eager', distribution='acme-plugin')\n"
        "try: resolve('acme_plugin:eager')\n"
        "except torchmux.UnknownBackend: print('gone')\n"
    )
    assert printed.split() == ["acme_plugin:eager", "acme_plugin:eager", "gone"]


def test_two_that_want_a_name_of_ours(site):
    site.good("acme-one", "native")
    site.good("acme-two", "native")
    rows = site.listing()
    assert rows["native"]["distribution"] == "torchmux"
    assert site.resolve("acme_one:native")[0] == site.resolve("acme_two:native")[0] == "resolved"


INTERRUPTING = {
    "interrupts": ("raise KeyboardInterrupt", "raised RuntimeError: it raised KeyboardInterrupt"),
    "exits": ("import sys; sys.exit(3)", "raised SystemExit: 3"),
    "base": ("class E(BaseException): pass\nraise E('x' * 1_000_000)", "raised E: xxx"),
    "generator": ("raise GeneratorExit", "raised GeneratorExit"),
}


def test_ones_that_interrupt(site):
    for name, (code, _) in INTERRUPTING.items():
        site.add(f"{name}-plugin", code, {name: "SPEC"})
    rows = site.listing()
    for name, (_, message) in INTERRUPTING.items():
        assert message in rows[name]["error"]
        assert len(rows[name]["error"]) < 1500
    assert rows["eager"]["available"] is True


def test_ones_that_exit_while_a_module_is_being_imported(site):
    """No thread can help there: it would wait for the locks of those modules."""
    names = ("exits", "base", "generator")
    for name in names:
        site.add(f"{name}-plugin", INTERRUPTING[name][0], {name: "SPEC"})
    (site.folder / "importer.py").write_text("import torchmux\nassert torchmux.backends()\n")
    told = site.run("import importer, torchmux\nprint(*(row.name for row in torchmux.backends() if row.error))")
    assert sorted(told.split()) == sorted(names)


def test_one_that_hangs_is_named_and_given_up(site):
    site.add("slow-plugin", "import time\ntime.sleep(1000)", {"slow": "SPEC"})
    site.good("acme-plugin", "acme")
    limits = "from torchmux.registry import loading\nloading.TOLD_AFTER, loading.LIMIT = 0.2, 0.5\n"
    rows = json.loads(site.run(limits + LISTING))
    assert "slow-plugin 1.0" in rows["slow"]["error"]
    assert "importing it takes too long: it did not end within" in rows["slow"]["error"]
    assert rows["acme"]["available"] is True
    told = site.run(
        limits + "import logging, sys, torchmux\nlogging.basicConfig(stream=sys.stdout)\ntorchmux.list_backends()"
    )
    assert "waiting for the import of slow-plugin 1.0" in told


def test_a_damaged_torchmux_is_not_to_be_removed(monkeypatch):
    from torchmux.registry import BackendUnavailable, discovery

    def fails():
        raise ImportError("gone")

    candidate = discovery.Candidate("eager", "torchmux 1.0 (a:b)", fails, distribution="torchmux")
    with pytest.raises(BackendUnavailable, match="--force-reinstall --no-deps torchmux") as raised:
        candidate.describe()
    assert "uninstall" not in str(raised.value)


def test_a_plain_function_and_a_class_may_be_named_too(site):
    code = (
        "def fn(gm, example_inputs):\n    'Does it.'\n    return gm.forward\n"
        "class Full:\n    def supports(self, node): return True\n    def compile(self, gm, i, request): return gm"
    )
    site.add("acme-plugin", code, {"short": "fn", "full": "Full"})
    rows = site.listing()
    assert rows["short"]["summary"] == "Does it."
    assert rows["short"]["available"] is rows["full"]["available"] is True
    assert site.resolve("short")[0] == site.resolve("full")[0] == "resolved"


FOREIGN = """
print("imported")
def compiler(gm, example_inputs, *, mode=None, options=None):
    print("compiling", mode, options)
    return gm.forward
"""


def test_what_only_torch_knows_is_marked_and_not_imported(site):
    site.add("acme-plugin", FOREIGN, {"acme-torch": "compiler"}, "torch_dynamo_backends")
    row = site.listing()["acme_torch"]  # "imported" before it would not parse as JSON
    assert row["foreign"] is True
    assert row["available"] is None
    assert row["distribution"] == "acme-plugin"
    printed = site.run(
        "import torch, torchmux\nfrom torchmux.registry import resolve\n"
        "assert 'acme_torch' not in torchmux.list_backends()\n"
        "assert torchmux.list_backends(foreign=True)[0] != 'acme_torch' in torchmux.list_backends(foreign=True)\n"
        "gm = torch.fx.symbolic_trace(lambda x: (x + 1,))\n"
        "compiled = resolve('acme_torch', options={'a': 1}).compile(gm, [torch.ones(1)], training=False)\n"
        "assert compiled(torch.ones(1))[0].item() == 2\n"
        "resolve('acme_torch', mode='fast').compile(gm, [torch.ones(1)], training=False)\n"
    )
    assert printed.splitlines() == ["imported", "compiling None {'a': 1}", "compiling fast None"]


def test_ours_are_not_seen_twice(site):
    assert not [name for name in site.listing() if name.startswith("torchmux_")]


def test_one_that_describes_itself_comes_before_one_that_only_torch_knows(site):
    site.good("acme-plugin", "acme")
    site.add("acme-torch", FOREIGN, {"acme": "compiler"}, "torch_dynamo_backends")
    assert site.listing()["acme"]["foreign"] is False


def test_a_retired_name_yields_to_a_backend_that_has_it(site):
    retired = "from torchmux.registry import Tombstone\nSPEC = Tombstone('acme', 'it was archived.', 'eager')"
    site.add("acme-plugin", retired, {"acme": "SPEC"})
    row = site.listing()["acme"]
    assert (row["retired"], row["available"]) == (True, False)
    kind, message, _ = site.resolve("acme")
    assert kind == "BackendUnavailable"
    assert message == "The backend 'acme' is retired: it was archived. Use backend='eager' instead."
    site.add("acme-torch", FOREIGN, {"acme": "compiler"}, "torch_dynamo_backends")
    assert site.listing()["acme"]["foreign"] is True
    assert site.resolve("acme")[0] == "resolved"
