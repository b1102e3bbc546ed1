"""Train a small character-level GPT on the source text of Python's standard library.

An ordinary PyTorch script: it runs on whatever accelerator PyTorch finds, else on the CPU.
"""

import argparse
import json
import pathlib
import sysconfig
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).split(width, 2))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class CharGPT(nn.Module):
    def __init__(self, vocabulary, length, width=128, heads=4, layers=3):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        return self.head(self.norm(self.blocks(x)))


def load():
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    text = "".join(path.read_text(errors="ignore") for path in sorted(folder.glob("*.py"))[:60])
    characters = sorted(set(text) & set(map(chr, range(9, 127))))
    known = {c: i for i, c in enumerate(characters)}
    return torch.tensor([known[c] for c in text if c in known]), len(characters)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--out", help="write losses and times to this JSON file")
    args = parser.parse_args()

    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    wait = torch.accelerator.synchronize if device.type != "cpu" else lambda: None
    torch.manual_seed(0)
    text, vocabulary = load()
    model = CharGPT(vocabulary, args.length).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    losses, times, every = [], [], 25
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        at = torch.randint(len(text) - args.length - 1, (args.batch,))
        window = torch.stack([text[i : i + args.length + 1] for i in at]).to(device)
        optimizer.zero_grad()
        logits = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        if step % every == 0:
            wait()
            times.append((time.perf_counter() - start) / every)
            print(f"step {step:4}/{args.steps}  loss {loss.item():.4f}  {times[-1] * 1e3:.2f} ms/step", flush=True)
            start = time.perf_counter()
    final = torch.stack(losses[-25:]).mean().item()
    print(f"final loss {final:.4f} on {device}")
    if args.out:
        with open(args.out, "w") as file:
            json.dump({"losses": torch.stack(losses).tolist(), "final_loss": final, "seconds_per_step": times}, file)


if __name__ == "__main__":
    main()
