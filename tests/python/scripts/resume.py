# Save and resume: model, optimizer, schedule, scaler and random states, in a file that another machine can read; the resumed run goes on as the first did.
import sys
from pathlib import Path

import torch
import torch.nn as nn

device = torch.device("cuda", torch.cuda.current_device())
file = Path(sys.argv[1]) / "checkpoint.pt"


def make():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 1)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)


def run(model, optimizer, schedule, steps):
    losses = []
    for step in steps:
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step)).pin_memory().to(device, non_blocking=True)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses


parts = make()
run(*parts, range(5))
torch.save(
    {
        "model": parts[0].state_dict(),
        "optimizer": parts[1].state_dict(),
        "schedule": parts[2].state_dict(),
        "rng": torch.get_rng_state(),
        "cuda_rng": torch.cuda.get_rng_state_all(),
    },
    file,
)
expected = run(*parts, range(5, 10))

torch.cuda.manual_seed_all(99)
parts = make()
state = torch.load(file, map_location=device)
for part, name in zip(parts, ("model", "optimizer", "schedule"), strict=True):
    part.load_state_dict(state[name])
torch.set_rng_state(state["rng"].cpu())
torch.cuda.set_rng_state_all([rng.cpu() for rng in state["cuda_rng"]])
assert run(*parts, range(5, 10)) == expected, "the resumed run differs"

elsewhere = torch.load(file, map_location="cpu", weights_only=True)
assert {t.device.type for t in elsewhere["model"].values()} == {"cpu"}
print("done")
