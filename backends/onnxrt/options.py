"""The options of the onnxrt backend, with onnxruntime's own names where it has them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from torchmux.registry.errors import InvalidOption
from torchmux.registry.names import did_you_mean, listed

from ..common.adapter.options import check_option, freeze_option

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@dataclass(frozen=True)
class OnnxrtOptions:
    """How sessions are created.

    Without ``freeze``, parameters are inputs of every call.  Changes to them take effect, but onnxruntime cannot pack
    them.  This costs about 7% on BERT-base (batch 1, 128 tokens, 2 cores: 107 ms a call, 99 ms frozen, 99 ms exported
    by hand).

    Raises:
        InvalidOption: the installed onnxruntime does not have a provider, or a number of threads is negative.
    """

    providers: tuple[str | tuple[str, dict[str, Any]], ...] | None = field(
        default=None,
        metadata={
            "help": "execution providers, preferred first; each must be available, and is a name or a pair of a name "
            "and the provider's own options. Nodes go to the CPU only if "
            "CPUExecutionProvider is listed. None: CPUExecutionProvider, preceded by CUDAExecutionProvider for tensors "
            "on a GPU"
        },
    )
    graph_optimization_level: Literal["disabled", "basic", "extended", "all"] = field(
        default="all", metadata={"help": "how far onnxruntime rewrites the graph"}
    )
    intra_op_num_threads: int | None = field(
        default=None, metadata={"help": "threads within an operator; None: torch.get_num_threads() at compile time"}
    )
    inter_op_num_threads: int = field(
        default=1, metadata={"help": "operators that run at the same time; more than 1 turns on parallel execution"}
    )
    enable_profiling: bool = field(
        default=False,
        metadata={"help": "have onnxruntime time each of its nodes; torchmux.artifacts has the profile as a file"},
    )
    session_options: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "further attributes of onnxruntime.SessionOptions, such as enable_cpu_mem_arena"},
    )
    session_config_entries: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "what SessionOptions.add_session_config_entry takes, such as session.intra_op.allow_spinning"
        },
    )
    freeze: bool = freeze_option("so that onnxruntime packs and folds them")

    check: bool = check_option("model", "operators that the exporter translates incorrectly go to torch")

    def __post_init__(self) -> None:
        for name in ("intra_op_num_threads", "inter_op_num_threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidOption(f"The option {name!r} of onnxrt must be at least 1, not {value}.")
        if self.providers is not None:
            if not self.providers:
                raise InvalidOption(f"The option 'providers' of onnxrt needs at least one name, such as {CPU!r}.")
            _check_providers(self.provider_names)
        if self.session_options:
            _check_session_options(self.session_options)

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The providers without their options."""
        return tuple(each if isinstance(each, str) else each[0] for each in self.providers or ())

    def options_of(self, provider: str) -> dict[str, Any]:
        """The options that a provider gets."""
        found = [each[1] for each in self.providers or () if not isinstance(each, str) and each[0] == provider]
        return dict(found[0]) if found else {}


_ELSEWHERE = ("graph_optimization_level", "intra_op_num_threads", "inter_op_num_threads", "enable_profiling")


def _check_session_options(given: dict[str, Any]) -> None:
    import onnxruntime

    known = [n for n, a in vars(onnxruntime.SessionOptions).items() if isinstance(a, property)]
    for name, value in given.items():
        if name in _ELSEWHERE or name == "execution_mode":
            option = "inter_op_num_threads" if name == "execution_mode" else name
            raise InvalidOption(f"Set the option {option!r} of onnxrt instead of {name!r} in 'session_options'.")
        if name not in known:
            raise InvalidOption(f"onnxruntime.SessionOptions has no attribute {name!r}.{did_you_mean(name, known)}")
        if not isinstance(value, (bool, int, float, str)):
            raise InvalidOption(f"{name!r} in 'session_options' of onnxrt is a number, a string or a bool: {value!r}.")
        try:
            setattr(onnxruntime.SessionOptions(), name, value)
        except TypeError:
            raise InvalidOption(f"onnxruntime does not take {value!r} for SessionOptions.{name}.") from None


def _check_providers(providers: tuple[str, ...]) -> None:
    import onnxruntime

    available = onnxruntime.get_available_providers()
    for name in providers:
        if name not in available:
            raise InvalidOption(
                f"The installed onnxruntime {onnxruntime.__version__} has no provider {name!r}."
                f"{did_you_mean(name, available)} It has {listed(available)}; other builds of onnxruntime have others."
            )
