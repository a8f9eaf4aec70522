"""The ``Trainer`` of transformers with a compiled model.

Run it with: python examples/libraries/transformers_trainer.py
It needs accelerate: python -m pip install accelerate
"""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import torchmux

sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
data = [{"input_ids": torch.arange(6) + i, "labels": i % 2} for i in range(8)]


def trained(compile):
    """The model after two steps."""
    torch.manual_seed(0)
    model = compile(BertForSequenceClassification(BertConfig(vocab_size=50, **sizes)))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=2, per_device_train_batch_size=4, report_to=[], save_strategy="no", use_cpu=True,
            disable_tqdm=True,
        )  # fmt: skip
        Trainer(model=model, args=arguments, train_dataset=data).train()
    return model


compiled = trained(lambda model: torchmux.compile(model))
eager = trained(lambda model: model)
for ours, theirs in zip(compiled.parameters(), eager.parameters(), strict=True):
    torch.testing.assert_close(ours, theirs)
report = torchmux.report(compiled)
assert report.graphs[0].report.phase == "training"
print(report)
