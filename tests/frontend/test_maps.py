"""The maps name what there is: the docstring of a room its modules, that of the frontend its rooms."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from torchmux import frontend

FOLDER = Path(frontend.__file__).parent
ROOMS = {folder.name for folder in FOLDER.iterdir() if (folder / "__init__.py").exists()}


def named(package):
    """What a map puts in double backquotes: paths to modules, mostly."""
    assert package.__doc__ is not None, f"{package.__name__} has no map"
    return set(re.findall(r"``([\w/]+)``", package.__doc__))


def modules(folder):
    return {path.stem for path in folder.glob("*.py")} - {"__init__"}


@pytest.mark.parametrize("room", ["capture", "hook", "marks", "sizes", "trace"])
def test_a_room_names_its_modules(room):
    assert modules(FOLDER / room) == named(importlib.import_module(f"torchmux.frontend.{room}"))


def test_the_frontend_names_its_rooms_and_modules():
    known = named(frontend)
    assert (ROOMS | modules(FOLDER)) - {name.partition("/")[0] for name in known} == set()
    paths = {name for name in known if "/" in name}
    assert [path for path in paths if not (FOLDER / f"{path}.py").exists()] == []
    assert len(frontend.__doc__.splitlines()) <= 60
