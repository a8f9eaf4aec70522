"""What a forward graph saves for its backward graph: what views show, rather than the views.  And what stays in both.

The trace saves the transposed weight of each linear layer, and often both a tensor and a view of it.  Each takes a call
of torch's in the forward pass, and memory of a runtime that returns no views.  The backward graph makes them itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.utils.checkpoint import CheckpointPolicy

from ..moving import make_where_used
from . import aliasing
from .decompose import CHECKS, is_random
from .simplify import fold_numbers, merge_repeated

Split = Callable[..., tuple[GraphModule, GraphModule]]


def bases_saved(split: Split) -> Split:
    """A partition function that makes of views which ``split`` saves what they are views of."""

    def split_and_save(
        joint: GraphModule, *args: Any, num_fwd_outputs: int, **more: Any
    ) -> tuple[GraphModule, GraphModule]:
        forward, backward = split(joint, *args, num_fwd_outputs=num_fwd_outputs, **more)
        while save_bases(forward.graph, backward.graph, num_fwd_outputs):  # parts of what is saved only now come next
            forward.recompile()
            backward.recompile()
        return forward, backward

    return split_and_save


def without_detaching(split: Split) -> Split:
    """A partition function that takes what eager's formulas detach as it is.

    The partitioner knows no fusion across ``detach``.  It would save each result that has a formula of its own in
    backward, such as that of ``tanh``, where computing it again is free; and torch would detach it in each call.
    """

    def split_undetached(joint: GraphModule, *args: Any, **more: Any) -> tuple[GraphModule, GraphModule]:
        for node in joint.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
            if node.args[0].op != "placeholder":  # else its version is checked in backward
                node.replace_all_uses_with(node.args[0], delete_user_cb=lambda user: user.op != "output")
        joint.recompile()
        return split(joint, *args, **more)

    return split_undetached


def repeated_once(split: Split) -> Split:
    """A partition function that computes once what the joint graph, or each call of it, computes several times."""

    def split_merged(joint: GraphModule, *args: Any, **more: Any) -> tuple[GraphModule, GraphModule]:
        fold_numbers(joint)
        make_where_used(joint.graph)
        merge_repeated(joint.graph)
        return split(joint, *args, **more)

    return split_merged


SIGNS = ("cuda",)
"""Where memory is worth an operator more: what a relu has let through is saved as a byte for each element."""


def signs_saved(split: Split) -> Split:
    """A partition function that gives gradients of relu what they need of its result, where that is on a GPU.

    So the result is not saved, if backward needs nothing else of it.
    """

    def split_by_signs(joint: GraphModule, *args: Any, **more: Any) -> tuple[GraphModule, GraphModule]:
        nodes = joint.graph.find_nodes(op="call_function", target=torch.ops.aten.threshold_backward.default)
        behind = _behind_tangents(joint.graph) if nodes else ()
        for node in nodes:
            gradient, result, threshold = node.args
            value = result.meta["val"]
            if value.device.type not in SIGNS or result.target is not torch.ops.aten.relu.default or threshold != 0:
                continue
            if "recompute" in result.meta or [user for user in result.users if user in behind] != [node]:
                continue  # the program says what is saved, or something else needs the result
            with joint.graph.inserting_before(node), value.fake_mode:
                stopped = joint.graph.call_function(torch.ops.aten.le.Scalar, (result, 0))
                stopped.meta = {"val": torch.ops.aten.le.Scalar(value, 0), "recompute": CheckpointPolicy.MUST_SAVE}
                masked = joint.graph.call_function(torch.ops.aten.masked_fill.Scalar, (gradient, stopped, 0))
                masked.meta = dict(node.meta)
            node.replace_all_uses_with(masked)
            joint.graph.erase_node(node)
        joint.recompile()
        return split(joint, *args, **more)

    return split_by_signs


def _behind_tangents(joint: Graph) -> Collection[Node]:
    """What of a joint graph depends on gradients."""
    found: set[Node] = set()
    for node in joint.nodes:
        is_tangent = node.op == "placeholder" and node.name.startswith("tangents")
        if is_tangent or not found.isdisjoint(node.all_input_nodes):
            found.add(node)
    return found


def save_bases(forward: Graph, backward: Graph, results: int) -> bool:
    """Change both graphs, which know what is saved by the same names; whether there was something to change.

    Args:
        results: how many outputs of ``forward`` are not saved; they come first.
    """
    output = forward.output_node()
    returned, saved = output.args[0][:results], output.args[0][results:]
    # By their targets: the name of one that was added may have been another node's.
    taken = {str(node.target): node for node in backward.find_nodes(op="placeholder")}
    own, there = frozenset(returned), frozenset(saved)
    chains = {v: chain for v in saved if v not in own and v.name in taken and (chain := _chain(v, there))}
    if not chains:
        return False
    kept: dict[Any, None] = {}  # in the order of the placeholders, whose names are what both graphs have in common
    for value in saved:
        if value not in chains:
            kept[value] = None
        elif chains[value][0] not in there:
            kept[chains[value][0]] = None
    for value, chain in chains.items():
        _view_again(chain, taken, backward, taken[value.name])
    output.args = ((*returned, *kept),)
    return True


def _chain(view: Node, saved: Collection[Any]) -> list[Node]:
    """From a tensor that is as good to save as ``view`` to the view, of views by nothing but numbers; or nothing."""
    chain, found = [view], 0
    while (base := aliasing.viewed(chain[-1]) or _copied(chain[-1])) is not None and _is_plain(chain[-1], base):
        chain.append(base)
        # A part of something larger would keep all of it.
        if base.op == "placeholder" or base in saved or _numel(base) == _numel(view) is not None:
            found = len(chain)
    return chain[:found][::-1]


_COPIES = {"cuda": 4 * 2**20}
"""Copies of inputs of so many bytes are made again on such a device: they are there as long as all else that is saved,
and reading them once more takes microseconds."""


def _copied(node: Node) -> Node | None:
    """The input of which ``node`` is a copy in another layout."""
    if node.target is not torch.ops.aten.clone.default or node.args[0].op != "placeholder":
        return None
    value = node.meta["val"]
    least = _COPIES.get(value.device.type)
    numel = _numel(node)
    is_large = least is not None and numel is not None and numel * value.element_size() >= least
    return node.args[0] if is_large else None


def _is_plain(view: Node, base: Node) -> bool:
    is_tensor = isinstance(view.meta.get("val"), torch.Tensor) and isinstance(base.meta.get("val"), torch.Tensor)
    return is_tensor and view.all_input_nodes == [base] and "saved_tensor_with_no_vc_check" not in view.meta


def _numel(node: Node) -> int | None:
    numel = node.meta["val"].numel()
    return numel if type(numel) is int else None


def _view_again(chain: list[Node], taken: dict[str, Node], backward: Graph, placeholder: Node) -> None:
    """Replace the ``placeholder`` of a view or a copy by one of what it shows, and make it again of that."""
    base, *views = chain
    if base.name not in taken:
        with backward.inserting_before(placeholder):
            taken[base.name] = backward.placeholder(base.name)
        taken[base.name].meta = dict(base.meta)
    made, at = {base: taken[base.name]}, taken[base.name]
    if at.op == "placeholder":
        at = backward.find_nodes(op="placeholder")[-1]
    for view in views:
        with backward.inserting_after(at):
            at = made[view] = backward.node_copy(view, lambda n: made[n])
    placeholder.replace_all_uses_with(at)
    backward.erase_node(placeholder)
    taken[views[-1].name] = at  # of which another saved view may be


def draws_kept(split: Split) -> Split:
    """A partition function that puts the draws and checks which ``split`` drops back, in their order.

    torch's split of a training graph keeps what the results need.  A draw that nothing uses still advances the
    generator: without it, every later one would have other numbers than in eager.  Nothing uses a check either.
    """

    def split_and_keep(joint: GraphModule, *args: Any, **more: Any) -> tuple[GraphModule, GraphModule]:
        before = Graph()
        ends = before.graph_copy(joint.graph, {})
        before.output(ends)
        forward, backward = split(joint, *args, **more)
        present = {node.name for part in (forward, backward) for node in part.graph.nodes}
        # A draw that backward repeats has another name, as part of an operator that saves the generator's state.
        lost = [
            node
            for node in before.nodes
            if (is_random(node.target) or node.target in CHECKS)
            and present.isdisjoint((node.name, *(user.name for user in node.users)))
        ]
        for node in lost:
            # A draw of the backward pass is left out.
            if not _put_back(node, before, forward) and node.target in CHECKS and not _put_back(node, before, backward):
                raise RuntimeError(f"a check of the backward pass needs what forward does not save: {node.target}")
        if lost:
            forward.recompile()
            backward.recompile()
        return forward, backward

    return split_and_keep


def _put_back(lost: Node, before: Graph, part: GraphModule) -> bool:
    """Compute ``lost`` in ``part`` as well, where it stands in the graph ``before`` the split; False if it cannot."""
    place = {node.name: number for number, node in enumerate(before.nodes)}
    there = {node.name: node for node in part.graph.nodes}
    needed = _needed(lost, there)
    if any(node.op == "placeholder" for node in needed):  # it belongs to the other pass
        return False
    after = next(
        node
        for node in part.graph.nodes
        if node.op == "output" or (node.op != "placeholder" and place.get(node.name, -1) > place[lost.name])
    )
    with part.graph.inserting_before(after):
        for node in sorted(needed, key=lambda node: place[node.name]):
            made = part.graph.node_copy(node, lambda value: there[value.name])
            there[node.name] = made
    return True


def _needed(node: Node, there: dict[str, Node]) -> set[Node]:
    """``node`` and what it is computed from, but for what is ``there``."""
    found, open_ = set(), [node]
    while open_:
        each = open_.pop()
        if each not in found and each.name not in there:
            found.add(each)
            open_ += each.all_input_nodes
    return found
