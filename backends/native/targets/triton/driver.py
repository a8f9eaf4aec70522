"""Machine code in a GPU's memory, and launching it, through the driver's own library: neither needs Triton.

Kernels that follow each other are launched by one call of a small function in C, so that no Python runs between them.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import torch

from torchmux.config import config
from torchmux.registry.errors import BackendUnavailable, CompilationFailed
from torchmux.scratch import scratch_folder

from ....common.cache.cache import default_cache
from ....common.cache.keys import text_key
from .compiling import Cubin

_SHARED_LIMIT = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_WITHOUT_ASKING = 48 * 1024
NO_CONTEXT = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE
_COMPILERS = ("cc", "gcc", "clang")

# A table describes launches, one after the other: the function, the threads of a program, its shared memory, how many
# arguments there are, the slots of the three numbers of programs, and the slots of the arguments.  The slots hold what
# differs between calls, eight bytes each: a kernel reads as many of these as its argument has.  Triton's kernels have
# two arguments more, for memory that these kernels do not need.
_SOURCE = """
typedef unsigned long long u64;
typedef int (*Launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);

int launch_all(void *launch, const u64 *table, u64 launches, u64 *slots, void *stream)
{
    static u64 nothing = 0;
    void *given[256];
    for (; launches; --launches) {
        u64 count = table[3];
        long long x = slots[table[4]], y = slots[table[5]], z = slots[table[6]];
        if (x > 0 && y > 0 && z > 0) {
            for (u64 at = 0; at < count; ++at)
                given[at] = slots + table[7 + at];
            given[count] = given[count + 1] = &nothing;
            int error = ((Launch)launch)((void *)table[0], x, y, z, table[1], 1, 1, table[2], stream, given, 0);
            if (error)
                return error;
        }
        table += 7 + count;
    }
    return 0;
}
"""


@functools.cache
def _cuda() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@functools.cache
def launcher() -> Any:
    """The function in C; it is compiled once on a machine."""
    cache, key = default_cache(), text_key("the launcher of CUDA kernels", _SOURCE)
    built = cache.load(key) if cache is not None else None
    if built is None:
        built = _compiled(_SOURCE)
        if cache is not None:
            cache.store(key, built)
    with scratch_folder() as folder:
        (folder / "launcher.so").write_bytes(built)
        function: Any = ctypes.CDLL(str(folder / "launcher.so"))["launch_all"]
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    function.argtypes = (pointer, pointer, number, pointer, pointer)
    function.restype = ctypes.c_int
    return function


def _compiled(source: str) -> bytes:
    """A shared object of a source in C.

    Raises:
        BackendUnavailable: there is no compiler.
        CompilationFailed: it failed.
    """
    compiler = next((found for name in _COMPILERS if (found := shutil.which(name))), None)
    if compiler is None:
        raise BackendUnavailable(f"native needs a C compiler, and none of {', '.join(_COMPILERS)} is on PATH.")
    with scratch_folder() as folder:
        (folder / "launcher.c").write_text(source)
        command = [compiler, "-O2", "-shared", "-fPIC", "launcher.c", "-o", "launcher.so"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=config.compiler_timeout_s)
        if done.returncode:
            raise CompilationFailed(f"native: the C compiler {compiler!r} failed: {done.stderr[:1000]}")
        return (folder / "launcher.so").read_bytes()


@functools.cache
def launch_address() -> int:
    """Where the driver's function is."""
    address = ctypes.cast(_cuda().cuLaunchKernel, ctypes.c_void_p).value
    assert address is not None
    return address


def function_of(cubin: Cubin, device: torch.device) -> int:
    """The handle of a kernel that was put on ``device``; it stays there as long as the process lives."""
    with torch.cuda.device(device):
        enter(device)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        _checked(_cuda().cuModuleLoadData(ctypes.byref(module), cubin.code), "load a kernel")
        symbol = cubin.symbol.encode()
        _checked(_cuda().cuModuleGetFunction(ctypes.byref(function), module, symbol), "find a kernel")
        if cubin.shared > _WITHOUT_ASKING:
            _checked(_cuda().cuFuncSetAttribute(function, _SHARED_LIMIT, cubin.shared), "get shared memory")
        assert function.value is not None
        return function.value


def enter(device: torch.device) -> None:
    """Make the context of ``device`` this thread's; torch leaves that to the first call of CUDA's that needs one."""
    context = ctypes.c_void_p()
    torch.cuda.init()
    _checked(_cuda().cuDevicePrimaryCtxRetain(ctypes.byref(context), device.index), "find the context of a device")
    _checked(_cuda().cuCtxSetCurrent(context), "enter the context of a device")


def most_shared_memory(device: torch.device) -> int:
    """How many bytes of it a program may have."""
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)


def slots_type(count: int) -> Any:
    """The type of so many slots."""
    return ctypes.c_uint64 * count


def table_of(launches: Sequence[tuple[int, Cubin, Sequence[int], Sequence[int]]]) -> Any:
    """A table of launches: handles, what they take, the slots of the numbers of programs, and those of arguments."""
    words: list[int] = []
    for handle, cubin, programs, arguments in launches:
        words += [handle, cubin.threads, cubin.shared, len(arguments), *programs, *arguments]
    return (ctypes.c_uint64 * len(words))(*words)


def failed(error: int) -> RuntimeError:
    """What went wrong, in the driver's words."""
    words = ctypes.c_char_p()
    _cuda().cuGetErrorString(error, ctypes.byref(words))
    said = words.value.decode() if words.value else f"error {error}"
    return RuntimeError(f"native: the CUDA driver could not launch a kernel: {said}")


def _checked(error: int, what: str) -> None:
    if error:
        raise RuntimeError(f"native: the CUDA driver could not {what}: {failed(error)}")
