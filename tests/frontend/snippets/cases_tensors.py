"""Tensor methods and properties, in-place changes, views, slicing, dtypes, gradients."""

import torch
import torch.nn.functional as F

from .corpus import case, tensor


def with_grad():
    return (tensor().requires_grad_(),)


@case(one_graph=True)
def case_indexing(x):
    return x[0], x[-1, 2], x[:, 1], x[1:, ::2], x[..., None], x[[0, 2]], x[x > 0], x[torch.tensor([0, 1])]


@case(one_graph=True)
def case_setitem(x):
    y = x.clone()
    y[0] = 1
    y[1, 2:] = 5.0
    y[:, 0] = x[:, 1]
    y[y < 0] = 0
    return y


@case(one_graph=True)
def case_setitem_on_input(x):
    x[0, 0] = 9
    x[1:] = x[:-1].clone()
    return x.sum()


@case(one_graph=True)
def case_in_place_on_input(x):
    x.add_(1).mul_(2)
    x += 1
    x[0].zero_()
    return x + 1


@case(one_graph=True)
def case_in_place_through_view(x):
    y = x.view(4, 3)
    z = y[0]
    z.fill_(7)
    return x, y, x.sum()


@case(one_graph=True)
def case_in_place_on_result_of_view(x):
    t = x.t()
    t.add_(1)
    return t, x.contiguous() is x


@case(one_graph=True)
def case_view_of_input_is_returned(x):
    return x.view(2, 6), x[1:], x.t(), x.detach(), x.unsqueeze(0)


@case(one_graph=True)
def case_properties(x):
    return x + x.ndim, x.shape, x.dtype, x.device, x.requires_grad, x.is_leaf, x.T, x.mT, x.is_floating_point()


@case(one_graph=True)
def case_sizes(x):
    rows, columns = x.size()
    return x.reshape(columns, rows), x.numel(), x.dim(), len(x), x.stride(), x.element_size(), x.nelement()


@case(one_graph=True)
def case_dtype_conversions(x):
    return x.double(), x.to(torch.float16), x.int(), x.bool(), x.to(x), x.float() is x, x.type_as(x.long())


@case(one_graph=True)
def case_mixed_scalar_types(x):
    n = x.int()
    return n / 2, n // 2, n * 2.5, n + True, 2 ** n.abs(), 1 - x, 3 // (n.abs() + 1), n % 3


@case(one_graph=True)
def case_comparisons(x):
    return x > 0, x == x, x != 1, (x > 0) & (x < 1), ~(x > 0), x.eq(x).all(), (x >= 0) | (x < -1)


@case(one_graph=True)
def case_factories(x):
    like = [torch.zeros_like(x), torch.full((2,), 3), x.new_ones(2), torch.empty(0), torch.eye(2)]
    return like, torch.arange(x.size(0)), torch.tensor([1, 2.5]), torch.tensor(x.dim()), torch.linspace(0, 1, 3)


@case(one_graph=True)
def case_tensor_from_list_of_values(x):
    n = x.size(1)
    return torch.tensor([[n, n + 1], [0, 2]]) * 2, torch.tensor([True]), torch.as_tensor(1.5)


@case(one_graph=True)
def case_reductions(x):
    values, indices = x.max(dim=1)
    return x.mean(), x.sum(0), x.std(), values, indices, x.argmax(), x.amax((0, 1)), x.prod(dim=0, keepdim=True)


@case(one_graph=True)
def case_named_results(x):
    result = torch.max(x, dim=0)
    s = torch.sort(x, descending=True)
    return result.values + 1, result.indices, s[0], torch.topk(x, 2).values


@case(one_graph=True)
def case_split_chunk_unbind(x):
    a, b = x.split([1, 3], dim=1)
    c, d = x.chunk(2, dim=1)
    return a.sum() + b.sum(), c - d, [row * 2 for row in x.unbind()], torch.tensor_split(x, 2)


@case(one_graph=True)
def case_out_argument(x):
    out = torch.empty_like(x)
    result = torch.mul(x, 2, out=out)
    return result is out, out


@case(one_graph=True)
def case_einsum_and_matmul(x):
    return torch.einsum("ij,kj->ik", x, x), x @ x.T, torch.matmul(x, x[0]), torch.outer(x[0], x[1]), F.linear(x, x)


@case(one_graph=True)
def case_where_and_masks(x):
    return torch.where(x > 0, x, 0), x.masked_fill(x < 0, -1), torch.clamp(x, -0.5, 0.5), x.tril(), F.pad(x, (1, 0))


@case(one_graph=True)
def case_softmax_and_norms(x):
    return F.softmax(x, dim=-1), F.layer_norm(x, (4,)), F.gelu(x), F.normalize(x, dim=1), x.norm()


@case(one_graph=True)
def case_gather_scatter(x):
    index = torch.tensor([[0, 1], [2, 3], [1, 0]])
    return x.gather(1, index), torch.zeros_like(x).scatter_(1, index, 1.0), x.index_select(0, torch.tensor([2, 0]))


@case(one_graph=True)
def case_dropout_is_seeded(x):
    return F.dropout(x, 0.5), x + torch.rand_like(x), torch.bernoulli(torch.full((4,), 0.5))


@case(one_graph=True, inputs=with_grad)
def case_requires_grad_flows(x):
    y = x * 2
    return y, y.requires_grad, y.is_leaf, y.detach(), (x > 0).requires_grad


@case(one_graph=True, inputs=with_grad)
def case_detach_and_clone(x):
    y = x.detach().clone()
    y += 1
    return x * y, y.requires_grad


@case(one_graph=False, inputs=with_grad)
def case_backward_inside(x):
    (x * x).sum().backward()
    return x.grad * 2


@case(one_graph=False, inputs=with_grad)
def case_autograd_grad(x):
    (g,) = torch.autograd.grad((x**3).sum(), x)
    return g


@case(one_graph=False, inputs=with_grad)
def case_in_place_on_leaf_fails(x):
    x.add_(1)
    return x


@case(one_graph=False)
def case_requires_grad_set_inside(x):
    y = x.clone().requires_grad_()
    return y * 2


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, n):
        ctx.save_for_backward(x)
        ctx.n = n
        return x * x * n

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 2 * x * ctx.n, None


@case(one_graph=True, inputs=with_grad)
def case_autograd_function(x):
    return Square.apply(x, 3) + 1


@case(one_graph=True)
def case_tensor_attribute(x):
    y = x + 1
    y.tag = "seen"
    return y.tag, y * 2


@case(one_graph=False)
def case_tolist_and_item(x):
    return x[0].tolist(), x[0, 0].item() + 1, float(x[1, 1]), bool(x[0, 0] > 5)


@case(one_graph=True)
def case_item_in_arithmetic(x):
    n = x.abs().max().item()
    return x / n, n


@case(one_graph=True)
def case_nonzero_shape(x):
    index = (x > 0).nonzero()
    return index, index.size(0), x[x > 0].sum()


@case(one_graph=True)
def case_numpy_round_trip(x):
    return torch.from_numpy(x.numpy() * 2) + 1


@case(one_graph=False)
def case_tensor_truth_is_ambiguous(x):
    if x > 0:
        return x
    return -x


@case(one_graph=True)
def case_identity_of_tensors(x):
    y = x
    z = x + 0
    return x is y, x is z, x is x.contiguous(), x is x.to(torch.float32), z is not x


@case(one_graph=False)
def case_data_ptr_and_storage(x):
    return x.view(-1).data_ptr() == x.data_ptr(), x.storage_offset(), x[1].storage_offset(), x.is_contiguous()


@case(one_graph=False)
def case_resize_and_set_data(x):
    y = x.clone()
    y.data = torch.ones(2)
    return y * 2


@case(one_graph=True)
def case_iadd_on_list_item(x):
    items = [x.clone(), x]
    items[0] += 1
    items[1] = items[1] + 1
    return items


@case(one_graph=True, inputs=lambda: (tensor(), tensor()[:, :2]))
def case_inputs_share_nothing(x, y):
    y.mul_(2)
    return x[:, :2] + y


def base_and_view():
    x = tensor()
    return x, x[1:]


@case(one_graph=True, inputs=base_and_view)
def case_input_and_its_view(x, y):
    y.add_(1)
    return x * 1, y * 1


@case(one_graph=True)
def case_expand_and_broadcast(x):
    return x[:, :1].expand(3, 4), torch.broadcast_to(x[0], (2, 4)), x[None].repeat(2, 1, 1).shape, x.movedim(0, 1)


@case(one_graph=True)
def case_complex_and_bool_tensors(x):
    c = torch.complex(x, x)
    return c.abs(), c.real, torch.view_as_real(c), x.bool().any(), x.isnan().sum()


@case(one_graph=True)
def case_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    try:
        return x + 1, torch.ones(1)
    finally:
        torch.set_default_dtype(torch.float32)


@case(one_graph=True)
def case_meta_queries(x):
    return x.is_cuda, x.layout, torch.is_tensor(x), torch.is_floating_point(x), torch.finfo(x.dtype).max, x.itemsize


@case(one_graph=True)
def case_save_result_of_in_place_chain(x):
    y = x.exp()
    z = y.sub_(1)
    return z is y, y


@case(one_graph=True)
def case_data_that_holds_tensors(x):
    count = x.shape[0]
    return (
        torch.tensor([x[0, 0], 2.0]),
        torch.tensor([[x.sum()], [count]]),
        torch.tensor((x[0, 0].int(), count, True)),
        torch.tensor([x[0, 0].double(), 1], dtype=torch.float16),
        torch.as_tensor([x[0, 0] > 0, False]),
        x.double().new_tensor([x[0, 0], 1]),
        torch.tensor([x[0, 0]]).requires_grad,
    )
