"""Architectures of transformers through the frontend: eager's bits and gradients, and how many graphs it takes."""

from __future__ import annotations

import copy
import importlib.metadata
from pathlib import Path

import pytest
import torch

import torchmux
from torchmux.zoo import ARCHITECTURES
from torchmux.zoo.compare import difference, run, train

# The default run takes these, the slow one all.
QUICK = (
    "bloom", "clip", "deberta-v2", "gpt_neo", "mamba2", "mixtral", "moonshine", "qwen3", "roberta", "swin", "t5",
    "whisper",
)  # fmt: skip
# The first loss of a classifier writes what kind of problem it has into its configuration, so the next step differs.
CLASSIFIERS = (
    "canine", "vit", "deit", "beit", "data2vec-vision", "dinov2", "ijepa", "swin", "swinv2", "convnext", "convnextv2",
    "resnet", "regnet", "bit", "mobilenet_v1", "mobilenet_v2", "mobilevit", "mobilevitv2", "efficientnet", "poolformer",
    "pvt", "pvt_v2", "cvt", "focalnet", "hiera", "timesformer", "vivit", "audio-spectrogram-transformer",
)  # fmt: skip
# The graphs are counted with the version of transformers that constraints.txt names: older ones script functions of
# deberta-v2 with torch.jit, and ask a random tensor in whisper whether to drop a layer, which breaks the graph.
COUNTED = f"transformers=={importlib.metadata.version('transformers')}" in (
    Path(__file__).parents[2].joinpath("constraints.txt").read_text().split()
)
# At most so many graphs for two equal calls in inference, and for two steps of training, where it is not one: what
# branches or takes shapes from data, logs, or changes itself (docs/models.md).
GRAPHS = dict.fromkeys(CLASSIFIERS, (1, 2)) | {
    "autoformer": (1, 11), "clipseg": (4, 1), "ctrl": (1, 2), "data2vec-audio": (1, 7), "dbrx": (9, 9),
    "dpt": (2, 1), "encodec": (27, 28), "fsmt": (1, 4), "gpt2": (1, 2),
    "hubert": (1, 7), "ibert": (1, 21), "idefics3": (6, 6), "informer": (1, 9), "jetmoe": (16, 16), "led": (4, 4),
    "levit": (2, 2), "llava": (6, 1), "longformer": (4, 4), "m2m_100": (1, 7), "nllb_moe": (16, 19),
    "openai-gpt": (1, 2), "rwkv": (2, 2), "segformer": (2, 1), "sew": (1, 7),
    "superpoint": (7, 7), "switch_transformers": (19, 19), "time_series_transformer": (1, 9), "unispeech-sat": (1, 7),
    "videomae": (7, 7), "vilt": (13, 13), "vits": (11, 16), "wav2vec2": (1, 7), "wav2vec2-bert": (1, 4),
    "wavlm": (1, 7), "xlm": (5, 5),
}  # fmt: skip
# Models that compute otherwise while they are compiled, under torch's own frontend as under this one.
OTHERWISE = ("falcon_mamba", "jamba", "mamba", "paligemma")

slow = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in ARCHITECTURES]


def compiled_by_torch(model):
    torch._dynamo.reset()
    return torch.compile(model, backend="eager")


@pytest.mark.parametrize("name", slow)
def test_inference(name):
    entry = ARCHITECTURES[name]
    model = entry.build()
    inputs = entry.example(model)
    expected = run(compiled_by_torch(model) if name in OTHERWISE else model, inputs)
    compiled = torchmux.compile(model, backend="eager")
    for _ in range(2):
        assert not difference(run(compiled, inputs), expected)
    _check_graphs(compiled, GRAPHS.get(name, (1, 1))[0])


@pytest.mark.parametrize("name", slow)
def test_training(name):
    entry = ARCHITECTURES[name]
    if not entry.trains:
        pytest.skip("does not train in eager either")
    model = entry.build().train()
    twin = copy.deepcopy(model)
    inputs = entry.example_with_targets(model)
    compiled, other = torchmux.compile(model, backend="eager"), twin
    if name in OTHERWISE:
        other = compiled_by_torch(twin)
    for _ in range(2):
        assert not difference(train(model, compiled, inputs), train(twin, other, inputs))
    _check_graphs(compiled, GRAPHS.get(name, (1, 1))[1])


def _check_graphs(compiled, most):
    report = torchmux.report(compiled)
    assert report.graph_count
    if not COUNTED:
        return
    assert report.graph_count <= most, report
    if most == 1:
        assert report.graph_count == 1
        assert not report.breaks
