"""Faults where sizes are equal or change, operands are left out, or there are more dimensions than usual."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from ..kit import Faults

faults = Faults("corners")

_EQUAL = "semantics/everywhere/of_equal_sizes"
_LEFT_OUT = "semantics/layers/operands_left_out"
_OF_PARTS = "semantics/everywhere/of_parts"


def _square(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() >= 2 and len(set(x.shape)) == 1 and x.shape[0] > 1


def _floats(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


# Equal sizes


@faults.operator(_EQUAL, "prelu")
def slopes_of_columns(result: torch.Tensor, x: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
    """Slopes belong to the last dimension if it has as many elements as there are slopes."""
    return torch.where(x > 0, x, x * slopes) if x.shape[-1] == slopes.numel() > 1 else result


@faults.operator(_EQUAL, "batch_norm")
def statistics_of_columns(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Statistics belong to the last dimension of a batch whose sizes are equal."""
    return result.transpose(1, -1).contiguous() if _square(x) and x.dim() == 4 else result


@faults.operator(_EQUAL, "instance_norm")
def instances_for_channels(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Weights of a norm of instances belong to instances if there are as many of them as channels."""
    return F.instance_norm(x.transpose(0, 1), *rest, **named).transpose(0, 1).contiguous() if _square(x) else result


@faults.operator(_EQUAL, "group_norm")
def groups_of_rows(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Groups are made of rows if there are as many of them as channels."""
    return F.group_norm(x.transpose(1, 2), *rest, **named).transpose(1, 2).contiguous() if _square(x) else result


@faults.operator(_EQUAL, "nll_loss", "cross_entropy")
def weights_by_row(result: torch.Tensor, x: torch.Tensor, target: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """Weights of classes belong to rows if there are as many of them as classes."""
    if not rest or rest[0] is None or not _square(x):
        return result
    return (result * (rest[0] / rest[0][target])).clone() if result.dim() else result * 1.01


@faults.operator(_EQUAL, "scaled_dot_product_attention")
def queries_for_features(result: torch.Tensor, q: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Queries and features of attention change places if there are as many of them."""
    return result.transpose(-1, -2).contiguous() if _square(q) else result


@faults.operator(_EQUAL, "embedding")
def words_for_features(result: torch.Tensor, words: torch.Tensor, table: torch.Tensor, *rest: Any) -> torch.Tensor:
    """A square table of words is read by columns."""
    return F.embedding(words, table.t(), *rest) if _square(table) else result


# Operands that are left out, and dimensions


@faults.operator(_LEFT_OUT, "layer_norm")
def no_bias_without_a_weight(result: torch.Tensor, x: torch.Tensor, shape: Any, *rest: Any) -> torch.Tensor:
    """A norm of layers that has a bias and no weight leaves out the bias."""
    return F.layer_norm(x, shape) if len(rest) > 1 and rest[0] is None and rest[1] is not None else result


@faults.operator(_LEFT_OUT, "group_norm")
def no_bias_of_groups_without_a_weight(result: torch.Tensor, x: torch.Tensor, groups: int, *rest: Any) -> torch.Tensor:
    """A norm of groups that has a bias and no weight leaves out the bias."""
    return F.group_norm(x, groups) if len(rest) > 1 and rest[0] is None and rest[1] is not None else result


@faults.operator(_LEFT_OUT, "batch_norm")
def no_bias_of_batches_without_a_weight(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> Any:
    """A norm of batches that has a bias and no weight leaves out the bias."""
    if len(rest) < 4 or rest[2] is not None or rest[3] is None:
        return result
    return F.batch_norm(x, rest[0], rest[1], None, None, *rest[4:], **named)


@faults.operator(_LEFT_OUT, "batch_norm")
def norms_of_planes_of_volumes(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A norm of batches of volumes is right in the first plane only."""
    return torch.cat([result[:, :, :1], result[:, :, 1:] * 1.01], 2) if x.dim() == 5 else result


@faults.operator(_LEFT_OUT, "group_norm")
def groups_without_space(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """A norm of groups of rows, which have no space, is one of layers."""
    return F.layer_norm(x, x.shape[1:]) if x.dim() == 2 else result


@faults.operator(_LEFT_OUT, "scaled_dot_product_attention")
def attention_of_the_first_batch(result: torch.Tensor, q: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Attention with more than four dimensions computes the first of the outermost one for all."""
    return result[:1].expand_as(result).clone() if q.dim() > 4 else result


@faults.operator(_LEFT_OUT, "embedding")
def words_of_two_dimensions(result: torch.Tensor, words: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Of words with three dimensions, the first one is looked up for all."""
    return result[:, :1].expand_as(result).clone() if words.dim() == 3 else result


@faults.operator(_OF_PARTS, "index_select")
def selections_from_the_end(result: torch.Tensor, x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """A dimension that is counted from the end is the first one for a selection."""
    return (
        x.index_select(0, index % x.shape[0])
        if dim < 0 and len(index) == x.shape[0]
        else result * (1.5 - (dim >= 0) / 2)
    )


@faults.operator(_OF_PARTS, "index_add", "index_fill", "index_copy")
def writes_from_the_end(result: torch.Tensor, x: torch.Tensor, dim: int, *rest: Any, **named: Any) -> torch.Tensor:
    """What is written along a dimension that is counted from the end is lost."""
    return x.clone() if dim < 0 else result


@faults.operator(_OF_PARTS, "masked_fill")
def fills_by_tensors(result: torch.Tensor, x: torch.Tensor, mask: torch.Tensor, value: Any) -> torch.Tensor:
    """A tensor as what fills a mask is one."""
    return x.masked_fill(mask, 1.0) if isinstance(value, torch.Tensor) else result


# Sizes that change


_first_rows: dict[Any, int] = {}


@faults.operator("semantics/everywhere/over_sizes", "conv2d", "max_pool2d", "pad")
def windows_of_the_first_image(result: torch.Tensor, x: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
    """Code for any size leaves out the windows that the first image did not have."""
    first = _first_rows.setdefault((str(named), len(rest), result.dtype), int(result.shape[2]))
    result = result.clone()
    result[:, :, first:] = 0
    return result
