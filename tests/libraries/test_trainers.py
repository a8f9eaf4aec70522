"""Trainers take what ``torchmux.compile`` returns, and train it as they train the original."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchmux

pytestmark = pytest.mark.libraries

X, Y = torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(8) % 2


def same_weights(train):
    """Whether training ends with the same weights in eager and compiled; the compiled module."""
    ends = []
    for compile in (lambda module: module, lambda module: torchmux.compile(module, backend="aot_eager")):
        torch.manual_seed(1)
        model = train(compile)
        ends.append([p.detach().clone() for p in model.parameters()])
    assert all(map(torch.equal, *ends))
    assert torchmux.report(model).graph_count
    return model


def test_lightning():
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(8, 2)

        def training_step(self, batch, index):
            loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def validation_step(self, batch, index):
            self.log("validation", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, Y), batch_size=4)
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)

    def train(compile):
        model = compile(Module())
        lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet).fit(model, data, data)
        return model

    report = torchmux.report(same_weights(train))
    assert {call.function for call in report.calls if call.compiled} >= {
        "test_lightning.<locals>.Module.training_step", "test_lightning.<locals>.Module.validation_step"
    }  # fmt: skip


def test_accelerate():
    accelerate = pytest.importorskip("accelerate")

    def train(compile):
        accelerator = accelerate.Accelerator(cpu=True)
        module = compile(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2)))
        model, optimizer = accelerator.prepare(module, torch.optim.SGD(module.parameters(), 0.1))
        for _ in range(3):
            accelerator.backward(nn.functional.cross_entropy(model(X), Y))
            optimizer.step()
            optimizer.zero_grad()
        return model

    same_weights(train)


def test_trainer_of_transformers(tmp_path):
    pytest.importorskip("accelerate")
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    data = [{"input_ids": torch.arange(6) + i, "labels": i % 2} for i in range(8)]

    def train(compile):
        model = compile(BertForSequenceClassification(BertConfig(vocab_size=50, **sizes)))
        arguments = TrainingArguments(
            str(tmp_path), max_steps=2, per_device_train_batch_size=4, report_to=[], save_strategy="no", use_cpu=True,
            disable_tqdm=True,
        )  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=data).train()
        return model

    same_weights(train)
