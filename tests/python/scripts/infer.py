# An ordinary inference script: a decoder with a key-value cache, half precision, sampling with a generator, greedy decoding in a loop.
import torch
import torch.nn as nn
import torch.nn.functional as F

device = "cuda"
torch.cuda.set_device(0)
torch.manual_seed(0)
dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x, cache):
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x)), (k, v)


class Model(nn.Module):
    def __init__(self, vocabulary=64, width=32, layers=2):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(128, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids, caches=None, start=0):
        x = self.token(ids) + self.place(torch.arange(start, start + ids.shape[1], device=ids.device))
        new = []
        for i, block in enumerate(self.blocks):
            x, cache = block(x, caches[i] if caches else None)
            new.append(cache)
        return F.linear(self.norm(x), self.token.weight), new


@torch.inference_mode()
def generate(model, ids, tokens, temperature=0.0, generator=None):
    logits, caches = model(ids)
    for _ in range(tokens):
        last = logits[:, -1].float()
        if temperature:
            best = last.topk(8)
            picked = torch.multinomial(F.softmax(best.values / temperature, -1), 1, generator=generator)
            token = best.indices.gather(1, picked)
        else:
            token = last.argmax(-1, keepdim=True)
        ids = torch.cat([ids, token], 1)
        logits, caches = model(token, caches, ids.shape[1] - 1)
    return ids


model = Model().eval().to(device)
ids = torch.randint(0, 64, (2, 5), device=device)
greedy = generate(model, ids, 12)
full = ids
for _ in range(12):  # without the cache: the same tokens
    with torch.no_grad():
        full = torch.cat([full, model(full)[0][:, -1].argmax(-1, keepdim=True)], 1)
assert torch.equal(greedy, full), (greedy.tolist(), full.tolist())

half = Model().to(device=device, dtype=dtype).eval()
generator = torch.Generator(device=device).manual_seed(7)
one = generate(half, ids, 8, 0.8, generator)
two = generate(half, ids, 8, 0.8, torch.Generator(device).manual_seed(7))
assert torch.equal(one, two) and one.device.type == "cuda" and one.dtype == torch.int64
with torch.autocast("cuda", dtype=dtype):
    assert model(ids)[0].dtype == dtype
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total
print("done")
