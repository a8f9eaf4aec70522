"""torch's context managers: gradient modes, autocast, devices, attention kernels, flags, annotations."""

import pytest
import torch

from ..snippets.corpus import tensor
from ..worlds import BACKENDS, check_graphs, check_same, feature, features_of, leaf


def with_leaf():
    return (leaf(3, 4),)


@feature(inputs=with_leaf)
def no_grad(x):
    with torch.no_grad():
        y = x * 2
        asked = torch.is_grad_enabled()
    return y, y.requires_grad, asked, torch.is_grad_enabled(), x * y


@feature(inputs=with_leaf)
def enable_grad_inside(x):
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = x * 3
    return y.requires_grad, z.requires_grad, z


@feature(inputs=with_leaf)
def set_grad_enabled_as_context(x):
    with torch.set_grad_enabled(False):
        y = x * 2
    with torch.set_grad_enabled(mode=True):
        z = x * 2
    return y, z


@feature(inputs=with_leaf)
def set_grad_enabled_as_function(x):
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


@feature(inputs=with_leaf)
def set_grad_enabled_for_good(x):
    y = x * 2
    torch.set_grad_enabled(False)
    return y, x * 3


@torch.no_grad()
def without(x):
    return x * 2


@torch.no_grad
def without_parentheses(x):
    return x * 3


@torch.enable_grad()
def with_it(x):
    return x * 4


@torch.set_grad_enabled(False)
def switched(x):
    return x * 5


@torch.inference_mode()
def inferred(x):
    return x * 6


@feature(inputs=with_leaf)
def decorators(x):
    return without(x), without_parentheses(x), with_it(x), switched(x), x * 1


@feature(inputs=with_leaf)
def decorator_of_inference_mode(x):
    return inferred(x)


@feature(inputs=with_leaf)
def decorators_made_inside(x):
    @torch.no_grad()
    def inner(x):
        return x * 2

    return inner(x), torch.no_grad()(lambda x: x * 3)(x), x * 4


@feature()
def decorated_functions():
    yield without, (leaf(3),)
    yield switched, (leaf(3),)


@feature()
def decorated_function_of_inference_mode():
    yield inferred, (tensor(),)


@feature()
def called_under_no_grad():
    def run(x):
        return x * 2

    x = leaf(3)
    yield run, (x,)
    torch.set_grad_enabled(False)
    yield run, (x,)
    torch.set_grad_enabled(True)
    yield run, (x,)


@feature()
def called_under_inference_mode():
    x = tensor()

    def run(x):
        return x * 2, torch.is_inference_mode_enabled()

    yield run, (x,)
    with torch.inference_mode():
        yield run, (x,)
    yield run, (x,)


@feature(backward=False)
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled()
    return y, y.is_inference(), inside


@feature(inputs=with_leaf)
def inference_mode_switched_off(x):
    with torch.no_grad():
        with torch.inference_mode(False):
            y, inside = x * 2, (torch.is_grad_enabled(), torch.is_inference_mode_enabled())
        z = x * 3
    return y, inside, z, torch.is_grad_enabled()


@feature(inputs=with_leaf)
def inference_mode_switched_off_between_graphs(x):
    with torch.inference_mode(mode=False):
        y = x * 2
        print(end="")
        z = x * 3
    return y, z, x * 4


@feature(more="what is inside of it runs in eager", backward=False)
def inference_mode_switched_off_within(x):
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode(False):
            z = torch.ones(2)
    return y, z, z.is_inference()


@feature(inputs=lambda: (torch.randn(4, 4), torch.nn.Linear(4, 4)))
def autocast(x, m):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = m(x)
        z = torch.softmax(y, -1)
        asked = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return y, z, m(x), asked, torch.is_autocast_enabled("cpu")


@feature(inputs=lambda: (torch.randn(4, 4),))
def autocast_nested(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = x @ y.float()
        return y, z, x @ z


@feature(inputs=lambda: (torch.randn(4, 4), False))
def autocast_switched_off(x, enabled):
    with torch.amp.autocast(device_type="cpu", enabled=enabled, cache_enabled=False):
        return x @ x


@torch.autocast("cpu", dtype=torch.bfloat16)
def multiplied(x):
    return x @ x


@feature(inputs=lambda: (torch.randn(4, 4),))
def autocast_as_decorator(x):
    return multiplied(x), x @ x


@feature()
def function_decorated_with_autocast():
    yield multiplied, (torch.randn(4, 4),)


@feature(inputs=lambda: (torch.randn(4, 4),))
def autocast_of_another_device(x):
    with torch.autocast("cuda", enabled=False):
        return x @ x


@feature(
    more="leaving an autocast region that was entered before a break is a break of its own",
    inputs=lambda: (torch.randn(4, 4),),
)
def autocast_broken_in_the_middle(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x
        print(end="")
        z = y @ x
    return y, z, x @ x


@feature()
def autocast_object_from_outside():
    context = torch.autocast("cpu", dtype=torch.bfloat16)

    def run(x):
        with context:
            return x @ x

    yield run, (torch.randn(4, 4),)


@feature()
def called_under_autocast():
    def run(x, w):
        return x @ w

    x, w = torch.randn(4, 4), leaf(4, 4)
    yield run, (x, w)
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype=dtype, cache_enabled=False):
            yield run, (x, w)
    yield run, (x, w)


@feature()
def device_context(x):
    with torch.device("meta"):
        y = torch.ones(3)
    with torch.device("cpu"):
        z = torch.ones(3)
    return y.device, z * x[0, 0]


@feature()
def called_under_a_device():
    def run(x):
        return torch.ones(2).device, x * 2

    yield run, (tensor(),)
    with torch.device("meta"):
        yield run, (tensor(),)
    yield run, (tensor(),)


@feature(inputs=lambda: (torch.randn(1, 2, 4, 8),))
def attention_kernels(x):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        return y, torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@feature()
def annotations(x):
    with torch.profiler.record_function("double"):
        y = x * 2
    with torch.autograd.profiler.record_function("triple"):
        return y, x * 3


@feature()
def annotation_broken_in_the_middle(x):
    with torch.profiler.record_function("double", None):
        y = x * 2
        print(end="")
        y = y + 1
    return y


@torch.profiler.record_function("annotated")
def annotated(x):
    return x * 2


@feature()
def annotated_function(x):
    return annotated(x) + 1


@feature(more="the profiler is started and stopped between graphs")
def profiler_around(x):
    with torch.profiler.profile():
        y = x * 2
    return y + 1


@feature()
def backend_flags(x):
    with torch.backends.cudnn.flags(enabled=False):
        y = x * 2
    with torch.backends.mkldnn.flags(enabled=False):
        return y, x @ x.T


@feature()
def flags_are_asked(x):
    asked = torch.backends.cudnn.enabled, torch.backends.cuda.matmul.allow_tf32, torch.backends.mkldnn.is_available()
    return asked, x * 2, torch.get_float32_matmul_precision()


@feature()
def deterministic_algorithms():
    def run(x):
        return x * 2, torch.are_deterministic_algorithms_enabled()

    yield run, (tensor(),)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield run, (tensor(),)
    finally:
        torch.use_deterministic_algorithms(False)


@feature(more="use_deterministic_algorithms ends the graph, as the guards of both parts differ")
def deterministic_algorithms_inside(x):
    torch.use_deterministic_algorithms(True)
    y = x * 2
    torch.use_deterministic_algorithms(False)
    return y + 1


@feature(inputs=with_leaf)
def anomalies_detected(x):
    with torch.autograd.set_detect_anomaly(True):
        y = x * 2
    return y.sum()


@feature(more="hooks of saved tensors are entered between graphs", inputs=with_leaf)
def saved_tensors(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        y = x * x
    return y.sum()


@feature(inputs=with_leaf)
def saved_on_cpu(x):
    with torch.autograd.graph.save_on_cpu():
        y = x * x
    return y.sum()


@feature(more="the version counter of a tensor is not known while it is traced", inputs=with_leaf)
def version_counters_preserved(x):
    y = x * 2
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(y):
        y.mul_(2)
    return y


@feature(inputs=with_leaf)
def multithreading_of_autograd(x):
    with torch.autograd.set_multithreading_enabled(False):
        return x * 2


@feature(inputs=with_leaf)
def several_at_once(x):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16), torch.profiler.record_function("all"):
        y = x @ x.T
    return y, x * 2


@feature(inputs=with_leaf)
def gradient_mode_objects_are_kept(x):
    mode = torch.no_grad()
    with mode:
        y = x * 2
    with mode:
        z = x * 3
    return y, z, x * 4


@feature(inputs=with_leaf)
def gradient_mode_broken_in_the_middle(x):
    with torch.no_grad():
        y = x * 2
        print(end="")
        z = x * 3
    return y, z, x * 4


@feature(inputs=with_leaf)
def gradient_mode_left_by_exception(x):
    try:
        with torch.no_grad():
            y = x * 2
            raise ValueError
    except ValueError:
        return y, x * 3


@feature()
def graph_compiled_under_fake_switches():
    def run(x):
        return x * torch.get_num_threads()

    yield run, (tensor(),)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", features_of(__name__))
def test_contexts_are_as_in_eager(name, backend):
    check_same(__name__, name, backend)


@pytest.mark.slow
@pytest.mark.parametrize("name", features_of(__name__))
def test_contexts_take_no_more_graphs(name):
    check_graphs(__name__, name)
