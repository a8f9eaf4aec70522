"""What the package's metadata says must be what the folders hold."""

from __future__ import annotations

import configparser
import importlib.metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import torchmux

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def lines(setup: configparser.ConfigParser, section: str, option: str) -> list[str]:
    return [line for line in setup[section][option].splitlines() if line and not line.startswith("#")]


def test_every_folder_of_code_is_listed(setup):
    """The list of packages is explicit: a subpackage that is not in it is silently left out of wheels."""
    mapping = dict(line.replace(" ", "").split("=") for line in lines(setup, "options", "package_dir"))
    found = {
        ".".join([package, *file.parent.relative_to(ROOT / folder).parts])
        for package, folder in mapping.items()
        for file in (ROOT / folder).rglob("__init__.py")
        if package != "torchmux.template"  # files, which nobody imports from there
    }
    assert found | {"torchmux.template"} == set(lines(setup, "options", "packages"))


def test_versions_agree():
    assert importlib.metadata.version("torchmux") == torchmux.__version__


def test_direct_dependencies_are_pinned(setup):
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            pins[canonicalize_name(requirement.name)] = next(iter(requirement.specifier)).version
    extras = ("onnxrt", "openvino", "tvm", "demo", "conformance", "dev")
    wanted = lines(setup, "options", "install_requires")
    wanted += [line for extra in extras for line in lines(setup, "options.extras_require", extra)]
    unpinned = {"tox", "setuptools"}  # they build and start; nothing is computed with them
    for requirement in map(Requirement, wanted):
        if requirement.name not in unpinned:
            assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)]), requirement


def test_install_commands_name_extras_that_exist(setup):
    for row in torchmux.backends():
        if row.distribution == "torchmux" and "torchmux[" in row.install:
            extra = row.install.split("torchmux[")[1].split("]")[0]
            assert extra in setup["options.extras_require"]
