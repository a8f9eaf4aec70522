"""The contract in registry/contract.py, its checks, its defaults and its page say the same."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import torchmux.registry
from torchmux.registry import (
    Backend,
    BackendExtras,
    BackendSpec,
    CompiledPart,
    CompiledPartExtras,
    CompileRequest,
    PlainFunction,
    conforms,
    contract,
    errors,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "backend-authors.md").read_text()
SOURCE = inspect.getsource(contract)

PROTOCOLS = {
    PlainFunction: "function",
    Backend: "required",
    BackendExtras: "optional",
    CompiledPart: "required",
    CompiledPartExtras: "optional",
}


def members(protocol: type) -> dict[str, str]:
    """The members that a protocol declares, as the page writes them: with their arguments, if they are methods."""
    found = {}
    for name, value in vars(protocol).items():
        if inspect.isfunction(value) and (name == "__call__" or not name.startswith("_")) and name != "__init__":
            taken = [p for p in inspect.signature(value).parameters.values() if p.name != "self"]
            stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
            found[name] = f"{name}({', '.join(stars.get(p.kind, '') + p.name for p in taken)})"
    found.update({name: name for name in vars(protocol).get("__annotations__", {})})
    return found


def rows() -> dict[str, list[str]]:
    """The tables of the page's section on the contract: what a row is about -> its other cells."""
    section = re.search(r"^## The contract, member by member$(.*?)^## ", PAGE, re.DOTALL | re.MULTILINE)
    assert section, "the page has no section on the contract"
    found = {}
    for line in section[1].splitlines():
        if match := re.match(r"\| `([^`]+)` \|(.*)\|$", line):
            assert match[1] not in found, match[1]
            found[match[1]] = [cell.strip() for cell in match[2].split(" | ")]
    return found


def expected() -> dict[str, tuple[type, str]]:
    """What the page has to have a row for: as it is written there -> the protocol and whether it is required."""
    found = {}
    for protocol, kind in PROTOCOLS.items():
        for name, written in members(protocol).items():
            owner = {PlainFunction: "function", CompiledPart: "code"}.get(protocol, "")
            found[written.replace("__call__", owner) if name == "__call__" else written] = (protocol, kind)
    return found


def test_the_page_and_the_protocols_have_the_same_members() -> None:
    assert rows().keys() == expected().keys()


@pytest.mark.parametrize("written", expected())
def test_each_row_says_when_it_is_asked_and_what_happens_without_it(written: str) -> None:
    cells = rows()[written]
    assert len(cells) == 3, "when it is called; without it; errors"
    assert all(cells)
    _, kind = expected()[written]
    assert (cells[1] == "required") == (kind in ("required", "function"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_member_is_described(protocol: type) -> None:
    assert protocol.__doc__
    for name in members(protocol):
        if name in vars(protocol):
            text = vars(protocol)[name].__doc__
        else:  # an attribute: the string behind it
            match = re.search(rf'^    {name}: [^\n]*\n    """(.*?)"""', SOURCE, re.DOTALL | re.MULTILINE)
            text = match and match[1]
        assert text, name
        if PROTOCOLS[protocol] == "optional":
            assert re.search(r"[Ww]ithout\s+it", text), f"{name}: what happens without it?"


def test_each_protocol_is_looked_at() -> None:
    declared = {
        c for c in vars(contract).values() if getattr(c, "_is_protocol", False) and c.__module__ == contract.__name__
    }
    assert declared == {*PROTOCOLS, contract.CompiledGraph}


def test_errors_on_the_page_are_those_of_the_docstrings() -> None:
    """An error that a member's docstring lists as raised stands in its row, and both are errors that there are."""
    for written, (protocol, _) in expected().items():
        name = written.partition("(")[0]
        text = inspect.getdoc(vars(protocol).get(name if name in vars(protocol) else "__call__", None)) or ""
        raised = set(re.findall(r"^ {4}(\w+): ", text.partition("Raises:")[2], re.MULTILINE)) - {"Exception"}
        assert raised <= set(vars(errors)), written
        told = set(re.findall(r"`(\w+)", rows()[written][2])) & set(vars(errors))
        assert raised <= told, written


def test_the_check_at_load_asks_for_the_members_that_the_protocols_declare() -> None:
    for table, protocol in ((conforms.REQUIRED, Backend), (conforms.OPTIONAL, BackendExtras)):
        declared = members(protocol)
        assert {name: f"{name}({', '.join(arguments)})" for name, arguments in table.items()} == declared


def test_the_pipeline_has_a_default_for_each_member() -> None:
    from torchmux.backends.common.pipeline.implementation import Implementation, Told

    assert {f.name for f in fields(Implementation)} == {*members(Backend), *members(BackendExtras)}
    told = {name for name in vars(Told) if not name.startswith("_")} - {"run"}
    assert told == {*members(CompiledPartExtras)}


def test_the_page_names_each_field_of_spec_and_request() -> None:
    for described in (BackendSpec, CompileRequest):
        assert [f.name for f in fields(described) if f"`{f.name}`" not in PAGE] == []


def test_what_an_author_needs_is_public() -> None:
    public = set(torchmux.registry.__all__)
    assert {c.__name__ for c in PROTOCOLS} <= public
    for name in ("GraphRefused", "NodesRefused"):
        assert name in public
        assert issubclass(getattr(torchmux, name), torchmux.TorchmuxError)


def test_nobody_else_asks_whether_there_is_a_member() -> None:
    """One adapter fills the defaults in: no other module of the pipeline, the cache or the adapter kit looks."""
    names = [*members(BackendExtras), *members(CompiledPartExtras), *members(Backend)]
    asks = re.compile(rf"(?:has|get)attr\([^()\n]*, \"(?:{'|'.join(names)})\"")
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "backends").rglob("*.py")
        if asks.search(path.read_text()) and path.name != "implementation.py"
    ]
    assert found == []
