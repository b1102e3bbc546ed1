"""Train a small convolutional network on scikit-learn's handwritten digits (8x8 pixels).

An ordinary PyTorch script: it runs on whatever accelerator PyTorch finds, else on the CPU.
"""

import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class DigitsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        )
        self.classify = nn.Linear(128, 10)

    def forward(self, x):
        return self.classify(self.features(x).flatten(1))


def load(device):
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    x, y = x[order], y[order]
    return (x[:1437].to(device), y[:1437].to(device)), (x[1437:].to(device), y[1437:].to(device))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--out", help="write losses, accuracy and times to this JSON file")
    args = parser.parse_args()

    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    wait = torch.accelerator.synchronize if device.type != "cpu" else lambda: None
    torch.manual_seed(0)
    (x, y), (x_test, y_test) = load(device)
    model = DigitsNet().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    losses, times = [], []
    steps_per_epoch = len(x) // args.batch
    for epoch in range(args.epochs):
        order = torch.randperm(len(x)).to(device)
        start = time.perf_counter()
        for step in range(steps_per_epoch):
            batch = order[step * args.batch : (step + 1) * args.batch]
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x[batch]), y[batch])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        wait()
        times.append((time.perf_counter() - start) / steps_per_epoch)
        print(f"epoch {epoch + 1:2}/{args.epochs}  loss {losses[-1].item():.4f}  {times[-1] * 1e3:.2f} ms/step", flush=True)

    model.eval()
    with torch.no_grad():
        accuracy = (model(x_test).argmax(1) == y_test).float().mean().item()
    print(f"test accuracy {accuracy:.2%} on {device}")
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"losses": torch.stack(losses).tolist(), "accuracy": accuracy, "seconds_per_step": times}, file)


if __name__ == "__main__":
    main()
