"""The boundary between the compiler and the machines that it compiles for.

The compiler rewrites and lowers a graph, fuses kernels, and plans the host side; that is the same for every target.  A
:class:`Target` does the rest, in the order in which a graph passes:

1. ``lacks``, ``attends``, ``finishes_convolutions``, ``takes_matrix``, ``computes_operand``, ``order_of_images``,
   ``padded_strides`` and the rest of :class:`~..ir.forms.Forms` are asked while the graph is rewritten and lowered:
   which abstract operations the target takes, and in what form.
2. ``select`` goes over the finished program and decides who computes each abstract ``Product``, ``Convolution`` and
   ``Attention`` (:mod:`~..ir.products`).  Whatever is measured or packed is measured and packed here or when the code
   is loaded, never before.
3. ``plan_loops`` arranges the loops of each fused kernel.
4. ``assemble`` prints kernels, and the Python function that runs the graph; :mod:`.host` prints that from the neutral
   steps of :mod:`~..schedule.host`.
5. ``build`` makes of the code what is kept in the artifact cache.
6. A function beside the class (:data:`.loaded.Loader`) makes of that what the Python function calls: a process that
   finds an artifact needs no more of the target.

A target has no state: what belongs to a graph is in the program, the schedule and the module, and several threads may
compile at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch

from ..ir.expressions import Buffer
from ..ir.forms import Forms
from ..ir.index import Index
from ..ir.program import Call, Program
from ..ir.values import Value
from ..options import NativeOptions
from ..schedule import stages
from ..schedule.kernel import Kernel
from ..schedule.schedule import Schedule
from ..schedule.stages import LoopNest


@dataclass(frozen=True)
class Text:
    """Code of a graph for a reader: ``make`` makes it, ``needs`` says what else a program needs to run it, and what
    ``is_linked`` has become a shared object."""

    kind: str
    suffix: str
    make: Callable[[], str]
    needs: str = ""
    is_linked: bool = False


@dataclass
class Module:
    """A graph as code.

    ``python`` defines ``run``, a function of the graph's flat inputs.  ``code`` is what else there is to read, in the
    language whose files end in ``suffix``; it is empty if no kernel is left.  ``constants`` are the graph's attributes
    that the code uses, as ``python`` names them in ``names``.  ``calls`` names the calls of torch's operators.
    ``timers`` are the steps whose time ``Loaded.take_times`` says.  ``own`` is whatever else the loader needs, in
    terms that JSON has; ``parts`` is whatever else ``build`` needs, and is not kept.
    """

    python: str
    code: str
    suffix: str
    constants: list[str]
    names: list[str]
    calls: list[str] = field(default_factory=list)
    timers: list[str] = field(default_factory=list)
    own: dict[str, Any] = field(default_factory=dict)
    parts: Any = None


class Target(ABC, Forms):
    """A kind of machine, and how code for it is made; see the module for who asks what, and when.

    ``name`` stands in artifacts, ``device_type`` is torch's name of the devices.  A kernel
    keeps up to ``scratch_bytes`` of a row between its passes.
    """

    name: ClassVar[str]
    device_type: ClassVar[str]
    scratch_bytes: ClassVar[int] = 64 * 1024

    # --- forms: what a target without wishes says -----------------------------------------------------------------

    def lacks(self) -> Mapping[str, str]:
        return {}

    def takes_matrix(self, matrix: Value) -> bool:
        return True

    def is_thin(self, left: Value, right: Value) -> bool:
        return False

    def computes_operand(self, left: Value, right: Value) -> bool:
        return False

    def padded_strides(self, matrix: Value) -> tuple[Index, ...] | None:
        return None

    def row_unit(self, left: Value, right: Value) -> int:
        return 1

    def chooses_parts(self, parts: Sequence[Value]) -> bool:
        return False

    def order_of_images(
        self, images: Value, weight: Value, stride: Sequence[int], transposed: bool, groups: int
    ) -> Literal["usual", "channels last"] | None:
        return None

    def differentiates_by_channels(self, weight: Value, groups: int) -> bool:
        return False

    def orders_weights(self) -> bool:
        return False

    def trains_in_channels_last(self, images: torch.Tensor) -> bool:
        return False

    @abstractmethod
    def texts(self, code: str, own: Mapping[str, Any]) -> list[Text]:
        """What a reader gets of a module whose ``code`` is not empty, from the source down."""

    def shifts_convolutions(self) -> bool:
        return False

    def filters(self, taps: int) -> bool:
        return False

    def multiplies_windows(self, images: Value, weight: Value, transposed: bool) -> bool:
        return False

    def writes_windows_in_pieces(self) -> bool:
        return False

    def interpolates_at_once(self) -> bool:
        return False

    def sums_squares_widely(self) -> bool:
        return False

    def lacks_float16(self) -> bool:
        """Whether convolutions of float16 are sooner computed in float32."""
        return False

    def finishes_convolutions(self) -> bool:
        return False

    def attends(self, query: torch.Tensor, scores: int) -> bool:
        return False

    def writes_inputs(self) -> bool:
        """Whether graphs may end with writes to their inputs."""
        return False

    # --- from a program to a module -------------------------------------------------------------------------------

    def prepare(self, device: torch.device) -> None:
        """A graph on ``device`` is about to be compiled: whatever takes time to start may start."""

    @abstractmethod
    def select(self, program: Program, options: NativeOptions) -> None:
        """Decide who computes the abstract operations of ``program``, in place.

        Each is replaced by a call of one of torch's operators (:mod:`.torch_calls`), by a step of the target's own, or
        stays, which means that ``assemble`` prints it.  A step has ``reads``, ``writes`` and ``origins``; one that
        derives from the abstract operation is scheduled, drawn and counted as that.
        """

    def plan_loops(self, kernel: Kernel, needed: set[Buffer]) -> LoopNest:
        """Arrange the loops of ``kernel``; ``needed`` are its buffers that something else reads."""
        return stages.plan(kernel, needed, self.scratch_bytes)

    @abstractmethod
    def assemble(self, program: Program, schedule: Schedule, options: NativeOptions, *, timed: bool) -> Module:
        """Print everything; with code that measures each step if ``timed``.

        Raises:
            NodesRefused: the code of some nodes cannot be printed, with the reasons.
        """

    @abstractmethod
    def build(self, module: Module, options: NativeOptions) -> bytes:
        """The built code, which is stored beside the text of the module; may be empty.

        Raises:
            BackendUnavailable: the compiler is missing.
            CompilationFailed: it failed.
        """

    # --- what is said and tuned -----------------------------------------------------------------------------------

    def library_of(self, item: Any) -> str | None:
        """The library kernel that computes an item of a selected program, as reports name it; None for own code."""
        return str(item.op) if isinstance(item, Call) else None

    def hints(self, program: Program, schedule: Schedule, weights: Collection[int]) -> list[str]:
        """This target's hints for ``TORCHMUX_LOGS=perf_hints``; ``weights`` are inputs that could be frozen."""
        return []

    def variants(self, options: NativeOptions) -> list[dict[str, Any]]:
        """Changes of the options that ``max_autotune`` tries besides the neutral ones."""
        return []

    def wait(self) -> None:
        """Return when everything that was launched has run; the clock is read then."""

    # --- around graphs --------------------------------------------------------------------------------------------

    def casting(self, fingerprint: str) -> Callable[[Sequence[torch.Tensor], Sequence[torch.Tensor]], None] | None:
        """What rounds weights for autocast (see :class:`torchmux.registry.contract.BackendExtras`), if this target has
        a kernel for that; ``fingerprint`` is what compiled code depends on."""
        return None
