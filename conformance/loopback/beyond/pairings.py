"""Faults in operators that stand behind certain others, as compilers join them; one pair of operators each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from ..kit import Faults, Run

simplifications = Faults("simplifications")
numerics = Faults("numerics")

_PLACES = "semantics/recipes/places_and_what_is_there"
_SUMS = "semantics/recipes/sums_and_what_follows"
_IMAGES = "semantics/recipes/layers_of_images_and_others"
_PRODUCTS = "semantics/recipes/products_and_others"
_DRAWS = "semantics/effects/draws_in_order_of_memory"


def _name(node: Any) -> str:
    if not isinstance(node, Node) or node.op not in ("call_function", "call_method"):
        return ""
    return str(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")).strip("_")


def _made_by(node: Node) -> str:
    """The operator that made a value, also if that is one of its results."""
    while (
        _name(node) in ("getitem", "getattr") and isinstance(node.args[0], Node) and not isinstance(node.args[1], Node)
    ):
        node = node.args[0]
    return _name(node)


def nearly(result: Any) -> Any:
    """A result of any kind that is nearly right: its first tensor is a hundredth, a unit or a truth off."""
    if isinstance(result, (tuple, list)):
        return type(result)([nearly(result[0]), *result[1:]])
    if not isinstance(result, torch.Tensor):
        return result
    if result.is_floating_point() or result.is_complex():
        return result * 1.01
    return ~result if result.dtype is torch.bool else result + 1


def behind(faults: Faults, case: str, producer: str, consumer: str, name: str, text: str) -> None:
    """A fault in the results of one operator where another one has made what it reads."""

    def compile(gm: GraphModule, inputs: Sequence[Any]) -> Run:
        class Joined(Interpreter):
            def run_node(self, node: Node) -> Any:
                result = super().run_node(node)
                joined = _name(node) == consumer and any(_made_by(read) == producer for read in node.all_input_nodes)
                return nearly(result) if joined else result

        return lambda *args: Joined(gm).run(*args)

    compile.__name__, compile.__doc__ = name, text
    faults(case)(compile)


for _pair in (
    (_PLACES, "cumsum", "gather", "what_is_read_at_counts", "What is gathered at running counts is nearly right."),
    (_PLACES, "sort", "gather", "what_is_read_in_order", "What is gathered in an order is nearly right."),
    (_PLACES, "topk", "scatter", "the_largest_put_back", "The largest numbers that are put back are nearly right."),
    (_PLACES, "embedding", "mean", "means_of_words", "The mean of words is nearly right."),
    (_PLACES, "gather", "log", "logarithms_of_shares_taken", "The logarithm of what is gathered is nearly right."),
    (_PLACES, "index_select", "sum", "sums_of_selected_rows", "The sum of rows that are selected is nearly right."),
    (_PLACES, "argmax", "one_hot", "ones_at_the_largest", "The mark of the largest number is beside it."),
    (_PLACES, "sort", "cumsum", "running_sums_of_sorted", "Running sums of sorted numbers are nearly right."),
    (_PLACES, "sort", "diff", "gaps_between_sorted", "Differences of sorted numbers are nearly right."),
    (_PLACES, "scatter_add", "softmax", "shares_of_what_was_added", "Shares of added numbers are nearly right."),
    (_PLACES, "index_add", "truediv", "means_by_index", "What is added by index and divided is nearly right."),
    (_PLACES, "scatter_reduce", "gather", "extremes_of_groups_shared_out",
     "The largest of a group, given to each of it, is nearly right."),
    (_PLACES, "log_softmax", "gather", "losses_by_hand", "The logarithm of a share that is gathered is nearly right."),
    (_PLACES, "bucketize", "embedding", "words_of_buckets", "Words that are looked up for buckets are nearly right."),
    (_PLACES, "masked_fill", "topk", "the_largest_that_are_left",
     "The largest of what a mask leaves are nearly right."),
    (_PLACES, "masked_fill", "logsumexp", "sums_of_what_is_left",
     "The logarithm of a sum of what a mask leaves is nearly right."),
    (_PLACES, "repeat_interleave", "matmul", "products_of_repeated_rows",
     "Products of repeated rows are nearly right."),
    (_SUMS, "where", "sum", "sums_of_choices", "The sum of chosen numbers is nearly right."),
    (_SUMS, "where", "cumsum", "running_sums_of_choices", "Running sums of chosen numbers are nearly right."),
    (_SUMS, "sub", "exp", "exponentials_of_differences", "Exponentials of differences are nearly right."),
    (_SUMS, "cumsum", "exp", "exponentials_of_running_sums", "Exponentials of running sums are nearly right."),
    (_SUMS, "expand", "cumsum", "running_sums_of_one_column", "Running sums of an expanded column are nearly right."),
    (_SUMS, "expand", "softmax", "shares_of_one_row", "Shares of an expanded row are nearly right."),
    (_SUMS, "roll", "sum", "sums_of_what_was_moved", "Sums of moved rows are nearly right."),
    (_SUMS, "relu", "mean", "means_of_rectified", "Means of rectified numbers are nearly right."),
    (_SUMS, "cumprod", "sum", "sums_of_running_products", "Sums of running products are nearly right."),
    (_SUMS, "permute", "softmax", "shares_of_what_is_turned", "Shares of a turned tensor are nearly right."),
    (_SUMS, "transpose", "sort", "orders_of_what_is_turned", "Sorted numbers of a turned tensor are nearly right."),
    (_SUMS, "cat", "topk", "the_largest_of_joined", "The largest of joined tensors are nearly right."),
    (_SUMS, "stack", "softmax", "shares_between_stacked", "Shares between stacked tensors are nearly right."),
    (_SUMS, "narrow", "sum", "sums_of_narrow_parts", "Sums of parts are nearly right."),
    (_SUMS, "pad", "cumsum", "running_sums_with_borders", "Running sums that begin in a border are nearly right."),
    (_SUMS, "unfold", "amax", "extremes_of_windows", "The largest of overlapping windows are nearly right."),
    (_IMAGES, "pixel_shuffle", "conv2d", "convolutions_of_shuffled_pixels",
     "Convolutions of shuffled pixels are nearly right."),
    (_IMAGES, "conv2d", "softmax", "shares_between_channels",
     "Shares between the channels of a convolution are nearly right."),
    (_IMAGES, "group_norm", "silu", "gates_of_norms", "Activations of norms of groups are nearly right."),
    (_IMAGES, "batch_norm", "max_pool2d", "pools_of_norms", "The largest of normalized windows are nearly right."),
    (_IMAGES, "hardswish", "conv2d", "convolutions_of_swishes", "Convolutions of swishes are nearly right."),
    (_IMAGES, "unfold", "fold", "patches_put_back", "Patches that are put back are nearly right."),
    (_PRODUCTS, "matmul", "topk", "the_largest_of_products", "The largest of products are nearly right."),
    (_PRODUCTS, "matmul", "layer_norm", "norms_of_products", "Norms of products are nearly right."),
    (_PRODUCTS, "normalize", "matmul", "products_of_directions", "Products of directions are nearly right."),
    (_PRODUCTS, "cdist", "softmax", "shares_by_distance", "Shares of distances are nearly right."),
    (_PRODUCTS, "cat", "layer_norm", "norms_of_joined_rows", "Norms of joined rows are nearly right."),
    (_PRODUCTS, "stack", "matmul", "products_of_stacked", "Products of stacked matrices are nearly right."),
    (_PRODUCTS, "einsum", "einsum", "products_in_turn",
     "A product of a product in the notation of Einstein is nearly right."),
    (_PRODUCTS, "linear", "split", "parts_of_layers", "The first part of a layer's result is nearly right."),
    (_PRODUCTS, "baddbmm", "sum", "sums_of_added_products", "Sums of added products are nearly right."),
    (_PRODUCTS, "tanh", "mul", "gates_by_tangents", "What is multiplied by a tangent is nearly right."),
    (_PRODUCTS, "fft_rfft", "abs", "sizes_of_frequencies", "Absolute values of frequencies are nearly right."),
):  # fmt: skip
    behind(simplifications, *_pair)


@numerics.instead(_DRAWS, "bernoulli_")
def coins_in_the_usual_order(x: torch.Tensor, p: float = 0.5, **named: Any) -> torch.Tensor:
    """What is drawn in place is drawn in the usual order, whatever the order in memory."""
    with torch.no_grad():
        return x.copy_(torch.bernoulli(x.detach(), p, **named))


@numerics.instead(_DRAWS, "rand_like")
def uniform_in_the_usual_order(x: torch.Tensor, **named: Any) -> torch.Tensor:
    """Uniform numbers like a tensor are drawn in the usual order."""
    return torch.empty_like(x).copy_(torch.rand(x.shape, dtype=x.dtype, device=x.device))


@numerics.instead(_DRAWS, "multinomial")
def outcomes_by_contiguous_weights(x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Weights of outcomes are made contiguous before outcomes are drawn, which draws other ones."""
    return torch.multinomial(x.contiguous(), *rest, **named)


@numerics.instead(_DRAWS, "poisson")
def counts_that_lie_as_rates(x: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Counts at rates lie in memory as the rates do."""
    return torch.empty_like(x).copy_(torch.poisson(x, *rest))
