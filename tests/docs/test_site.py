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


def test_the_tables_are_current():
    spec = importlib.util.spec_from_file_location("docs_tables", DOCS / "tables.py")
    assert spec is not None and spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    page = tables.PAGE.read_text()
    assert tables.filled(page) == page, "run: python docs/tables.py"


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
