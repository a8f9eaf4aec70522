"""Corners of tensors: views, aliases, outputs, out=, kwargs, text, tensors among plain values."""

import torch
import torch.nn.functional as F

from .corpus import case, tensor


@case()
def case_in_place_on_views_of_views(x):
    y = x.clone()
    row = y[1]
    half = row[::2]
    half.mul_(10)
    y.t()[0].add_(1)
    row += half.sum()
    return y, row, half


@case(inputs=lambda: (tensor(), tensor()))
def case_out_of_an_argument(x, buffer):
    result = torch.add(x, 1, out=buffer)
    torch.mul(x, 2, out=buffer[0:1].expand(1, 4)) if False else None
    return result, result is buffer, buffer.sum()


@case(inputs=lambda: (tensor(), torch.empty(0)))
def case_out_is_resized(x, buffer):
    torch.cat([x, x], out=buffer)
    return buffer, buffer.shape


@case(inputs=lambda: (tensor(), tensor()))
def case_inputs_and_duplicates_are_returned(x, y):
    z = x + y
    return x, x, [z, z, (z, y)], {"x": x, "z": z}, z.view(-1), y[0]


@case(inputs=lambda: (tensor(), tensor()))
def case_tensor_in_list(x, y):
    return x in [x, y], [x, y].index(x), any(t is y for t in [x, y]), x + 1


@case(inputs=lambda: (tensor(), tensor()))
def case_tensor_in_list_is_compared(x, y):
    try:
        return y in [1, x], x
    except RuntimeError as error:
        return str(error)[:20]


@case()
def case_text_of_tensors(x):
    s = x.sum()
    return f"{s}", f"{s:.2f}", str(x.shape), f"{x.dtype}|{x.device}", "%s" % (tuple(x.shape),), repr(x[0])


@case()
def case_compared_with_anything(x):
    return x + 1, x == None, x != None, x == "a", x is None, x == [1], (x == 1).sum(), x.eq(0).any()  # noqa: E711


@case(inputs=lambda: (torch.ones(3, dtype=torch.int64), 7))
def case_integer_arithmetic(x, n):
    return x / 2, x // 2, -x // 2, x % -2, x**2, n // x, n - x, x << 1, ~x, x & 1, x * True, x * 1.5, 2**x, n % x


@case()
def case_float_of_constants(x):
    return (
        x * 0.1,
        x + 1e400,
        x - float("-inf"),
        x / 3,
        x * -0.0,
        x.fill_(float("nan")).isnan().all(),
        5 // 2.0,
        -7 % 3,
        divmod(-7, 2),
    )


@case()
def case_arguments_change_and_are_read_later(x):
    old = x.clone()
    before = x.sum()
    x.add_(1)
    after = x.sum()
    x[0] = 0
    x[:, 1] *= 3
    x[x > 1] = -1
    return old, before, after, x.sum()


@case(inputs=lambda: (tensor(), tensor().t(), tensor()[:, ::2]))
def case_layouts(x, t, s):
    return (
        x + t.t(),
        t + 1,
        s * 2,
        t.contiguous(),
        s.contiguous().stride(),
        torch.empty_like(t).stride(),
        t.reshape(-1),
        t.clone().stride(),
    )


@case(inputs=lambda: (tensor(), *[tensor()] * 2))
def case_one_input_three_ways(x, a, b):
    a.mul_(2)
    return a is b, b + x, a, b


@case(inputs=lambda: (tensor(),))
def case_view_of_input_is_changed_after_use(x):
    v = x[1:]
    y = v * 2
    x.zero_()
    return y, v, v + 1, x.add_(v[0])


@case()
def case_detach_shares(x):
    y = x * 2
    d = y.detach()
    d.add_(1)
    return y, d, d.data, y.data.add_(1)


@case(inputs=lambda: (tensor().requires_grad_(), torch.ones(4, requires_grad=True)))
def case_gradient_modes_nest(x, w):
    with torch.no_grad():
        a = x * w
        with torch.enable_grad():
            b = x * w
        c = a + b
    d = (x * w).detach() + b
    with torch.set_grad_enabled(False):
        e = d * 2
    return a, b, c, d, e, torch.is_grad_enabled(), [t.requires_grad for t in (a, b, c, d, e)]


@case(inputs=lambda: (tensor().requires_grad_(),))
def case_gradient_mode_is_left_by_exception(x):
    try:
        with torch.no_grad():
            y = x * 2
            raise ValueError
    except ValueError:
        z = x * 3
    return y, z, y.requires_grad, z.requires_grad


@case(inputs=lambda: (tensor().requires_grad_(),))
def case_gradient_mode_is_left_by_return(x):
    def inner():
        with torch.no_grad():
            return x * 2

    return inner(), x * 3


@case(inputs=lambda: (tensor(),))
def case_autocast_is_left(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            b = x @ x.t()
        print(end="")
        c = x @ x.t()
    return a, b, c, x @ x.t()


@case()
def case_random_numbers_in_order(x):
    a = torch.rand(2)
    b = torch.randn(2) + torch.randint(0, 5, (2,))
    print(end="")
    c = F.dropout(x, 0.5)
    return a, b, c, torch.randperm(4), torch.bernoulli(torch.full((3,), 0.5))


@case(inputs=lambda: (tensor(), (1, 2)))
def case_shapes_in_python(x, extra):
    rows, columns = x.shape
    n = x.numel()
    y = x.new_zeros(rows + 1, *extra)
    return (
        y, y.shape[0] * 2, x.size(-1), x.shape + extra, x.shape.numel(), rows * columns == n, x.shape[-1:], len(x),
        list(x.size()),
        x.view(n // 2, -1), x.reshape(*x.shape[::-1]), torch.zeros(x.shape), x.expand(2, *x.shape), max(x.shape),
        x.stride(0),
    )  # fmt: skip


@case(inputs=lambda: (tensor(), 1, -1, None))
def case_indices_of_all_kinds(x, i, j, k):
    index = torch.tensor([0, 2])
    return (
        x[i], x[j], x[k], x[..., j], x[i, :2], x[index], x[index, index], x[[0, 1]], x[:, [True, False, True, False]],
        x[(0, 1)], x[i:], x[::2, ::3], x[None, :, None], x[x.shape[0] - 1], x[torch.tensor(1)], x[()], x[True],
    )  # fmt: skip


@case(inputs=lambda: (tensor(),))
def case_assignments_of_all_kinds(x):
    y = x.clone()
    y[0] = 1
    y[1, 1:3] = torch.tensor([5.0, 6.0])
    y[:, -1] = y[:, 0]
    y[[0, 2], 1] = 9
    y[..., 0] += 100
    y[y > 50] = 0
    y[torch.tensor([0])] -= 1
    y[None] *= 2
    return y


@case()
def case_operators_with_keywords(x):
    return (
        x.sum(dim=0, keepdim=True), torch.sum(input=x, dim=1), x.softmax(-1), F.softmax(x, dim=0,
        dtype=torch.float64), x.clamp(min=0),
        torch.clamp(x, max=0.5), torch.full((2,), fill_value=3), x.max(dim=1), torch.sort(x, descending=True, dim=1)[1],
        torch.nn.functional.pad(x, (1, 1), value=2.0), torch.arange(start=1, end=4, step=2),
        torch.stack(tensors=[x, x], dim=1).shape,
        x.to(dtype=torch.float16, copy=True), torch.add(x, x, alpha=2), x.sum((0, 1)), x.permute(1, 0),
        x.permute((1, 0)), x.transpose(dim0=0, dim1=1),
    )  # fmt: skip


@case()
def case_named_results_of_operators(x):
    result = x.max(dim=1)
    values, indices = result
    return (
        result.values,
        indices,
        result[0] is result.values,
        type(result).__name__,
        torch.sort(x).indices,
        len(result),
        torch.linalg.qr(x).R.shape,
    )


@case()
def case_errors_of_operators_are_eagers(x):
    try:
        return x @ x
    except RuntimeError as error:
        return str(error)


@case()
def case_errors_after_effects(x):
    x.add_(1)
    return x.reshape(5, 5)


@case(inputs=lambda: (tensor(), [tensor(), tensor()]))
def case_list_of_tensors_is_changed(x, items):
    items[0] = items[0] + 1
    items[1].add_(5)
    items.append(items[1])
    return torch.stack(items).sum(), sum(items), items[1] is items[2]


@case(inputs=lambda: (tensor(), {"a": tensor()}))
def case_tensor_in_dictionary_is_replaced(x, table):
    old = table["a"]
    table["a"] = old * 2
    table["b"] = old
    old += 1
    return table["a"] + x, table["b"] is old


class Holder:
    def __init__(self):
        self.state = torch.zeros(3, 4)
        self.last = None


@case(inputs=lambda: (tensor(), Holder()))
def case_state_is_kept(x, h):
    h.state = h.state + x
    h.state += 1
    h.last = h.state[0]
    h.state[0] = 7
    return h.last, h.state.sum()


@case(inputs=lambda: (torch.tensor(3.0), torch.tensor([2]), torch.tensor(True)))
def case_scalars_from_tensors(s, one, flag):
    return (
        s + 1,
        float(s) * 2,
        int(one),
        bool(flag),
        [10, 20, 30][one],
        "yes" if flag else "no",
        s.item() // 2,
        range(int(one)),
    )


@case(inputs=lambda: (torch.zeros(0, 3), torch.ones(3)))
def case_empty_tensors(e, x):
    return (
        e.sum(),
        torch.cat([e, x[None]]),
        e.numel(),
        [row for row in e],
        e.mean().isnan(),
        len(e),
        bool(e.shape[0]),
        e @ x,
    )


@case(inputs=lambda: (tensor(),))
def case_methods_as_values(x):
    f = x.add
    g = torch.Tensor.mul
    methods = {"sum": x.sum, "mean": torch.mean}
    return (
        f(1),
        g(x, 2),
        methods["sum"](),
        methods["mean"](x),
        getattr(x, "max")().sum(),
        list(map(torch.sin, [x])),
        (lambda t: t.t)(x)().shape,
    )  # noqa: B009


@case(inputs=lambda: (tensor(),))
def case_attributes_of_tensors(x):
    x.note = "kept"
    y = x + 1
    return y, x.note, hasattr(y, "note"), getattr(y, "note", None)


@case(inputs=lambda: (tensor(), tensor().to(torch.bfloat16), torch.ones(2, dtype=torch.bool)))
def case_type_promotion(x, b, m):
    return (
        x + b,
        b + 1,
        b + 1.5,
        m + 1,
        m * x[0, :2],
        b @ b.t(),
        torch.tensor(1) + x,
        torch.tensor(1.0, dtype=torch.float64) * x,
        m.sum(),
        b.sum(),
    )
