"""Three ways to add your own backend to this process; `plugin/` shows how to ship one as a package.

Run it with: python examples/own_backend.py
"""

from dataclasses import dataclass

import torch

import torchmux
from torchmux.registry import Backend

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU()).eval()
x = torch.randn(2, 8)


def check(compiled):
    """The results match eager's, and the report says what computed them."""
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    print(torchmux.report(compiled))


# --- 1. a function, as torch.compile takes them: the captured graph in, a callable out -------------------------------


@torchmux.register_backend
def printing(gm, example_inputs):
    print(gm.code)
    return gm.forward


check(torchmux.compile(model, backend="printing"))

# A function does not have to be registered.
check(torchmux.compile(model, backend=printing))

# --- 2. a class that accepts some operators of an ATen graph and leaves the others to torch --------------------------


@dataclass
class CountingOptions:
    """torchmux checks names and types before it compiles anything."""

    verbose: bool = False


@torchmux.register_backend(
    name="counting",
    summary="runs ReLU, and counts the operators it receives",
    graph="aten",
    training=True,
    dynamic_shapes=True,
    options=CountingOptions,
)
class Counting:
    """Accepts ReLU, and says why it accepts nothing else.

    It follows the protocol ``torchmux.registry.Backend``.  All other members are optional; ``BackendExtras`` lists
    them, and ``keep_whole`` below is one.
    """

    def keep_whole(self):
        """Operators that stay whole, so that the report names ``linear`` as the program does."""
        return [torch.ops.aten.linear.default]

    def supports(self, node):
        """``True``, or the reason that users read in the report."""
        if node.target is torch.ops.aten.relu.default:
            return True
        return f"counting runs only relu, not {node.target}"

    def compile(self, gm, example_inputs, request):
        """Called with a graph of supported nodes; ``request`` holds the options."""
        count = sum(node.op == "call_function" for node in gm.graph.nodes)
        if count > 1000:
            raise torchmux.GraphRefused("counting accepts at most a thousand operators")
        if request.options.verbose:
            print(f"counting received {count} operators")
        return Counted(gm.forward, count)


class Counted:
    """Compiled code is any callable; ``CompiledPartExtras`` lists what it may say about itself."""

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

# strict=True raises an error for operators that would be left to torch.
try:
    with torch.no_grad():
        torchmux.compile(model, backend="counting", strict=True)(x)
except torchmux.FallbackRefused as error:
    print(error)
else:
    raise AssertionError("strict=True must refuse a graph that the backend does not run completely")

# --- 3. a description that says where the implementation is; it is imported at the first compilation -----------------

torchmux.register_backend(
    torchmux.BackendSpec(
        name="lazy",
        summary="the same as eager, from a module that is imported when needed",
        load="torchmux.backends.eager:compile",
        training=True,
        dynamic_shapes=True,
    )
)
check(torchmux.compile(model, backend="lazy"))

for name in ("printing", "counting", "lazy"):
    torchmux.unregister_backend(name)
assert "lazy" not in torchmux.list_backends()
