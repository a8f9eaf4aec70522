"""The ``Trainer`` of lightning: the steps of a compiled ``LightningModule`` are compiled like ``forward``.

Run it with: python examples/libraries/lightning_trainer.py
It needs lightning: python -m pip install lightning
"""

import lightning
import torch
from torch import nn

import torchmux


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2))

    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


torch.manual_seed(0)
pairs = torch.utils.data.TensorDataset(torch.randn(8, 8), torch.arange(8) % 2)
data = torch.utils.data.DataLoader(pairs, batch_size=4)

model = torchmux.compile(Classifier())
quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet).fit(model, data)

report = torchmux.report(model)
assert any(each.compiled and each.function.endswith("training_step") for each in report.calls)
print(report)
