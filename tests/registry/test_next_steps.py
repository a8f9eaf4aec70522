"""Errors name the command that goes on from them, in the message or in a note, and these commands exist."""

from __future__ import annotations

import re
import shlex

import pytest
import torch

import torchmux
from torchmux.cli.main import main, parser

WITH_STEP = [
    each
    for name in torchmux.__all__
    if isinstance(each := getattr(torchmux, name), type) and issubclass(each, torchmux.TorchmuxError) and each.next_step
]


def test_each_step_is_a_command_that_can_be_parsed():
    assert len(WITH_STEP) >= 9
    for each in WITH_STEP:
        (command,) = re.findall(r"`python -m torchmux ([^`]*)`", each.next_step)
        parser().parse_args(shlex.split(command.replace("SHAPE", "2x3")))


def test_a_message_with_a_command_gets_no_other():
    assert torchmux.UnknownBackend("x").__notes__ == [torchmux.UnknownBackend.next_step]
    assert not hasattr(torchmux.UnknownBackend("x: python -m torchmux backends"), "__notes__")


def relu_alone(gm, example_inputs):
    raise torchmux.GraphRefused("it takes nothing")


def wrong(gm, example_inputs):
    return lambda *inputs: tuple(result + 1 for result in gm.forward(*inputs))


def fails(gm, example_inputs):
    raise ValueError("a defect")


def branches(x):
    return x + 1 if x.sum() > 0 else x


@pytest.mark.parametrize(
    ("command", "cause"),
    [
        ("backends", lambda: torchmux.compile(torch.sin, backend="nativ")),
        ("backends", lambda: torchmux.compile(torch.sin, backend="onnxrt", options={"threads": "many"})),
        ("doctor", lambda: torchmux.compile(torch.sin, backend="tensorrt")),
        ("breaks", lambda: torchmux.compile(branches, backend="eager", fullgraph=True)(torch.ones(2))),
        ("explain", lambda: torchmux.compile(torch.sin, backend=relu_alone, strict=True)(torch.ones(2))),
        ("minify", lambda: torchmux.compile(torch.sin, backend=fails, strict=True)(torch.ones(2))),
        ("bisect", lambda: torchmux.compile(torch.sin, backend=wrong)(torch.ones(2))),
    ],
)
def test_what_users_see_names_a_command(command, cause):
    with torchmux.config.patch(verify_correctness=True), pytest.raises(torchmux.TorchmuxError) as caught:
        cause()
    told = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert f"python -m torchmux {command}" in told, told


def test_a_command_prints_the_step_in_its_line(capsys):
    assert main(["bisect", "math:floor", "--backend", "tensorrt"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("torchmux: ") and "python -m torchmux doctor" in line
