"""``CONTRIBUTING.md``: the steps of each recipe, taken in a copy of the repository, and the map of folders."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = ("Add a builtin", "Add a guard", "Add a lowering", "Add a conformance case")

BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
CREATE = re.compile(r"Create\s+`([^`]+)`:$")
EDIT = re.compile(r"In\s+`([^`]+)`,\s+(?:(at\s+the\s+end)|instead\s+of\s+`([^`]+)`):$")


@dataclass
class Step:
    """A code block, and what the words ahead of it say is done with it."""

    language: str
    code: str
    path: str = ""
    created: bool = False
    replaced: str = ""


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[1]


def steps(title):
    """The code blocks of a recipe, in order."""
    text = section(title)
    found, at = [], 0
    for block in BLOCK.finditer(text):
        words = text[at : block.start()].rstrip()
        at = block.end()
        step = Step(block[2], textwrap.dedent(block[3]))
        if (create := CREATE.search(words)) is not None:
            step.path, step.created = create[1], True
        elif (edit := EDIT.search(words)) is not None:
            step.path, step.replaced = edit[1], edit[3] or ""
        found.append(step)
    return found


def numbers(title):
    return [int(number) for number in re.findall(r"^(\d)\. ", section(title), re.MULTILINE)]


@pytest.fixture
def copy(tmp_path):
    """A copy of the repository, and the environment in which Python imports torchmux from there."""
    repository = tmp_path / "repository"
    leave = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "results")
    shutil.copytree(ROOT, repository, ignore=leave)
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    package = tmp_path / "path" / "torchmux"
    package.mkdir(parents=True)
    for entry in (repository / "torchmux").iterdir():
        (package / entry.name).symlink_to(entry)
    for line in setup["options"]["package_dir"].split("\n"):
        name, _, folder = (part.strip() for part in line.partition("="))
        if name.count(".") == 1:
            (package / name.split(".")[1]).symlink_to(repository / folder)
    cache = {"TORCHMUX_CACHE_DIR": str(tmp_path / "cache")}
    # Not from the current folder, where torchmux/ is only a part of the package.
    return repository, {**os.environ, **cache, "PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": "1"}


def apply(step, repository):
    path = repository / step.path
    if step.created:
        assert not path.exists(), step.path
        path.write_text(step.code)
    elif step.replaced:
        lines = path.read_text().split("\n")
        assert lines.count(step.replaced) == 1, (step.path, step.replaced)
        lines[lines.index(step.replaced)] = step.code.rstrip("\n")
        path.write_text("\n".join(lines))
    else:
        path.write_text(f"{path.read_text()}\n\n{step.code}")


def run(step, repository, environment):
    if step.language == "python":
        script = repository / "shown.py"
        script.write_text(step.code)
        commands = [[sys.executable, str(script)]]
    else:
        commands = [line.split() for line in step.code.splitlines()]
        assert all(command[0] == "python" for command in commands)
        commands = [[sys.executable, *command[1:]] for command in commands]
    for command in commands:
        done = subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("title", RECIPES)
def test_the_steps_of_a_recipe_work(title, copy):
    repository, environment = copy
    where = Step("python", "import torchmux.frontend as f, os\nassert os.environ['PYTHONPATH'] in f.__file__\n")
    run(where, repository, environment)  # of the copy, not of the repository
    for step in steps(title):
        if step.path:
            apply(step, repository)
        else:
            run(step, repository, environment)
    edited = {step.path for step in steps(title) if step.path.endswith(".py")}
    ruff = [sys.executable, "-m", "ruff", "check", *sorted(edited)]
    done = subprocess.run(ruff, cwd=repository, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_is_short_and_ends_in_a_check(title):
    assert numbers(title) == list(range(1, len(numbers(title)) + 1))
    assert 3 <= len(numbers(title)) <= 6
    found = steps(title)
    assert any(step.path.startswith("tests/") or step.path.startswith("conformance/") for step in found)
    last_edit = max(at for at, step in enumerate(found) if step.path)
    assert any(step.language == "sh" for step in found[last_edit + 1 :])


def test_every_section_that_adds_something_is_tried_or_points_to_where_it_is():
    assert set(re.findall(r"^## (Add .*)$", PAGE, re.MULTILINE)) == {*RECIPES, "Add a backend"}


def test_folders_and_files_that_the_page_names_exist():
    made = {step.path for title in RECIPES for step in steps(title) if step.created}
    text = BLOCK.sub("", PAGE)
    for path in re.findall(r"`((?:[\w.]+/)+[\w.]*)`", text) + re.findall(r"\]\(([^)#:]+)\)", text):
        assert path in made or (ROOT / path).exists(), path


def test_the_answers_to_where_something_is_exist():
    rows = [line.split("|")[1:-1] for line in section(r"Where is \.\.\.\?").splitlines() if line.startswith("| ")][2:]
    assert 20 <= len(rows) <= 32
    for question, answer in rows:
        paths = re.findall(r"`([^`]+)`", answer)
        assert question.strip().endswith("?") and paths
        for path in paths:
            assert (ROOT / path).exists(), path


def test_only_these_modules_of_the_frontend_ask_for_the_version_of_python():
    """The recipe for a new version counts them; the tables hold the rest."""
    found = {str(p.relative_to(ROOT)) for p in (ROOT / "frontend").rglob("*.py") if "version_info" in p.read_text()}
    assert found == {
        "frontend/bytecode/tables/__init__.py",
        "frontend/guards/write_watch.py",
        "frontend/hook/session.py",
        "frontend/polyfills/builtins_.py",
        "frontend/values/functions.py",
        "frontend/values/objects.py",
    }


def test_the_navigation_has_every_document():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2]
    documents = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert documents <= set(re.findall(r"[\w-]+\.md", navigation))
