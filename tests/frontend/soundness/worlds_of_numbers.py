# ruff: noqa: E501 - a line is a program
"""Worlds of numbers that become symbolic, and of settings of the process."""

from __future__ import annotations

from .worlds import world

# --- floats that become symbolic -------------------------------------------------------------------------------------

_SPECIAL = (
    "0.0",
    "-0.0",
    "float('inf')",
    "float('-inf')",
    "float('nan')",
    "7.5",
    "-7.5",
    "0.5",
    "-1.0",
    "1e308",
    "5e-324",
    "3",
)
_FLOAT_QUESTIONS = """
abs(n)
-n, +n
n + 0.0, n - 0.0, 0.0 - n
n * 0.0, n * -0.0, 0.0 * n
n * m, n + m, n - m, m - n
n - n, n + n, n * n
-(n - n), -(n - m)
n / m if m else 0
n // 2.0, n % 2.0
n // -2.0, n % -2.0
n ** 2, n ** 2.0, n ** 0
max(n, 0.0), min(n, 0.0), max(0.0, n), min(0.0, n)
max(n, -0.0), min(n, -0.0)
max(n, m), min(n, m)
max(n, float('nan')), min(float('nan'), n)
math.copysign(1.0, n)
math.copysign(n, -1.0)
round(n) if abs(n) < 100 else 0
round(n, 1)
int(n) if abs(n) < 100 else 0
float(n), bool(n)
n == 0, n < 0, n >= 0, n != n
n == m, n < m, n <= m
str(n), f'{n}', f'{n:.2f}', repr(n)
n if n else 5.0
n or 5.0, n and 5.0
math.sqrt(n) if n > 0 else 0
math.floor(n) if abs(n) < 100 else 0
math.trunc(n) if abs(n) < 100 else 0
n * float('inf')
n + float('nan')
divmod(n, 2.0)
{0.0: 1, 7.5: 2}.get(n, 3)
n in (0.0, 7.5)
n.is_integer(), n.hex() if isinstance(n, float) else 0
abs(n - m), abs(n * m)
abs(n) * -0.0
torch.full((2,), n)
x * n, x + n
torch.tensor([1.0, -1.0]) * n
torch.tensor([1.0]) * abs(n)
torch.copysign(torch.ones(1), torch.tensor(n))
n * 0, 0 * n, n * 1
math.atan2(n, -1.0), math.atan2(0.0, n), math.atan2(-0.0, n)
math.atan2(n * 0.0, -1.0), math.copysign(1.0, n * 0.0)
1 / n if n else 0, n / 3, -n / 3.0
str(n * 0.0), str(-n * 0.0), str(n - n), repr(0.0 / n) if n else 0
[repr(k) for k in {n: 1}], [repr(k) for k in {n * 0.0: 1}]
{-0.0: 1}.get(n, 2), {n: 3}.get(0.0, 4), len({n, 0.0, -0.0})
hash(n) == hash(2.5), (n, 1) == (2.5, 1)
complex(n, 0.0), complex(0.0, n)
math.fmod(n, 2.0) if abs(n) < 1e300 else 0, math.hypot(n, 0.0)
math.isnan(n), math.isinf(n), math.isfinite(n)
sum([n, 0.0]), sum([-0.0, n * 0.0])
sorted([n, m, 0.0, -0.0]) if n == n else 0
abs(-n * 0.0), abs(n * 0.0), round(n * 0.0)
math.ldexp(n, 1) if abs(n) < 1e300 else 0, math.modf(n), math.frexp(n)
float(str(n)), f'{-n:+.1f}', '%.3g' % n
n // m if m else 0, n % m if m and abs(n) < 1e300 else 0
torch.where(x == 0, n, -n), torch.tensor([n, -n * 0.0])
-n * 0.0
(n + 1.0) * 0.0
(n - 7.5) * -1.0, (m - n) * 2.0
"""
world(
    "float",
    "n = 2.5; m = 1.5\n",
    _FLOAT_QUESTIONS,
    "\n".join((*(f"n = 3.5; again; n = {v}" for v in _SPECIAL), *(f"n = m = 4.5; again; n = m = {v}" for v in _SPECIAL), "n = -2.5; again; m = 2.5; n = 2.5")),
)  # fmt: skip

# --- settings of the process -----------------------------------------------------------------------------------------

# torch keeps these in C++ for the whole process, so a change sets a value: both programs of a comparison make it.
world(
    "autocast",
    """
def auto(**more):
    with torch.autocast("cpu", **more):
        return torch.ones(2, 2) @ torch.ones(2, 2)
def asked_inside(**more):
    with torch.autocast("cpu", **more):
        return str(torch.get_autocast_dtype("cpu")), str(torch.get_autocast_dtype("cuda"))
""",
    """
    auto()
    auto(enabled=False)
    auto(dtype=torch.bfloat16), str(torch.get_autocast_dtype("cpu"))
    asked_inside()
    asked_inside(dtype=torch.float16)
    asked_inside(enabled=False)
    str(torch.get_autocast_dtype("cpu")), str(torch.get_autocast_dtype(device_type="cuda"))
    str(torch.get_autocast_dtype("xpu"))
    torch.is_autocast_enabled("cpu"), torch.is_autocast_enabled("cuda"), torch.is_autocast_cache_enabled()
    torch.ones(2, 2) @ torch.ones(2, 2)
    torch.get_autocast_dtype("no device")
    torch.is_autocast_enabled("no device")
    torch.get_autocast_dtype(3)
    """,
    """
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_dtype("cpu", torch.float16); again; torch.set_autocast_dtype("cpu", torch.bfloat16)
    torch.set_autocast_dtype("cuda", torch.bfloat16)
    torch.set_autocast_dtype("xpu", torch.bfloat16)
    torch.set_autocast_enabled("cpu", True); again; torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_enabled("cuda", True)
    torch.set_autocast_cache_enabled(False)
    """,
    """
for device, dtype in ("cpu", torch.bfloat16), ("cuda", torch.float16), ("xpu", torch.float16):
    torch.set_autocast_enabled(device, False)
    torch.set_autocast_dtype(device, dtype)
torch.set_autocast_cache_enabled(True)
""",
)
world(
    "process",
    """
import os, sys
os.environ["SOUNDNESS"] = "1"
""",
    """
    str(torch.get_default_dtype()), torch.ones(2), torch.tensor(1.5), torch.full((1,), 2.0)
    str(torch.get_default_device()), torch.ones(2).device.type, torch.arange(3).device.type
    torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.get_deterministic_debug_mode()
    torch.get_num_threads()
    torch.get_float32_matmul_precision()
    torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_anomaly_enabled()
    torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled
    torch.backends.mkldnn.enabled, torch.backends.mkldnn.deterministic, torch.backends.mha.get_fastpath_enabled()
    torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()
    torch.is_warn_always_enabled()
    torch.__future__.get_overwrite_module_params_on_conversion()
    os.environ["SOUNDNESS"], os.environ.get("SOUNDNESS", "0"), os.getenv("SOUNDNESS")
    "SOUNDNESS" in os.environ
    sys.getrecursionlimit()
    """,
    """
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.set_default_device("meta"); again; torch.set_default_device("cpu")
    torch.use_deterministic_algorithms(True)
    torch.use_deterministic_algorithms(True, warn_only=True); again; torch.use_deterministic_algorithms(True)
    torch.set_num_threads(3)
    torch.set_float32_matmul_precision("high")
    torch.set_grad_enabled(False)
    torch.autograd.set_detect_anomaly(True)
    torch.backends.cudnn.set_flags(_benchmark=True)
    torch.backends.cudnn.set_flags(_deterministic=True)
    torch.backends.mkldnn.set_flags(False)
    torch.backends.mha.set_fastpath_enabled(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_warn_always(True)
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    os.environ["SOUNDNESS"] = "2"
    os.environ.pop("SOUNDNESS", None)
    sys.setrecursionlimit(2000)
    """,
    """
torch.set_default_dtype(torch.float32)
torch.set_default_device(None)
torch.use_deterministic_algorithms(False)
torch.set_num_threads(1)
torch.set_float32_matmul_precision("highest")
torch.set_grad_enabled(True)
torch.autograd.set_detect_anomaly(False)
torch.backends.cudnn.set_flags(_benchmark=False, _deterministic=False)
torch.backends.mkldnn.set_flags(True)
torch.backends.mha.set_fastpath_enabled(True)
torch.backends.cuda.enable_flash_sdp(True)
torch.set_warn_always(False)
torch.__future__.set_overwrite_module_params_on_conversion(False)
os.environ.pop("SOUNDNESS", None)
sys.setrecursionlimit(1000)
""",
)

world(
    "equal_objects",
    """
def made(s): return "".join(list(s))
s, k, t = "ab", "ab", made("ab")
n, m, j = 10**9, 10**9, int("1000000000")
f, g, h = 2.5, float("2.5"), 0.5
b, c = b"bytes", bytes(list(b"bytes"))
class O: pass
o = O(); o.s, o.n, o.small = s, n, 7
d = {"s": s, "n": n, 1: k}
""",
    """
    s is k, s is t, k is t, t is not s
    s is "ab", t is "ab", "ab" is k
    o.s is s, o.s is t, d["s"] is o.s, d[1] is not k
    n is m, n is j, o.n is n, m is d["n"], n is 1000000000
    o.small is 7, o.small is 3 + 4, len(s) is 2, n is None
    f is g, f is f, g is not h
    b is c, b is b, b is b"bytes"
    s[:] is s, s[:] is k, s[0] is "a", s + "" is s, str(t) is t
    n + 1 is n + 1, n + 0 is n, int(n) is n, n * 2 is m * 2
    [x is s for x in (s, k, t)], (s, n) is (s, n)
    (lambda a, b: a is b)(s, t), (lambda a, b: a is not b)(n, m)
    """,
    """
    s = t
    k = made("ab")
    t = s
    s = k = t = made("ab")
    o.s = made("ab")
    d["s"] = made("ab")
    d[1] = t
    n = int("1000000000")
    m = j
    j = n
    o.n = j
    n = m = 5
    d["n"] = int("1000000000")
    o.small = int("7")
    o.small = 8
    f = g
    f = float("2.5")
    g = h = f
    b = c
    c = b
    """,
)
