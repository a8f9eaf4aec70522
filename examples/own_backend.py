"""Three ways to bring a backend of your own into this process; `plugin/` shows how to ship one as a package.

Run it with: python examples/own_backend.py
"""

from dataclasses import dataclass

import torch

import torchmux
from torchmux.registry import Backend

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
x = torch.randn(2, 8)


def check(compiled):
    """The results are eager's, and the report says who computed them."""
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    print(torchmux.report(compiled))


# --- 1. a function, as torch.compile takes them: the captured graph in, a callable out -------------------------------


@torchmux.register_backend
def printing(gm, example_inputs):
    print(gm.code)
    return gm.forward


check(torchmux.compile(model, backend="printing"))

# A function need not be registered to be used.
check(torchmux.compile(model, backend=printing))

# --- 2. a class that takes some operators of an ATen graph and leaves the others to torch ----------------------------


@dataclass
class CountingOptions:
    """Names and types are checked before anything is compiled."""

    verbose: bool = False


@torchmux.register_backend(
    name="counting",
    summary="runs ReLU, and counts the operators it is given",
    graph="aten",
    training=True,
    dynamic_shapes=True,
    options=CountingOptions,
)
class Counting:
    """Takes ReLU, and says why it takes nothing else.

    It follows the protocol ``torchmux.registry.Backend``.  Everything else that a backend may have is optional, and
    stands in ``BackendExtras``: as an example, ``keep_whole``.
    """

    def keep_whole(self):
        """Operators that are not to be taken apart, so that the report names ``linear`` as the program does."""
        return [torch.ops.aten.linear.default]

    def supports(self, node):
        """``True``, or the reason that users read in the report."""
        if node.target is torch.ops.aten.relu.default:
            return True
        return f"counting runs relu only, not {node.target}"

    def compile(self, gm, example_inputs, request):
        """Called with a graph of supported nodes; ``request`` holds the options."""
        count = sum(node.op == "call_function" for node in gm.graph.nodes)
        if count > 1000:
            raise torchmux.GraphRefused("counting gets tired of more than a thousand operators")
        if request.options.verbose:
            print(f"counting was given {count} operators")
        return Counted(gm.forward, count)


class Counted:
    """Compiled code: any callable; what it tells of itself is optional, and stands in ``CompiledPartExtras``."""

    def __init__(self, run, count):
        self.run = run
        self.notes = [f"counting counted {count}"]

    def __call__(self, *args):
        return self.run(*args)


compiled = torchmux.compile(model, backend="counting", options={"verbose": True})
check(compiled)
assert 0 < torchmux.report(compiled).share < 1
assert isinstance(Counting(), Backend)
assert [p.op for p in torchmux.report(compiled).fallbacks] == ["aten.linear.default"]
assert torchmux.report(compiled).graphs[0].report.notes == ["counting counted 1"]

# strict=True turns what would be left to torch into an error.
try:
    with torch.no_grad():
        torchmux.compile(model, backend="counting", strict=True)(x)
except torchmux.FallbackRefused as error:
    print(error)
else:
    raise AssertionError("strict=True must refuse a graph that is not run whole")

# --- 3. a description that says where the implementation is; it is imported at the first compilation -----------------

torchmux.register_backend(
    torchmux.BackendSpec(
        name="lazy",
        summary="the same as eager, from a module that is imported when it is needed",
        load="torchmux.backends.eager:compile",
        training=True,
        dynamic_shapes=True,
    )
)
check(torchmux.compile(model, backend="lazy"))

for name in ("printing", "counting", "lazy"):
    torchmux.unregister_backend(name)
assert "lazy" not in torchmux.list_backends()
