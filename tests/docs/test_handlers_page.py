"""``frontend/handlers/README.md`` beside the code: the order of the rules, the tables they ask, the examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torchmux.frontend.handlers import classify, resolve
from torchmux.frontend.values import builtin_methods

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "frontend" / "handlers" / "README.md").read_text()
ORDERS = {
    "Reading": classify.READ_ORDER,
    "Calling": resolve.CALL_ORDER,
    "Methods": builtin_methods.METHOD_ORDER,
}
EXAMPLES = re.findall(r"In\s+`([\w/.]+)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL)


def rows(section):
    """Rule and question of each row of the table in a section."""
    text = re.search(rf"^## {section}:.*?(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)[0]
    return re.findall(r"^\| `(\w+)` \| (.*?) \|", text, re.MULTILINE)


@pytest.mark.parametrize("section", ORDERS)
def test_the_rules_stand_in_the_order_of_the_code(section):
    assert [rule for rule, _ in rows(section)] == [rule.__name__ for rule in ORDERS[section]]


@pytest.mark.parametrize("section", ORDERS)
def test_each_rule_asks_the_tables_that_its_docstring_names(section):
    for (_, question), rule in zip(rows(section), ORDERS[section], strict=True):
        named = re.findall(r"``((?:[\w]+\.)*(?:[A-Z_]{4,}|lookup))``", rule.__doc__)
        assert all(f"`{name}`" in question or name in question for name in named), (rule.__name__, named, question)


@pytest.mark.parametrize("path,example", EXAMPLES)
def test_an_example_is_what_the_file_holds(path, example):
    assert example in (ROOT / path).read_text()


def test_each_kind_of_place_has_its_example():
    assert len(EXAMPLES) == PAGE.count("```python") == 6


def test_named_files_and_tables_exist():
    for path in re.findall(r"`((?:frontend|tests)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
    for module, name in re.findall(r"`(classify|resolve|builtin_methods)\.(\w+)`", PAGE):
        assert hasattr({"classify": classify, "resolve": resolve, "builtin_methods": builtin_methods}[module], name)
