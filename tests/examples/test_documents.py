"""What the documents say can be done is done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import torchmux

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(document: Path) -> list[str]:
    """The Python in a document, in order."""
    return re.findall(r"^```python\n(.*?)^```$", document.read_text(), flags=re.DOTALL | re.MULTILINE)


WITH_CODE = [document for document in DOCUMENTS if blocks(document)]
# Pages for newcomers, whose programs are small: one process runs them all.
FIRST_PAGES = [
    ROOT / "docs" / f"{name}.md"
    for name in (
        "index", "ten-minutes", "from-torch-compile", "training", "dynamic-sizes", "frontend", "faq"
    )
]  # fmt: skip


def test_python_of_the_first_pages_runs(tmp_path, run_python):
    programs = []
    for document in FIRST_PAGES:
        programs.append(tmp_path / f"{document.stem.replace('-', '_')}.py")
        programs[-1].write_text("\n".join(blocks(document)))
    names = [str(program) for program in programs]
    run_python(f"import runpy\nfor name in {names!r}:\n    runpy.run_path(name, run_name='__main__')")


# Its program runs on several ranks: tests/distributed/test_document.py.
OF_A_JOB = ROOT / "docs" / "distributed.md"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "document",
    [each for each in WITH_CODE if each not in (*FIRST_PAGES, OF_A_JOB)],
    ids=lambda document: document.name,
)
def test_python_runs(document, tmp_path, run_python):
    """The blocks of one document are one program.  It is a file, since messages quote lines of it."""
    program = tmp_path / "program.py"
    program.write_text("\n".join(blocks(document)))
    run_python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")


def test_there_is_code():
    assert ROOT / "README.md" in WITH_CODE


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()):
        assert "://" in target or (document.parent / target).exists(), target


def test_the_table_of_backends_is_true():
    """README lists each backend that this package brings, and what it says of training and sizes is so."""
    stated = {}
    for line in (ROOT / "README.md").read_text().splitlines():
        if match := re.match(r"\| `(\w+)` \|.*\| (\w*) *\| (\w*) *\|$", line):
            stated[match[1]] = (match[2], match[3])
    ours = {row.name: row for row in torchmux.backends() if row.distribution == "torchmux"}
    assert stated.keys() == ours.keys()
    words = {True: "yes", False: "no"}
    for name, claims in stated.items():
        row = ours[name]
        if not row.retired and not row.unverified:
            assert claims == (words[row.training], words[row.dynamic_shapes]), name


def test_each_backend_and_option_is_described():
    text = (ROOT / "docs" / "backends.md").read_text()
    for row in torchmux.backends():
        if row.distribution == "torchmux":
            assert f"## `{row.name}`" in text
            assert all(f"`{option}`" in text for option in row.options), row.name


def test_each_public_name_is_documented():
    text = (ROOT / "docs" / "api.md").read_text() + (ROOT / "docs" / "errors.md").read_text()
    assert [name for name in torchmux.__all__ if f"`{name}`" not in text and name != "__version__"] == []
