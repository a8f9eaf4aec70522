"""Where kernels of TVM read what was flipped and reshaped: its simplifier gets divisions of falling indices wrong."""

import pytest
import torch

import torchmux

tvm = pytest.importorskip("tvm")


def flipped_columns(row, table):
    return row.unsqueeze(1).flip(0) * table


def flipped_product(row, table):
    return (row.unsqueeze(1) * table).flip(0)


def flipped_sums(row, table):
    return table + (row[:, None] * (table / 3).sum(1, True)).flip(0)


def flipped_halves(row, table):
    return torch.cat([row, row]).reshape(2, 3, 2).flip(1, 2).reshape(6, 2) * table[:, :2]


def flipped_in_place_of_two(row, table):
    return table.reshape(5, 6).flip(0, 1).reshape(6, 5).t() * row


PROGRAMS = (flipped_columns, flipped_product, flipped_sums, flipped_halves, flipped_in_place_of_two)


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_flipped_and_reshaped_comes_in_its_order(program):
    row, table = torch.arange(6.0) + 1, torch.arange(30.0).reshape(6, 5) / 7
    compiled = torchmux.compile(program, backend="tvm", options={"check": False})
    torch.testing.assert_close(compiled(row, table), program(row, table))


def test_gradients_of_similarities_with_flipped_rows():
    rows = (torch.arange(30.0).reshape(6, 5) % 7 + 1).requires_grad_()

    def program(rows):
        return torch.nn.functional.cosine_similarity(rows, rows.flip(0), 1)

    (wanted,) = torch.autograd.grad(program(rows).square().sum(), rows)
    compiled = torchmux.compile(program, backend="tvm")
    (found,) = torch.autograd.grad(compiled(rows).square().sum(), rows)
    torch.testing.assert_close(found, wanted)


INDICES = {
    "5 - i": lambda i, j: 5 - i,
    "19 - i * 3": lambda i, j: 19 - i * 3,
    "-i - j * 4": lambda i, j: -i - j * 4,
    "9 - (i * 4 + j)": lambda i, j: 9 - (i * 4 + j),
    "i * 4 - j": lambda i, j: i * 4 - j,
}


@pytest.mark.parametrize("divisor", [2, 6])
@pytest.mark.parametrize("index", INDICES)
def test_falling_indices_are_divided_as_python_divides(index, divisor):
    from tvm import te, tirx

    from torchmux.backends.tvm.codegen import build, indices
    from torchmux.backends.tvm.options import TvmOptions

    rows, columns, size, at = 6, 4, 200, INDICES[index]
    data = te.placeholder((size,), "float32", name="data")

    def read(i, j):
        place = at(i, j)
        return data[tirx.floordiv(place, divisor) + 50] * size + data[tirx.floormod(place, divisor)]

    function = te.create_prim_func([data, te.compute((rows, columns), read, name="moved")])
    target = build.target_of(TvmOptions(), torch.device("cpu"))
    with tvm.transform.PassContext(opt_level=3, disabled_pass=list(build._FOLDING)):
        compiled = tvm.compile(indices.rising(tvm.IRModule({"main": function})), target=target)
    found = torch.empty(rows, columns)
    compiled(torch.arange(float(size)), found)
    wanted = [[(at(i, j) // divisor + 50) * size + at(i, j) % divisor for j in range(columns)] for i in range(rows)]
    assert found.tolist() == wanted
