"""``compile(..., shapes_spec=...)``."""

import pytest
import torch

import torchmux

spec = pytest.importorskip("torch.fx.experimental.dynamic_spec")  # torch 2.13


def scaled(x, y):
    return (x * 2).sum(0) + y


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_sizes_that_nothing_may_depend_on(backend):
    said = {"x": spec.TensorSpec([spec.ShapeVar("rows", max=50), 4])}
    for given in (spec.ParamsSpec(said), spec.ShapesSpec(said)):
        compiled = torchmux.compile(scaled, backend=backend, shapes_spec=given)
        for rows in (3, 1, 0, 2, 50):
            x, y = torch.randn(rows, 4), torch.randn(4)
            torch.testing.assert_close(compiled(x, y), scaled(x, y))
        assert torchmux.report(compiled).graph_count == 1
        with pytest.raises(torchmux.ConstraintViolation, match="dimension 1 of x is 4, but it is 5"):
            compiled(torch.ones(2, 5), torch.ones(5))


def test_what_is_no_specification():
    rows = spec.ShapeVar("rows")
    of_rows = spec.TensorSpec([rows])
    for said, message in (
        (3, "not 3"),
        (spec.ParamsSpec({"z": spec.TensorSpec([None])}), "names 'z', but the parameters are x, y"),
        (spec.ParamsSpec({"x": spec.IntVar("n")}), "takes a TensorSpec, not an IntVar"),
        (spec.ParamsSpec({"x": spec.TensorSpec([rows * 2])}), "each takes a ShapeVar of its own"),
        (
            spec.ParamsSpec({"x": spec.TensorSpec([rows]), "y": spec.TensorSpec([rows])}),
            "each takes a ShapeVar of its own",
        ),
        (spec.ShapesSpec({"x": of_rows}, assumptions=[rows > 3]), "assumptions"),
    ):
        with pytest.raises(torchmux.InvalidOption, match=message):
            torchmux.compile(scaled, backend="eager", shapes_spec=said)
