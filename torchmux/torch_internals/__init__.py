"""Every private name of torch in use, in one place: ``from torchmux import torch_internals as ti``, then ``ti.name``.

Tried on torch 2.11, 2.13 and 2.15.  ``tests/torch_internals`` walks this package on the installed torch, so that a
release that moves a name is noticed here and nowhere else.  Importing it imports neither ``torch._dynamo`` nor
``torch._inductor``.

The map, by topic:

* ``frame_hook``: the PEP 523 hook in C, its answers and the entries that it keeps; guards that torch checks in C++
* ``distributed``: distributed tensors, and what torch's distributed wrappers tell about a call
* ``fake_tensors``: tensors without data, and the fake mode of a compilation
* ``fake_results``: operators whose fake results have other dtypes than their real ones, or that refuse some dtypes
* ``fake_layouts``: operators whose fake results have other strides than their real ones
* ``shape_env``: symbolic sizes and what is known of them
* ``modes``: grad mode, autocast, dispatch and function modes, default devices
* ``operators``: overloads, schemas, kernels by dispatch key; operators that take functions or graphs
* ``library``: functions in C that programs call through torch's Python functions; graph modules, pytrees
* ``functorch``: transforms of functions
* ``memory``: where the contents of tensors lie
* ``aot``: AOTAutograd, and ``short_passes``: its passes without what most graphs do not need
* ``torch_compile``: torch's own compiler, and what a program has told it
* ``onnx_exporter``: the exporter that comes with torch

These stand for themselves and are imported by name: ``symbolic_tensors`` (``torch.tensor`` of symbolic sizes),
``tracer_stand_in`` and ``inductor_stand_in`` (captures and traces without importing ``torch._dynamo`` and
``torch._inductor``), and ``stand_in``, on which both are built; ``fake_answers`` is the memory of ``fake_results``.
"""

from __future__ import annotations

# ruff: noqa: F401 - what is imported here is what the package offers
from .aot import (
    ExpectedGradients,
    Returns,
    aot_autograd,
    ask_torch_for_constants,
    bases_among_results,
    checks_without_tokens,
    compiled_function,
    count_of_results,
    draws_have_effects,
    floats_needed,
    floats_stay,
    functorch_config,
    graphs_are_not_printed,
    has_subclasses,
    inputs_are_mutated,
    keep_saved_buffers,
    keeps_graph,
    min_cut_partition,
    module_without_code,
    modules_without_code,
    written_inputs,
)
from .distributed import (
    Buckets,
    Distribution,
    buckets_of_running_ddp,
    draws_by_rank,
    is_distributed,
    is_mesh,
    is_placement,
)
from .fake_layouts import ROWS_RESIZED, strides_of_sum, suggested_layout
from .fake_results import correct
from .fake_tensors import (
    active_fake_mode,
    fake_tensor_errors,
    fake_tensor_mode,
    forget_real_tensors,
    ignoring_new_symbols,
    is_fake,
    is_fake_class,
    is_wrapper,
    keep_number,
    new_fake_mode,
    parts_of,
    plain_fake,
    tracing_context,
    tracing_with,
)
from .frame_hook import (
    FrameAction,
    FrameExecStrategy,
    GlobalStateGuard,
    RootGuardManager,
    TensorGuards,
    dispatch_keys,
    drop_entry,
    has_buckets,
    keep_order_of_entries,
    not_captured,
    retired_guard_class,
    set_bucket,
    set_code_exec_strategy,
    set_eval_frame,
)
from .functorch import are_transforms_active, beneath_functionalization, is_batched, is_functorch_active
from .library import (
    SDPBackend,
    VariableFunctions,
    broadcast_dims,
    c_operator_modules,
    c_torch,
    calls_forward_alone,
    custom_device_name,
    disabled_torch_function,
    distribution_checks,
    get_tracing_state,
    group_tensors_by_device_and_dtype,
    infer_size,
    log_api_usage_once,
    pytree,
    tracing_questions,
)
from .memory import (
    addresses_equal,
    copied_together,
    current_raw_stream,
    end_allocating_to_pool,
    increment_versions,
    new_on_cpu,
    new_on_gpu,
    place_of_address,
    share_storage,
    storage_use_count,
    taken_apart,
    weak_count,
)
from .modes import (
    TorchDispatchMode,
    autograd_switches,
    below_autograd,
    by_mode,
    compiler_settings,
    count_dispatch_modes,
    count_function_modes,
    default_devices,
    device_constructors,
    disable_autocast,
    has_dual_level,
    in_plain_mode,
    is_any_autocast_enabled,
    is_forward_ad_active,
    is_profiled,
    leaving_dual_level,
    lstm_states_in_shape,
    python_dispatcher,
    registries,
    saves_for_backward,
    set_grad_enabled,
    set_script_profiles,
    settings_of_scripts,
    switches,
    without_modes,
    without_onednn,
    without_saved_tensor_hooks,
    without_torch_function,
    without_tracing,
)
from .onnx_exporter import (
    onnx_add_opset_imports,
    onnx_operators,
    onnx_translate,
    onnx_type_promotion,
    onnx_versions,
)
from .operators import (
    DispatchKey,
    OpOverload,
    checkpoints_by_decorators,
    forget_dispatch,
    functions_in_c,
    has_kernel,
    is_composite,
    operator_schema,
    overloads,
    python_kernels,
    python_registrations,
    random_wrappers,
    run_kernel,
    scan_stacks_along_its_dimension,
    tag_checkpoint,
    while_loop,
)
from .shape_env import (
    as_python,
    assumptions,
    depends_on_data,
    dim_bounds,
    dim_kinds,
    factor_of,
    holds,
    insert_runtime_asserts,
    is_never_negative,
    least_of,
    least_size,
    made_number,
    made_symbol,
    named_source,
    new_unbacked_symbols,
    possible_value,
    printed_source,
    ranges_of,
    rebuild_symbolic,
    settled,
    shape_guard_namespace,
    size_range,
    symbol_of,
    symbolic_math,
    told_symbol,
    usual_of,
)
from .short_passes import PlainPasses, ShortPasses, plain_function
from .torch_compile import (
    asked_of_tracer,
    begin_cudagraph_step,
    breaks_are_errors,
    enters_a_context,
    inductor_compile_fx,
    inductor_config,
    is_marked_static,
    listen_to_tracer,
    make_attributes,
    marked_for_torch,
    optimized_module_class,
    questions_to_tracer,
    tell_static_inputs,
    tracer_lock,
    under_dynamo_config,
)
