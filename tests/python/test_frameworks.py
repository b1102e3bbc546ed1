"""Hugging Face Accelerate and Trainer, and Lightning, by their own extension points: a tiny training each, on tern and native. Skipped where the package is missing."""
import os
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

TRAINER = """
    import tempfile, torch, transformers as tf
    torch.manual_seed(0)
    config = tf.BertConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    rows = [{"input_ids": torch.randint(3, 64, (8,)), "labels": torch.tensor(i % 2)} for i in range(8)]
    with tempfile.TemporaryDirectory() as folder:
        options = tf.TrainingArguments(folder, per_device_train_batch_size=4, max_steps=4, report_to=[], save_strategy="no", disable_tqdm=True)
        trainer = tf.Trainer(tf.BertForSequenceClassification(config), options, train_dataset=rows)
        loss = trainer.train().training_loss
        assert {p.device.type for p in trainer.model.parameters()} == {"tern"} and 0 < loss < 1, loss
"""
ACCELERATE = """
    import torch
    from accelerate import Accelerator
    torch.manual_seed(0)
    x = torch.randn(32, 4)
    data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))
    accelerator = Accelerator()
    model = torch.nn.Linear(4, 3)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 0.05), torch.utils.data.DataLoader(data, 8))
    losses = []
    for _ in range(5):
        for x, y in loader:
            assert x.device.type == "tern"
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
    assert accelerator.device.type == "tern" and sum(losses[-4:]) < sum(losses[:4])
"""


@pytest.mark.parametrize("package, script", [("accelerate", ACCELERATE), ("transformers", TRAINER)])
def test_accelerate(package, script):
    """Accelerate, and with it the Trainer, takes the device of ACCELERATE_TORCH_DEVICE."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    env = {**os.environ, "ACCELERATE_TORCH_DEVICE": "tern", "HF_HUB_OFFLINE": "1", "TERN_FALLBACK": "error"}
    run = subprocess.run([sys.executable, "-c", "import torch_tern\n" + textwrap.dedent(script)], env=env, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-2000:]


def test_lightning():
    lightning = pytest.importorskip("lightning", reason="lightning is not installed")
    import torch_tern.lightning  # noqa: F401  registers the accelerator

    devices, losses = set(), []

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def training_step(self, batch, index):
            devices.update((batch[0].device.type, self.device.type))
            losses.append(F.cross_entropy(self.layer(batch[0]), batch[1]))
            return losses[-1]

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), 0.05)

    torch.manual_seed(0)
    x = torch.randn(32, 4)
    data = torch.utils.data.TensorDataset(x, x[:, :3].argmax(1))
    trainer = lightning.Trainer(accelerator="tern", strategy="single_tern", devices=1, max_epochs=3, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(Model(), torch.utils.data.DataLoader(data, 8))
    assert devices == {"tern"} and sum(losses[-4:]).item() < sum(losses[:4]).item()
