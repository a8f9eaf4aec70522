"""What all tests share: seeds, a cache of their own, a catalog that is put back, and other interpreters."""

from __future__ import annotations

import gc
import logging
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from torchmux.registry import availability, catalog

# How long an example takes says how busy the machine is.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


SAMPLED = {"tests/backends/native/": 6, "tests/backends/common/": 4, "tests/backends/adapters/": 4, "tests/models/": 2}
"""Of the parameters of all tests in these folders, one case of so many is in the default run; of tests without
parameters, every second."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave one case of so many in the default run where a test is ``sampled``, or its folder is among ``SAMPLED``, and
    begin with what takes longest.

    The place of the case that stays differs from group to group: the last parameters of a test may repeat in as many
    cases, and only one value of theirs would ever run.
    """
    counts: dict[str, int] = {}
    for item in items:
        if any(item.get_closest_marker(mark) is not None for mark in ("slow", "gpu", "libraries")):
            continue
        name, parameters, _ = item.nodeid.partition("[")
        of = 1
        if (sampled := item.get_closest_marker("sampled")) is not None:
            of = sampled.args[0]
        for folder, fewer in SAMPLED.items():
            if item.nodeid.startswith(folder):
                name, of = folder + parameters, max(of, fewer if parameters else 2)
        count = counts[name] = counts.get(name, -1) + 1
        if (count + count // of) % of:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: "test_the_quick_level" not in item.nodeid)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Artifacts of the tests, and of the processes they start, stay out of the user's cache."""
    from torchmux.config import config

    folder = tmp_path_factory.mktemp("cache")
    found = os.environ.get("TORCHMUX_CACHE_DIR")
    os.environ["TORCHMUX_CACHE_DIR"] = str(folder)
    with config.patch(cache_dir=folder):
        yield folder
    if found is None:
        del os.environ["TORCHMUX_CACHE_DIR"]
    else:
        os.environ["TORCHMUX_CACHE_DIR"] = found


@pytest.fixture(autouse=True, scope="session")
def compiler_errors_are_errors() -> Iterator[None]:
    """An exception that a compiler does not mean to raise fails the test, instead of running the graph in torch."""
    from torchmux.config import config

    os.environ["TORCHMUX_FAIL_ON_COMPILER_ERRORS"] = "1"
    with config.patch(fail_on_compiler_errors=True):
        yield
    del os.environ["TORCHMUX_FAIL_ON_COMPILER_ERRORS"]


@pytest.fixture(autouse=True, scope="session")
def small_graphs_are_compiled() -> Iterator[None]:
    """Most tests compile graphs that are so small that users get torch's own operators for them."""
    from torchmux.config import config

    os.environ["TORCHMUX_LEAVE_SMALL_GRAPHS"] = "0"
    with config.patch(leave_small_graphs=False):
        yield
    del os.environ["TORCHMUX_LEAVE_SMALL_GRAPHS"]


@pytest.fixture(autouse=True, scope="session")
def calls_stay_in_python() -> Iterator[None]:
    """No test that calls something often starts a compiler; ``test_calls`` is about what calls from C++."""
    from torchmux.config import config

    os.environ["TORCHMUX_CALLS_IN_CPP"] = "0"
    with config.patch(calls_in_cpp=False):
        yield
    del os.environ["TORCHMUX_CALLS_IN_CPP"]


@pytest.fixture(autouse=True, scope="session")
def torch_writes_no_trace() -> None:
    """torch describes each step of a capture if its log of traces has handlers; pytest gives it some."""
    traces = logging.getLogger("torch.__trace")
    traces.propagate = True  # pytest's are for those of which the root hears nothing
    traces.handlers.clear()


@pytest.fixture
def compiler_errors_fall_back() -> Iterator[None]:
    """What a compiler raises sends the graph to torch in this test, as for users."""
    from torchmux.config import config

    with config.patch(fail_on_compiler_errors=False):
        yield


@pytest.fixture(autouse=True, scope="module")
def old_objects_stay() -> None:
    """Collections look at what the tests of this module make, not at all that this process has ever imported."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def path_as_before() -> Iterator[None]:
    """Commands add the current folder to the path of their process; in a checkout its folders have other names."""
    before = sys.path[:]
    yield
    sys.path[:] = before


@pytest.fixture
def own_catalog(monkeypatch: pytest.MonkeyPatch) -> Iterator[catalog.Catalog]:
    """The catalog of the process, looked up anew for one test and put back after it."""
    for name, value in vars(catalog.Catalog()).items():
        monkeypatch.setattr(catalog.CATALOG, name, value)
    availability.forget()
    yield catalog.CATALOG
    availability.forget()


RunPython = Callable[..., str]


@pytest.fixture
def run_python(tmp_path: Path) -> RunPython:
    """``run_python(code, path=[...], python=...)`` runs code outside of the checkout and returns what it printed."""

    def run(code: str, *, path: tuple[Path, ...] = (), python: str = sys.executable) -> str:
        found = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*map(str, path), *([found] if found else [])])}
        result = subprocess.run(
            [python, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
        )
        assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
        return result.stdout

    return run


def _seed() -> None:
    """The same random numbers in every run; a test that wants others draws from a generator of its own."""
    import torch

    random.seed(0)
    # torch.manual_seed writes down the stack for each kind of device that is not there, which takes 2 ms.
    torch.default_generator.manual_seed(0)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(0)


def pytest_make_collect_report(collector: pytest.Collector) -> None:
    """Tensors that a test module draws when it is imported do not depend on which modules come before it."""
    if isinstance(collector, pytest.Module):
        _seed()


def pytest_runtest_setup(item: pytest.Item) -> None:
    _seed()  # ahead of all fixtures
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs an NVIDIA GPU")
