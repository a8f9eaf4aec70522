"""The C interface of a shared object: its header, and the functions that are called from outside."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from torchmux.backends.native import faults
from torchmux.backends.native.targets.standalone.host import DTYPES, MOST_DIMENSIONS
from torchmux.quoting import quoted
from torchmux.version import __version__

_TENSOR = f"""\
#ifndef TORCHMUX_TENSOR
#define TORCHMUX_TENSOR
enum {{
  {", ".join(f"TORCHMUX_{str(dtype).removeprefix('torch.').upper()} = {n}" for dtype, n in DTYPES.items())}
}};
/* The last dimension varies fastest, and there are no gaps between elements. */
typedef struct {{
  void* data;
  int32_t dtype; /* TORCHMUX_FLOAT32 and so on */
  int32_t rank; /* the number of dimensions, at most {MOST_DIMENSIONS} */
  int64_t sizes[{MOST_DIMENSIONS}];
}} torchmux_tensor;
#endif
"""


@dataclass(frozen=True)
class Input:
    """A tensor that a call passes; None among ``sizes`` is any."""

    name: str
    dtype: torch.dtype
    sizes: tuple[int | None, ...]


@dataclass(frozen=True)
class Alternative:
    """What runs a call whose inputs pass ``conditions``, pairs of C++ and words; ``code`` is the namespace ``name``."""

    name: str
    inputs: tuple[Input, ...]
    outputs: int
    conditions: tuple[tuple[str, str], ...]
    code: str
    result: str
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class Stored:
    """The weights in safetensors' format: the bytes, where each tensor begins, and how long the head is."""

    content: bytes
    offsets: tuple[int, ...]
    head: int


def header(name: str, entries: Sequence[Alternative], *, inside: bool) -> str:
    """The header, for C and C++."""
    weights = (
        "weights: NULL for those in this object, or a file of the same tensors in safetensors' format."
        if inside
        else "weights: the file that was written beside this object, or one of the same tensors."
    )
    upper = name.upper()
    described = "\n".join(f" * {line}" for line in _described(entries))
    return f"""\
/* {name}: written by torchmux {__version__}. Link with the shared object; it needs neither Python nor torch.
 *
{described}
 */
#ifndef TORCHMUX_MODEL_{upper}
#define TORCHMUX_MODEL_{upper}
#include <stdint.h>

{_TENSOR}
#ifdef __cplusplus
extern "C" {{
#endif

enum {{ {upper}_INPUTS = {len(entries[0].inputs)}, {upper}_OUTPUTS = {entries[0].outputs} }};
typedef struct {name}_model {name}_model;

/* {weights}
 * Returns NULL on an error. One model may be run by several threads at once. */
{name}_model* {name}_load(const char* weights);

/* Compute all outputs, whose data belongs to the caller, until {name}_free_outputs.
 * Returns 0, or -1 on an error; there are no outputs then. */
int {name}_run(const {name}_model* model, const torchmux_tensor* inputs, torchmux_tensor* outputs);

void {name}_free_outputs(torchmux_tensor* outputs);
void {name}_unload({name}_model* model);

/* What the last error in this thread was. */
const char* {name}_error(void);

#ifdef __cplusplus
}}
#endif
#endif
"""


def _described(entries: Sequence[Alternative]) -> list[str]:
    lines: list[str] = []
    for number, entry in enumerate(entries):
        lines.append("Inputs:" if number == 0 else "or:")
        for at, each in enumerate(entry.inputs):
            sizes = ", ".join("any" if s is None else str(s) for s in each.sizes)
            lines.append(f"  inputs[{at}]  {quoted(each.name)}: {str(each.dtype).removeprefix('torch.')} [{sizes}]")
        lines += [f"  where {quoted(words)}" for _, words in entry.conditions]
        lines += [f"  for {quoted(words)}" for words in entry.fixed]
    lines.append(f"Outputs: out0 to out{entries[0].outputs - 1}. The program made of them:")
    lines += [f"  {line}" for line in textwrap.wrap(quoted(entries[-1].result), 100)]
    return [line.replace("*/", "* /") for line in lines]


def source(name: str, entries: Sequence[Alternative], stored: Stored, *, inside: bool) -> str:
    """The C++ of the whole object."""
    words = ", ".join(json.dumps(text) for _, text in faults.FAULTS.values())
    parts = [
        header(name, entries, inside=inside),
        '#include "standalone.h"',
        "#include <fcntl.h>\n#include <sys/mman.h>\n#include <sys/stat.h>\n#include <unistd.h>",
        f"static const char* const FAULTS[] = {{{words}}};",
        f"enum {{ OUTPUTS = {entries[0].outputs} }};",
        f"static const i64 AT[] = {{{', '.join(map(str, stored.offsets)) or '0'}}};",
        *(f"{entry.code}{_check(number, entry)}" for number, entry in enumerate(entries)),
        _functions(name, entries, stored, inside=inside),
    ]
    return "\n".join(parts)


def _check(number: int, entry: Alternative) -> str:
    lines = [f"static int check{number}(const torchmux_tensor* in) {{"]
    for at, each in enumerate(entry.inputs):
        sizes = ", ".join(str(-1 if s is None else s) for s in each.sizes) or "0"
        words = str(each.dtype).removeprefix("torch.")
        lines.append(
            f"  if (check_tensor(in[{at}], {json.dumps(quoted(each.name))}, {DTYPES[each.dtype]}, "
            f'"{words}", {len(each.sizes)}, (const i64[]){{{sizes}}})) return -1;'
        )
    for text, words in entry.conditions:
        lines.append(f"  if (!({text})) return fail({json.dumps('this program needs ' + quoted(words))});")
    return "\n".join([*lines, "  return 0;", "}", ""])


def _functions(name: str, entries: Sequence[Alternative], stored: Stored, *, inside: bool) -> str:
    from torchmux.backends.native.targets.standalone.build import WEIGHTS

    digest = _digest(stored.content[: stored.head])
    size = len(stored.content)
    tries = "\n".join(
        f"  if (!check{n}(inputs)) return {entry.name}::run(inputs, model->weights, outputs);"
        for n, entry in enumerate(entries)
    )
    held = f'extern "C" const char {WEIGHTS}[];\n' if inside else ""
    own = (
        f"  if (!weights) {{ model->weights = {WEIGHTS}; return model; }}\n"
        if inside
        else '  if (!weights) { free(model); fail("there is no file of weights"); return nullptr; }\n'
    )
    return f"""{held}
#define SHOWN extern "C" __attribute__((visibility("default")))
struct {name}_model {{ const char* weights; void* mapped; }};
SHOWN const char* {name}_error(void) {{ return told; }}
SHOWN {name}_model* {name}_load(const char* weights) {{
  if (const char* instruction = lacking()) {{
    snprintf(told, sizeof told, "this processor has no %s, which the code was compiled for", instruction);
    return nullptr;
  }}
  auto* model = ({name}_model*)calloc(1, sizeof({name}_model));
  if (!model) {{ fail(OUT_OF_MEMORY); return nullptr; }}
{own}\
  int file = open(weights, O_RDONLY | O_CLOEXEC);
  struct stat about;
  if (file >= 0 && !fstat(file, &about) && about.st_size == {size}) {{
    model->mapped = mmap(nullptr, {size}, PROT_READ, MAP_PRIVATE, file, 0);
    if (model->mapped == MAP_FAILED) model->mapped = nullptr;
  }}
  if (file >= 0) close(file);
  model->weights = (const char*)model->mapped;
  if (!model->mapped || digest_of(model->weights, {stored.head}) != {digest}ul) {{
    snprintf(told, sizeof told, "%.900s cannot be read, or does not have the tensors of this program", weights);
    if (model->mapped) munmap(model->mapped, {size});
    free(model);
    return nullptr;
  }}
  return model;
}}
SHOWN int {name}_run(const {name}_model* model, const torchmux_tensor* inputs, torchmux_tensor* outputs) {{
  for (int i = 0; i < OUTPUTS; i++) outputs[i] = torchmux_tensor();
{tries}
  return -1;
}}
SHOWN void {name}_free_outputs(torchmux_tensor* outputs) {{
  for (int i = 0; i < OUTPUTS; i++) free(outputs[i].data), outputs[i] = torchmux_tensor();
}}
SHOWN void {name}_unload({name}_model* model) {{
  if (model && model->mapped) munmap(model->mapped, {size});
  free(model);
}}
"""


def _digest(content: bytes) -> int:
    """FNV-1a of 64 bits, as in ``standalone.h``."""
    found = 0xCBF29CE484222325
    for byte in content:
        found = ((found ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return found
