"""Every private name of torch in use exists in the installed torch and takes what we give it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch

from torchmux import torch_internals as ti

ROOT = Path(__file__).resolve().parent.parent
PUBLIC = sorted(
    name
    for name, value in vars(ti).items()
    if not name.startswith(("_", "@"))  # "@": of pytest, which rewrites the assertions of packages that have a plugin
    and getattr(value, "__module__", None) != "typing"
    and name not in ("annotations", "torch", "Callable", "Iterator")
    and name not in ("sys", "math", "operator", "functools", "contextlib")
)
SIN = torch.ops.aten.sin.default
ADD = torch.ops.aten.add.Tensor


def _tensor_guards() -> None:
    tensor = torch.ones(2, 3)
    guards = ti.TensorGuards(tensor, dynamic_dims_sizes=[[2, None]], dynamic_dims_strides=[[None, 1]])
    assert guards.check(torch.zeros(2, 4))
    assert not guards.check(torch.zeros(3, 3))
    assert "size mismatch" in guards.check_verbose(torch.zeros(3, 3), tensor_check_names=["x"])


def _root_guard_manager() -> None:
    seen = []
    manager = ti.RootGuardManager()
    manager.add_lambda_guard(lambda frame_locals: seen.append(frame_locals) or True, ["words"], None)
    assert manager.check({"x": 1})
    assert seen == [{"x": 1}]


def _compiled_module() -> None:
    assert isinstance(torch.compile(torch.nn.Linear(2, 2), backend="eager"), ti.optimized_module_class())


def _graph_modules() -> None:
    plain = torch.fx.symbolic_trace(torch.nn.Linear(2, 2))
    assert ti.calls_forward_alone(plain)

    class WithCall(torch.nn.Module):
        def __call__(self, x):
            return -super().__call__(x)

        def forward(self, x):
            return x + 1

    tracer = torch.fx.Tracer()
    model = WithCall()
    own = torch.fx.GraphModule(model, tracer.trace(model))
    assert ti.calls_forward_alone(own)  # takes no methods over from the model that it was made of
    type(own).__call__ = WithCall.__call__
    assert not ti.calls_forward_alone(own)


def _dynamo_config() -> None:
    def function(x):
        return x

    assert ti.under_dynamo_config(torch._dynamo.dont_skip_tracing(function)) is function
    assert ti.under_dynamo_config(torch._dynamo.error_on_graph_break(True)(function)) is None
    assert ti.under_dynamo_config(function) is None


def _distribution_checks() -> None:
    for check in ti.distribution_checks():
        assert check(torch.tensor([True, True]), "") is True
        assert check(torch.tensor([True, False]), "") is False
    newer = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
    assert len(ti.distribution_checks()) == 1 or not newer


def _global_state() -> None:
    guard = ti.GlobalStateGuard()
    assert guard.check()
    with torch.no_grad():
        assert not guard.check()


def _hook() -> None:
    """The C hook asks a callback about a frame and takes its answer."""
    seen = []

    class Answer:
        guarded_code = None
        frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
        apply_to_code = False
        skip_reason = None

    class Callback:
        _torchdynamo_orig_backend = None

        def __call__(self, frame, cache_entry, frame_state):
            seen.append((frame.f_code.co_name, dict(frame.f_locals), frame.closure))
            return Answer()

    def called(x):
        return x + 1

    previous = ti.set_eval_frame(Callback())
    try:
        assert called(1) == 2
    finally:
        ti.set_eval_frame(previous)
    assert seen[0][:2] == ("called", {"x": 1})


def _entries() -> None:
    """An entry is used while its guards hold, and can be emptied."""
    answers = []

    class Manager:
        id_matched_objs: dict = {}
        invalidation_reason = "none"

        def __init__(self, holds: bool) -> None:
            self.root = ti.RootGuardManager()
            self.root.add_lambda_guard(lambda frame_locals: holds, ["words"], None)
            self.cache_entry = self.extra_state = self.diff_guard_root = None

        def collect_diff_guard_sources(self) -> set:
            return set()

        def populate_diff_guard_manager(self) -> None:
            pass

    class Guarded:
        compile_id = None
        trace_annotation = "a test"

    class Answer:
        frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.DEFAULT, ti.FrameAction.DEFAULT)
        apply_to_code = False
        skip_reason = None

    class Callback:
        _torchdynamo_orig_backend = object()

        def __call__(self, frame, cache_entry, frame_state):
            answer = Answer()
            if frame.f_code is not called.__code__:
                answer.guarded_code = None
                answer.frame_exec_strategy = ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.DEFAULT)
                return answer
            answer.guarded_code = Guarded()
            answer.guarded_code.code = instead.__code__
            answer.guarded_code.guard_manager = Manager(True)
            answers.append(answer.guarded_code.guard_manager)
            return answer

    def called(x):
        return x

    def instead(x):
        return -x

    previous = ti.set_eval_frame(Callback())
    try:
        assert [called(1), called(1)] == [-1, -1]
        assert len(answers) == 1
        ti.drop_entry(answers[0], Manager(False))
        ti.drop_entry(answers[0], Manager(False))  # gone already
        assert called(1) == -1
        assert len(answers) == 2
    finally:
        ti.set_eval_frame(previous)


def _strategy() -> None:
    def called():
        return 1

    ti.set_code_exec_strategy(called.__code__, ti.FrameExecStrategy(ti.FrameAction.SKIP, ti.FrameAction.SKIP))
    assert called() == 1


def _not_captured() -> None:
    def called(x):
        return x

    assert ti.not_captured(called) is called


def _kept_buffers() -> None:
    with ti.tracing_context(ti.new_fake_mode()):
        ti.keep_saved_buffers()  # nothing was compiled yet
    from torch._guards import TracingContext

    class Metadata:
        bw_donated_idxs = None

    with ti.tracing_context(ti.new_fake_mode()):
        TracingContext.get().fw_metadata = Metadata()
        ti.keep_saved_buffers()
        assert TracingContext.get().fw_metadata.bw_donated_idxs == []


def _random_wrappers() -> None:
    save, repeat = ti.random_wrappers()
    state, first = save(torch.ops.aten.rand.default, [3], device=torch.device("cpu"))
    assert torch.equal(repeat(state, torch.ops.aten.rand.default, [3], device=torch.device("cpu")), first)


def _saved_tensor_hooks() -> None:
    seen = []

    def hooks(name):
        return torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(name) or t, lambda t: t)

    x = torch.ones(2, requires_grad=True)
    with hooks("outer"), hooks("inner"):
        with ti.without_saved_tensor_hooks():
            x.sin()
        assert seen == []
        x.sin()
        assert seen == ["inner"]


def _checkpoint() -> None:
    graph = torch.fx.symbolic_trace(lambda x: x.sin())
    assert torch.equal(ti.tag_checkpoint()(graph, torch.ones(2)), torch.ones(2).sin())


def _pytrees() -> None:
    leaves, structure = ti.pytree.tree_flatten({"a": (1, [2]), "b": 3})
    assert leaves == [1, 2, 3]
    assert ti.pytree.tree_unflatten(leaves, structure) == {"a": (1, [2]), "b": 3}
    assert ti.broadcast_dims({"a": 0, "b": None}, structure) == [0, 0, None]
    assert ti.broadcast_dims((0, 1), structure) is None


def _dispatch_mode() -> None:
    seen = []

    class Mode(ti.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        torch.ones(2).sin()
    assert seen[-1] is SIN


def _while_loop() -> None:
    assert callable(ti.while_loop)
    assert torch.ops.higher_order.while_loop is not None


def _region() -> None:
    assert ti.set_region(ti.set_region(-1)) == -1


def _markers() -> None:
    def kept(x):
        return x

    assert ti.marked_for_torch(id(kept)) is None
    torch.compiler.allow_in_graph(kept)
    assert ti.marked_for_torch(id(kept)) == "allowed"
    torch._dynamo.disallow_in_graph(kept)
    assert ti.marked_for_torch(id(kept)) == "disallowed"


def _set_grad_enabled() -> None:
    ti.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    ti.set_grad_enabled(True)


def _switches() -> None:
    for setter, getter in ti.switches().items():
        value = getter()
        setter(value)
        assert getter() == value


def _questions() -> None:
    assert ti.custom_device_name() == "privateuseone"
    assert torch.nn.attention.SDPBackend is ti.SDPBackend
    for disabled in ti.without_torch_function:
        with disabled():
            one = torch.ones(1)
    ((key, (lists, indices)),) = ti.group_tensors_by_device_and_dtype([[one]], True).items()
    assert (key, lists, indices) == ((one.device, one.dtype), [[one]], [0])


def _fake_mode() -> None:
    for symbolic in (False, True):
        mode = ti.fake_tensor_mode(symbolic=symbolic)
        assert (mode.shape_env is not None) == symbolic
        with mode:
            assert ti.is_fake(torch.ones(2).sin())


def _fake_errors() -> None:
    mode = ti.fake_tensor_mode(symbolic=False)
    errors = ti.fake_tensor_errors()
    assert set(errors) == {"data_dependent", "dynamic_output", "unsupported", "guard"}
    with mode, pytest.raises(errors["data_dependent"]):
        torch.ones(1).item()
    with mode, pytest.raises(errors["dynamic_output"]):
        torch.ones(1).nonzero()


def _share_storage() -> None:
    mode = ti.fake_tensor_mode(symbolic=False)
    with mode:
        x = torch.ones(4)
        assert ti.share_storage(x, x.view(2, 2))
        assert not ti.share_storage(x, x + 1)


def _tracing() -> None:
    assert ti.active_fake_mode() is None
    mode = ti.fake_tensor_mode(symbolic=False)
    with ti.tracing_context(mode):
        assert ti.active_fake_mode() is mode
        with ti.tracing_with(mode):
            assert ti.active_fake_mode() is mode
        assert not ti.inputs_are_mutated()
    with ti.tracing_with(mode):
        assert ti.active_fake_mode() is mode


def _modes() -> None:
    assert (ti.count_function_modes(), ti.count_dispatch_modes(), ti.default_devices()) == (0, 0, ())
    with torch.device("meta"):
        assert ti.default_devices() == (torch.device("meta"),)
        assert ti.count_function_modes() == 1
    with torch.overrides.BaseTorchFunctionMode():
        assert ti.default_devices() is None
    with ti.new_fake_mode():
        assert ti.count_dispatch_modes() == 1
        with ti.without_modes():
            assert not ti.is_fake(torch.ones(1))


def _functorch() -> None:
    seen = []
    torch.func.vmap(lambda x: seen.append(ti.is_functorch_active()) or x)(torch.ones(2))
    assert seen == [True]
    assert not ti.is_functorch_active()


def _kernels() -> None:
    key = ti.DispatchKey.CPU
    assert key not in ti.python_kernels(SIN)
    ti.forget_dispatch(SIN)
    x = torch.ones(2)
    assert torch.equal(ti.run_kernel(SIN, key, x), x.sin())


def _functionalization() -> None:
    def changes_and_adds(x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y = ti.beneath_functionalization(ADD, (x.t(), 1), {})
        return y.add_(1)

    x = torch.arange(6.0).reshape(2, 3)
    wanted = (x * 2).t() + 2
    assert torch.equal(torch.func.functionalize(changes_and_adds)(x), wanted)
    assert torch.equal(x, wanted.t() - 2)


def _autograd_switches() -> None:
    x = torch.ones(2, requires_grad=True)
    with ti.below_autograd():
        assert SIN(x).grad_fn is None
    assert not ti.is_any_autocast_enabled()
    with torch.autocast("cpu"):
        assert ti.is_any_autocast_enabled()
        a = torch.ones(2, 2)
        assert (a @ a).dtype is torch.bfloat16
        with ti.disable_autocast():
            assert (a @ a).dtype is torch.float32


def _schemas() -> None:
    assert [a.name for a in ti.operator_schema(ADD).arguments] == ["self", "other", "alpha"]
    assert isinstance(ADD, ti.OpOverload)
    assert not ti.is_composite(ADD)
    with torch.library._scoped_library("torchmux_internals", "DEF") as library:
        library.define("one(Tensor x) -> Tensor")
        library.impl("one", lambda x: x, "CPU")
        assert "torchmux_internals/one/CPU" in ti.python_registrations()
    assert ti.is_composite(torch.ops.aten.reshape.default)


def _symbols() -> None:
    from torch._dynamo.source import ConstantSource

    assert issubclass(ConstantSource, ti.guards_source_base())
    assert ti.local_guard_source().name == "LOCAL"
    assert {"STATIC", "DYNAMIC", "DUCK", "UNBACKED", "INFER_STRIDE"} <= set(ti.dim_kinds().__members__)
    assert ti.dim_bounds(None, 8).vr.upper == 8
    assert ti.dim_bounds(3, None).vr.lower == 3
    assert callable(ti.shape_guard_namespace()["IsNonOverlappingAndDenseIndicator"])
    env = ti.fake_tensor_mode(symbolic=True).shape_env
    symbol = env.create_unbacked_symint().node.expr
    assert ti.rebuild_symbolic(symbol * 2 + 1, {symbol: 5}) == 11
    size = env.create_symintnode(symbol, hint=None)
    for expression, value in (
        (torch.sym_int(size / 2), 2),
        (torch.sym_int(size * -0.3), -1),
        (math.floor(size / 2), 2),
        (math.ceil(size / 2), 3),
        (torch.sym_int(torch.sym_float(size) * 1.5), 7),
        (torch.sym_max(size, 7) - size // 2, 5),
    ):
        assert ti.rebuild_symbolic(expression.node.expr, {symbol: 5}) == value
    assert ti.rebuild_symbolic(symbol**2, {symbol: 5}) == 25
    with pytest.raises(NotImplementedError):
        ti.rebuild_symbolic(round(size / 2).node.expr, {symbol: 5})


def _unbacked() -> None:
    mode = ti.fake_tensor_mode(symbolic=True, where=lambda: "model.py:3", scalars=True, dynamic_outputs=True)
    graph = torch.fx.Graph()
    node = graph.placeholder("x")
    with mode, ti.python_dispatcher():
        node.meta["example_value"] = example = torch.ones(4)
        item = graph.call_method("item", (node,))
        item.meta["example_value"] = number = example.long().sum().item()
        bindings = ti.new_unbacked_symbols(mode.shape_env, number)
        torch._check(number < 5)
        with pytest.raises(ti.fake_tensor_errors()["guard"]):
            bool(number == 3)
    assert list(bindings) == [number.node.expr]
    item.meta["unbacked_bindings"] = bindings
    graph.output((item,))
    gm = torch.fx.GraphModule({}, graph)
    ti.insert_runtime_asserts(gm, mode.shape_env)
    gm.recompile()
    assert "_assert_scalar" in gm.code
    symbol = mode.shape_env.create_unspecified_symbol(7, source=_source(), dynamic_dim=ti.dim_kinds().DYNAMIC)
    assert bool(mode.shape_env.create_symintnode(symbol, hint=7, source=_source()) > 5)
    assert mode.shape_env.guards[-1].sloc.maybe_user_loc == "model.py:3"


def _source():
    from torch._dynamo.source import LocalSource

    return LocalSource("n")


def _floats() -> None:
    mode = ti.fake_tensor_mode(symbolic=True, scalars=True)
    source = mode.from_tensor(torch.tensor(0.5, dtype=torch.float64))
    with mode:
        number = source.item()
        alias = source.detach()
        ti.keep_number(source, alias)
        assert str(alias.item().node.expr) == str(number.node.expr)

    from torch._dynamo.exc import TensorifyScalarRestartAnalysis
    from torch._dynamo.symbolic_convert import TensorifyState

    TensorifyState.specialize("zf7")
    assert ti.floats_needed(ValueError()) is None
    assert ti.floats_needed(TensorifyScalarRestartAnalysis()) == {"zf7"}
    assert TensorifyState.empty()


def _symbolic_math() -> None:
    table = ti.symbolic_math()
    assert {math.sqrt, math.sin, math.log2} <= set(table)
    assert table[math.sqrt](16) == 4.0


def _size_range() -> None:
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    mode = ti.fake_tensor_mode(symbolic=True)
    for bounds, expected in ((None, (2, 5, None)), (ti.dim_bounds(3, 8), (3, 5, 8))):
        context = StatelessSymbolicContext([DimDynamic.DYNAMIC], constraint_sizes=[bounds])
        (size,) = mode.from_tensor(torch.ones(5), symbolic_context=context, source=_named_source()).shape
        assert ti.size_range(size) == expected
        least, usual, _ = expected
        assert ti.size_range(size * 2)[:2] == (2 * least, 2 * usual)
        assert ti.is_never_negative(size.node.shape_env, size.node.expr)
        ((name, text),) = ti.ranges_of(size * 2).items()
        assert name == str(size.node.expr)
        assert str(least) in text
    env = mode.shape_env
    number = env.create_symbol(
        -2, _named_source(), DimDynamic.DYNAMIC, None, positive=None, do_not_specialize_zero_one=True
    )
    assert not ti.is_never_negative(env, number)


def _named_source():
    from torch._dynamo.source import LocalSource

    return LocalSource("x")


def _memory() -> None:
    x, y = torch.ones(2), torch.ones(2)
    storage = x.untyped_storage()
    before = ti.storage_use_count(storage)
    alias = x.detach()
    assert ti.storage_use_count(storage) == before + 1
    del alias
    assert ti.storage_use_count(storage) == before
    addresses = [x.data_ptr(), None, y.data_ptr()]
    assert ti.addresses_equal((x, 5, y), addresses, [0, 2])
    assert not ti.addresses_equal((y, 5, y), addresses, [0, 2])
    assert ti.addresses_equal((y, 5, y), addresses, [2])


def _pools() -> None:
    assert callable(ti.end_allocating_to_pool)
    if torch.cuda.is_available():  # tests/backends/cudagraphs/test_cudagraphs_gpu.py calls it where it matters
        assert callable(torch._C._cuda_endAllocateToPool)


def _aot() -> None:
    gm = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    compiled = ti.aot_autograd()(gm, [torch.ones(2)], fw_compiler=lambda g, inputs: g.forward)
    assert torch.equal(compiled(torch.ones(2))[0], torch.ones(2).sin())
    assert callable(ti.min_cut_partition())
    assert hasattr(ti.functorch_config(), "patch")


def _inductor() -> None:
    assert callable(ti.inductor_compile_fx().compile_fx)
    assert hasattr(ti.inductor_config(), "patch")


def _onnx() -> None:
    pytest.importorskip("onnxscript")
    import onnx_ir

    assert "aten::sin" in ti.onnx_operators()
    ir_version, opset = ti.onnx_versions()
    gm = torch.export.export(_Sin(), (torch.ones(2),)).graph_module
    ti.onnx_type_promotion(gm)
    model = onnx_ir.Model(onnx_ir.Graph([], [], nodes=[], opset_imports={"": opset}, name="g"), ir_version=ir_version)
    values = ti.onnx_translate(gm.graph, model)
    ti.onnx_add_opset_imports(model)
    assert "sin" in values
    assert ti.onnx_registry().functions


class _Sin(torch.nn.Module):
    def forward(self, x):
        return x.sin()


def _plain_fake() -> None:
    """Plain tensors are as ``from_tensor`` makes them, and all others are left to it."""

    def look(fake):
        return (
            type(fake), fake.shape, fake.stride(), fake.dtype, fake.device, fake.requires_grad, fake.is_leaf,
            fake._is_view(), isinstance(fake, torch.nn.Parameter), torch._C._dispatch_keys(fake).raw_repr(),
            fake.untyped_storage().nbytes(), sorted(vars(fake)),
        )  # fmt: skip

    plain = [
        torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(2), requires_grad=False),
        torch.ones(3, 1, 2), torch.ones(()), torch.ones(2, dtype=torch.long), torch.ones(2, requires_grad=True),
        torch.empty_strided((2, 3), (1, 2)), torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    ]  # fmt: skip
    ours, torchs = ti.fake_tensor_mode(symbolic=False), ti.fake_tensor_mode(symbolic=False)
    for tensor in plain:
        fake = ti.plain_fake(ours, tensor)
        assert look(fake) == look(torchs.from_tensor(tensor)), tensor
        assert ours.from_tensor(tensor) is fake
        for alias in (tensor.detach(), tensor.data.as_strided((1,), (1,))):
            assert ti.plain_fake(ours, alias) is None
            assert ti.share_storage(ours.from_tensor(alias), fake)
    base = torch.ones(4)
    with_grad = torch.ones(2, requires_grad=True)
    with_grad.sum().backward()
    with torch.inference_mode():
        inference = torch.ones(2)
    others = [
        base[1:], with_grad, with_grad * 2, inference, torch.ones(0), torch.ones(1).expand(3), torch.ones(2).conj(),
        torch.ones(2, dtype=torch.cfloat).conj(), torch.empty_strided((2,), (3,)).resize_(1),
        torch.ones(2, device="meta"),
    ]  # fmt: skip
    assert [ti.plain_fake(ours, tensor) is None for tensor in others] == [
        True, True, True, True, True, True, False, True, True, True
    ]  # fmt: skip
    assert ti.plain_fake(ti.fake_tensor_mode(symbolic=True), torch.ones(2)) is None


CHECKS = {
    _plain_fake: ["plain_fake"],
    _tensor_guards: ["TensorGuards"],
    _root_guard_manager: ["RootGuardManager"],
    _global_state: ["GlobalStateGuard"],
    _hook: ["eval_frame", "set_eval_frame", "FrameAction", "FrameExecStrategy"],
    _entries: ["drop_entry"],
    _strategy: ["set_code_exec_strategy"],
    _not_captured: ["not_captured"],
    _region: ["set_region", "retired_guard_class"],
    _markers: ["marked_for_torch"],
    _compiled_module: ["optimized_module_class"],
    _distribution_checks: ["distribution_checks"],
    _graph_modules: ["calls_forward_alone"],
    _dynamo_config: ["under_dynamo_config"],
    _set_grad_enabled: ["set_grad_enabled"],
    _switches: ["switches"],
    _questions: ["custom_device_name", "SDPBackend", "without_torch_function", "group_tensors_by_device_and_dtype"],
    _fake_mode: ["fake_tensor_mode", "is_fake"],
    _fake_errors: ["fake_tensor_errors"],
    _share_storage: ["share_storage"],
    _tracing: ["tracing_context", "tracing_with", "active_fake_mode", "inputs_are_mutated"],
    _modes: ["count_function_modes", "count_dispatch_modes", "default_devices", "new_fake_mode", "without_modes"],
    _functorch: ["is_functorch_active"],
    _kernels: ["python_kernels", "forget_dispatch", "run_kernel", "DispatchKey"],
    _functionalization: ["beneath_functionalization"],
    _autograd_switches: ["below_autograd", "disable_autocast", "is_any_autocast_enabled"],
    _schemas: ["operator_schema", "is_composite", "OpOverload", "python_registrations"],
    _symbols: [
        "guards_source_base",
        "local_guard_source",
        "dim_bounds",
        "dim_kinds",
        "shape_guard_namespace",
        "rebuild_symbolic",
    ],
    _size_range: ["size_range", "is_never_negative", "ranges_of"],
    _unbacked: ["new_unbacked_symbols", "insert_runtime_asserts", "python_dispatcher"],
    _floats: ["floats_needed", "keep_number"],
    _symbolic_math: ["symbolic_math"],
    _memory: ["storage_use_count", "addresses_equal"],
    _pools: ["end_allocating_to_pool"],
    _aot: ["aot_autograd", "min_cut_partition", "functorch_config"],
    _kept_buffers: ["keep_saved_buffers"],
    _random_wrappers: ["random_wrappers"],
    _saved_tensor_hooks: ["without_saved_tensor_hooks"],
    _checkpoint: ["tag_checkpoint"],
    _pytrees: ["pytree", "broadcast_dims"],
    _dispatch_mode: ["TorchDispatchMode"],
    _while_loop: ["while_loop"],
    _inductor: ["inductor_compile_fx", "inductor_config"],
    _onnx: [
        "onnx_registry",
        "onnx_translate",
        "onnx_operators",
        "onnx_type_promotion",
        "onnx_versions",
        "onnx_add_opset_imports",
    ],
}
LISTS = {
    "c_operator_modules", "c_torch", "get_tracing_state", "log_api_usage_once", "tracing_questions",
    "VariableFunctions",
}  # fmt: skip


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.strip("_"))
def test_name_does_what_we_use_it_for(check):
    check()


def test_lists_of_functions():
    assert all(any(callable(getattr(module, name)) for name in dir(module)) for module in ti.c_operator_modules())
    assert all(question() is False for question in ti.tracing_questions())
    assert callable(ti.VariableFunctions.sin)


def test_every_name_is_checked():
    assert set(PUBLIC) == {name for names in CHECKS.values() for name in names} | LISTS


@pytest.mark.parametrize("name", PUBLIC)
def test_every_name_is_used(name):
    files = [p for folder in ("frontend", "backends", "conformance", "torchmux") for p in (ROOT / folder).rglob("*.py")]
    count = sum(len(re.findall(rf"\b{name}\b", path.read_text())) for path in files)
    defined = 2 if f"{name} as {name}" in Path(ti.__file__).read_text() else 1
    assert count > defined


def test_importing_it_imports_no_tracer_and_no_compiler(run_python):
    code = (
        "import torch, sys\nbefore = set(sys.modules)\nimport torchmux.torch_internals\n"
        "print([m for m in ('torch._dynamo', 'torch._inductor', 'torch._functorch.aot_autograd') if m in sys.modules])"
    )
    assert run_python(code) == "[]\n"
