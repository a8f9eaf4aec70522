"""The site's navigation has every page, and the generated tables are current; ``tox -e docs`` builds it."""

from __future__ import annotations

import importlib.util
import re
import xml.etree.ElementTree
from pathlib import Path

import torchmux

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
LISTED = re.findall(r"[\w/-]+\.md$", NAVIGATION, re.MULTILINE)
# Pages that docs/hooks.py makes.
MADE = {"contributing.md", "changelog.md", "scoreboard.md", "reference.md"}


def test_each_page_is_in_the_navigation_once():
    backends = {f"backends/{row.name}.md" for row in torchmux.backends() if row.distribution == "torchmux"}
    files = {file.name for file in DOCS.glob("*.md")}
    assert sorted(LISTED) == sorted(files | backends | MADE)


def script(name):
    """A module beside the documents."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_current():
    tables = script("tables")
    page = tables.PAGE.read_text()
    assert tables.filled(page) == page, "run: python docs/tables.py"


def test_the_plots_are_current():
    plots = script("plots")
    for file in plots.FILES.values():
        assert plots.digest().encode() in file.read_bytes(), "run: python docs/plots.py"
    page = (DOCS / "performance.md").read_text()
    assert all(f"plots/{file.name})" in page for file in plots.FILES.values())


def test_the_prose_is_plain():
    """`tox -e docs` checks clichés and spelling too."""
    prose = script("prose")
    found = [f"{page.name}:{line}: {words}" for page in prose.PAGES for line, words in prose.problems(page.read_text())]
    assert found == []


def test_what_the_check_of_prose_finds():
    prose = script("prose")
    text = "All is well.\n\n```python\nin_vain = 'in vain'\n```\n\nIt was\nin vain. `in vain` too, and the colour."
    assert [(line, words.split(":")[0]) for line, words in prose.problems(text)] == [
        (8, "'in vain'"),
        (8, "'colour' is British"),
    ]
    assert ["a sentence of 60 words" in words for _, words in prose.problems("word " * 60 + ".")] == [True]


def test_each_drawing_is_shown_and_has_a_title():
    shown = {
        name for page in DOCS.glob("*.md") for name in re.findall(r"\]\(drawings/([\w-]+\.svg)\)", page.read_text())
    }
    files = {file.name: xml.etree.ElementTree.parse(file).getroot() for file in (DOCS / "drawings").glob("*.svg")}
    assert set(files) == shown
    for name, root in files.items():
        assert root.findtext("{http://www.w3.org/2000/svg}title"), name


def test_variables_and_names_for_those_who_come_from_torch_exist():
    page = (DOCS / "from-torch-compile.md").read_text()
    settings = {f"TORCHMUX_{name.upper()}" for name in torchmux.config.to_dict()} | {"TORCHMUX_LOGS"}
    assert set(re.findall(r"TORCHMUX_\w+", page)) <= settings
    for name in re.findall(r"`torchmux\.(\w+)", page):
        assert hasattr(torchmux, name), name
