"""Steps of well-known models, at their real sizes, with random weights and data: what `make tpu-check` compiles for chips that are not here.

An ordinary PyTorch script: `python examples/models.py gpt2` trains a GPT-2-sized model on whatever accelerator PyTorch finds. `tern check --no-values` runs it without
allocating a weight, so that the 7-billion-parameter one can be asked about on a laptop.
"""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    """Self-attention with rotary positions where `rotary`, grouped keys and values where kv_heads < heads."""

    def __init__(self, width, heads, kv_heads, causal, rotary):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.causal, self.rotary = heads, kv_heads, width // heads, causal, rotary
        bias = not rotary
        self.q = nn.Linear(width, width, bias=bias)
        self.kv = nn.Linear(width, 2 * kv_heads * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def rotate(self, x, positions):
        half = self.size // 2
        frequencies = 10000.0 ** (torch.arange(half, device=x.device) / -half)
        angles = positions[:, None] * frequencies
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, x, cache=None, position=None):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = (t.view(batch, length, self.kv_heads, self.size).transpose(1, 2) for t in self.kv(x).chunk(2, -1))
        if self.rotary:
            positions = torch.arange(length, device=x.device) if position is None else position
            q, k = self.rotate(q, positions), self.rotate(k, positions)
        mask, causal = None, self.causal
        if cache is not None:
            cache[0].index_copy_(2, position, k)
            cache[1].index_copy_(2, position, v)
            k, v = cache
            mask, causal = (torch.arange(k.shape[2], device=x.device) <= position)[None, None, None], False
        if self.kv_heads < self.heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-5).to(x.dtype) * self.weight


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, hidden, causal, llama):
        super().__init__()
        norm = RMSNorm if llama else nn.LayerNorm
        self.norm1, self.norm2, self.llama = norm(width), norm(width), llama
        self.attention = Attention(width, heads, kv_heads, causal, rotary=llama)
        self.up, self.down = nn.Linear(width, hidden, bias=not llama), nn.Linear(hidden, width, bias=not llama)
        self.gate = nn.Linear(width, hidden, bias=False) if llama else None

    def forward(self, x, cache=None, position=None):
        x = x + self.attention(self.norm1(x), cache, position)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h) if self.llama else F.gelu(self.up(h)))


class Transformer(nn.Module):
    def __init__(self, vocabulary, length, width, heads, layers, hidden, kv_heads=None, causal=True, llama=False):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.place = None if llama else nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads or heads, hidden, causal, llama) for _ in range(layers))
        self.norm = (RMSNorm if llama else nn.LayerNorm)(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, caches=None, position=None):
        x = self.token(ids)
        if self.place is not None:
            x = x + self.place(torch.arange(ids.shape[1], device=ids.device))
        for number, block in enumerate(self.blocks):
            x = block(x, caches[number] if caches else None, position)
        return self.head(self.norm(x))


class Bottleneck(nn.Module):
    def __init__(self, inner, planes, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inner, planes, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv2, self.bn2 = nn.Conv2d(planes, planes, 3, stride, 1, bias=False), nn.BatchNorm2d(planes)
        self.conv3, self.bn3 = nn.Conv2d(planes, 4 * planes, 1, bias=False), nn.BatchNorm2d(4 * planes)
        change = stride != 1 or inner != 4 * planes
        self.shortcut = nn.Sequential(nn.Conv2d(inner, 4 * planes, 1, stride, bias=False), nn.BatchNorm2d(4 * planes)) if change else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNet50(nn.Sequential):
    def __init__(self):
        layers, inner = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for planes, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for number in range(blocks):
                layers.append(Bottleneck(inner, planes, stride if number == 0 else 1))
                inner = 4 * planes
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inner, 1000))


# name: (what to build, dtype of the weights, batch, length of a sequence or side of an image)
MODELS = {
    "bert": (lambda n: Transformer(30522, n, 768, 12, 12, 3072, causal=False), torch.float32, 8, 128),
    "gpt2": (lambda n: Transformer(50257, n, 768, 12, 12, 3072), torch.float32, 4, 512),
    "resnet50": (lambda n: ResNet50(), torch.float32, 16, 224),
    "llama1b-decode": (lambda n: Transformer(128256, n, 2048, 32, 16, 8192, kv_heads=8, llama=True), torch.bfloat16, 1, 2048),
    "llama7b": (lambda n: Transformer(32000, n, 4096, 32, 32, 11008, llama=True), torch.bfloat16, 1, 2048),
}


def train(model, make_batch, vocabulary_last, steps, autocast, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(steps):
        x, y = (t.to(device) for t in make_batch())
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            out = model(x)
        loss = F.cross_entropy(out.flatten(0, -2).float() if vocabulary_last else out.float(), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def decode(model, ids, length, steps, dtype, device):
    attention = model.blocks[0].attention
    shape = (ids.shape[0], attention.kv_heads, length, attention.size)
    caches = [[torch.zeros(shape, dtype=dtype, device=device) for _ in "kv"] for _ in model.blocks]
    for number in range(steps):
        ids = model(ids, caches, torch.tensor([number]).to(device))[:, -1:].argmax(-1)
        ids.cpu()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--no-autocast", action="store_true", help="f32 weights are multiplied in f32, not in bf16")
    args = parser.parse_args()
    build, dtype, batch, length = MODELS[args.model]
    batch, length = args.batch or batch, args.length or length
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    with device:
        model = build(length).to(dtype)
    autocast = dtype == torch.float32 and not args.no_autocast
    if args.model.endswith("decode"):
        decode(model, torch.zeros(batch, 1, dtype=torch.long).to(device), length, args.steps, dtype, device)
    elif args.model == "resnet50":
        train(model, lambda: (torch.randn(batch, 3, length, length), torch.randint(0, 1000, (batch,))), False, args.steps, autocast, device)
    else:
        vocabulary = model.token.num_embeddings
        train(model, lambda: (torch.randint(0, vocabulary, (batch, length)), torch.randint(0, vocabulary, (batch, length))), True, args.steps, autocast, device)


if __name__ == "__main__":
    main()
