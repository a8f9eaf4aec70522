"""What is compared, as the command line writes it."""

from __future__ import annotations

import pytest

import torchmux
from torchmux.bench.sides import Side, available_sides, sides


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("native", Side("native", "native")),
        ("inductor:max-autotune", Side("inductor:max-autotune", "inductor", "max-autotune")),
        ("native:freeze=True:optimize=O1", Side("native:freeze=True:optimize=O1", "native", None,
                                               {"freeze": True, "optimize": "O1"})),
        ("tvm+native", Side("tvm+native", ["tvm", "native"])),
        ("tvm+native:fusion=False", Side("tvm+native:fusion=False", ["tvm", "native"], None,
                                         {"native": {"fusion": False}})),
    ],
)  # fmt: skip
def test_forms(text, side):
    assert Side.parse(text) == side


@pytest.mark.parametrize("text", ["", ":max", "native:a:b", "native:a:b=1", "tvm+native:max", "tvm+"])
def test_what_cannot_be_read(text):
    with pytest.raises(torchmux.InvalidOption):
        Side.parse(text)


def test_eager_comes_first_and_each_comes_once():
    assert [side.label for side in sides(["aot_eager", "eager", "aot_eager"])] == ["eager", "aot_eager"]


def test_backends_and_options_are_checked():
    with pytest.raises(torchmux.UnknownBackend, match="Did you mean 'native'"):
        sides(["natvie"])
    with pytest.raises(torchmux.InvalidOption, match="Did you mean 'fusion'"):
        sides(["native:fusoin=True"])
    with pytest.raises(torchmux.UnknownBackend):
        sides(["eager+nonsense"])


def test_by_default_all_that_run_here_but_auto(own_catalog):
    torchmux.register_backend(torchmux.BackendSpec("far", "", "a:b", devices=("meta",)))
    torchmux.register_backend(torchmux.BackendSpec("forward", "", "a:b"))
    found, excluded = available_sides("cpu", training=True)
    names = [side.label for side in found]
    assert names[0] == "eager" and not {"auto", "aot_eager", "far", "forward"} & set(names)
    assert excluded["far"] == "it does not run on cpu"
    assert excluded["forward"] == "it does not support training"
    assert "forward" in [side.label for side in available_sides("cpu", training=False)[0]]
