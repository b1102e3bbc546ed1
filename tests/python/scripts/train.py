# An ordinary training script of a torch.cuda user: loader workers, pinned memory, mixed precision, timing, memory figures.
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, Dataset

assert torch.cuda.is_available()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
random.seed(0), np.random.seed(0), torch.manual_seed(0), torch.cuda.manual_seed_all(0)
print("device:", torch.cuda.get_device_name(0), torch.cuda.get_device_properties(device).total_memory >> 20, "MB")
torch.backends.cuda.matmul.allow_tf32 = True


class Stripes(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        label = i % 4
        image = torch.zeros(1, 12, 12)
        image[:, label * 3 : label * 3 + 3] = 1
        return image + 0.3 * torch.randn(1, 12, 12, generator=generator), label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Linear(8 * 36, 4)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        return self.head(self.drop(x.flatten(1)))


def main():
    loader = DataLoader(Stripes(), batch_size=32, shuffle=True, num_workers=2, pin_memory=True, persistent_workers=True, drop_last=True)
    model = Net().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=3 * len(loader))
    scaler = GradScaler()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    side = torch.cuda.Stream()
    torch.cuda.reset_peak_memory_stats()
    for epoch in range(3):
        model.train()
        start.record()
        right = torch.zeros((), device=device)
        for images, labels in loader:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                images = images.cuda(non_blocking=True)
                labels = labels.to(device, non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            images.record_stream(torch.cuda.current_stream())
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                logits = model(images)
                loss = F.cross_entropy(logits, labels)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            right += (logits.argmax(1) == labels).sum()
        end.record()
        torch.cuda.synchronize()
        print(f"epoch {epoch}: loss {loss.item():.4f}, accuracy {right.item() / 256:.3f}, {start.elapsed_time(end):.1f} ms, {torch.cuda.max_memory_allocated() >> 10} KB")
    model.eval()
    with torch.no_grad():
        images = torch.stack([Stripes()[i][0] for i in range(16)]).cuda()
        assert model(images).argmax(1).cpu().tolist() == [i % 4 for i in range(16)]
        assert model(images).argmax(1).cpu().numpy().shape == (16,)
    torch.cuda.empty_cache()
    print("done")


if __name__ == "__main__":
    main()
