"""What `make bench` measures. A row is (group, name, build, compiled, wait): build(device) makes the tensors from the same seed and returns the step to time;
`compiled` says whether torch.compile is a rival (its build gets `wrap`); `wait`: the result is waited for inside the time. A row of the group "cold" is called once
in a process of its own, after its imports: what a first use costs, compiling included.

    python bench/workloads.py NAME DEVICE      one cold call; prints its seconds
"""

import sys
import time

import torch.nn.functional as F

import torch
from torch import nn


def function(make_inputs, f):
    """A row that calls f on tensors."""

    def build(device, wrap):
        torch.manual_seed(0)
        inputs, compiled = [x.to(device) for x in make_inputs()], wrap(f)
        return lambda: compiled(*inputs)

    return build


def inference(make_model, make_input):
    def build(device, wrap):
        torch.manual_seed(0)
        x, model = make_input().to(device), make_model().to(device).eval()
        model = wrap(model)

        def step():
            with torch.no_grad():
                return model(x)

        return step

    return build


def training(make_model, make_batch, optimizer=lambda p: torch.optim.AdamW(p, 1e-3), loss=F.cross_entropy):
    def build(device, wrap):
        torch.manual_seed(0)
        x, y = (t.to(device) for t in make_batch())
        model = make_model().to(device)
        opt, compiled = optimizer(model.parameters()), wrap(model)

        def step():
            opt.zero_grad()
            value = loss(compiled(x), y)
            value.backward()
            opt.step()
            return value

        return step

    return build


def mlp(dropout=0.0):
    drop = [nn.Dropout(dropout)] if dropout else []
    return nn.Sequential(*drop, nn.Linear(784, 512), nn.ReLU(), *drop, nn.Linear(512, 512), nn.ReLU(), *drop, nn.Linear(512, 10))


def cnn():
    def block(i, o):
        return [nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(), nn.MaxPool2d(2)]

    return nn.Sequential(
        *block(3, 32), *block(32, 64), nn.Conv2d(64, 128, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)
    )


class Attention(nn.Module):
    def __init__(self, width, heads, causal):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    def __init__(self, vocabulary=1024, width=256, heads=4, layers=3, causal=True):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(width), Attention(width, heads, causal), nn.LayerNorm(width),
                           nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh" if causal else "none"), nn.Linear(4 * width, width))])
            for _ in range(layers)
        )  # fmt: skip
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for norm1, attention, norm2, feed in self.blocks:
            x = x + attention(norm1(x))
            x = x + feed(norm2(x))
        return self.head(self.norm(x))


def tokens_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(), nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o))
        self.shortcut = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if stride != 1 or i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.first(x) + self.shortcut(x))


def resnet18():
    sizes = ((64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1))
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *(Residual(*s) for s in sizes), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))


def convolution_gradients(device, wrap):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1, groups=128),
                          nn.ReLU(), nn.Conv2d(128, 128, 1)).to(device)  # fmt: skip
    x = torch.randn(8, 32, 56, 56).to(device).requires_grad_()
    compiled = wrap(model)

    def step():
        model.zero_grad()
        x.grad = None
        loss = compiled(x).square().mean()
        loss.backward()
        return loss

    return step


def generate(dtype, new=16):
    """Hugging Face's own loop over a Llama of 124 M weights, a token at a time."""

    def build(device, wrap):
        import transformers

        torch.manual_seed(0)
        config = transformers.LlamaConfig(hidden_size=768, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=12, intermediate_size=3072,
                                          vocab_size=32000, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2, pad_token_id=0)  # fmt: skip
        model = transformers.LlamaForCausalLM(config).eval().to(dtype).to(device)
        ids = torch.randint(3, 32000, (1, 32)).to(device)

        def step():
            with torch.no_grad():
                return model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, min_new_tokens=new, max_new_tokens=new)

        return step

    return build


def growing_decode(device, wrap):
    """40 tokens, each call one longer than the one before: nothing of one shape comes twice."""
    torch.manual_seed(0)
    model = wrap(Transformer(2048, layers=4).to(device).eval())
    first = torch.randint(2048, (1, 16)).to(device)

    def step():
        ids = first
        with torch.no_grad():
            for _ in range(40):
                ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        return ids

    return step


def first_steps(device, wrap):
    step = training(mlp, lambda: (torch.randn(128, 784), torch.randint(10, (128,))))(device, wrap)

    def twenty():
        for _ in range(20):
            loss = step()
        return loss

    return twenty


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells, self.head = nn.LSTM(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.cells(x)[0][:, -1])


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(20000, 64, mode="sum")
        self.net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 2))

    def forward(self, ids):
        return self.net(self.table(ids))


def foreach_adamw(device, wrap):
    torch.manual_seed(0)
    parameters = [torch.randn(400, 500).to(device).requires_grad_() for _ in range(25)]
    for p in parameters:
        p.grad = torch.randn(400, 500).to(device) * 0.1
    optimizer = torch.optim.AdamW(parameters, 1e-3, foreach=True)
    step = wrap(lambda: optimizer.step())

    def run():
        step()
        return parameters[0]

    return run


def enqueue(device, wrap):
    x, y = torch.ones(4, device=device), torch.ones(4, device=device)

    def many():
        for _ in range(1000):
            x + y

    return many


def tiny(device, wrap):
    x = torch.ones(4, device=device)

    def many():
        y = x
        for _ in range(100):
            y = y + x
        return y

    return many


def served_by_the_cpu(device, wrap):
    """An operator without a native form: what tern adds to the call of PyTorch's kernel, which works on the device's memory."""
    x = torch.ones(4, device=device)

    def many():
        for _ in range(100):
            y = torch.special.airy_ai(x)
        return y

    return many


def changing_shapes(device, wrap):
    """Another length at each call, for ever: nothing that is compiled for one shape is met again soon."""
    torch.manual_seed(0)
    model = Transformer(layers=2).to(device).eval()
    inputs = [torch.randint(1024, (2, n)).to(device) for n in range(40, 72)]

    def step():
        with torch.no_grad():
            return [model(x) for x in inputs]  # all of them: a result that nobody keeps would never be computed

    return step


def randn(*shapes, dtype=torch.float32):
    return lambda: [torch.randn(s).to(dtype) for s in shapes]


def attention(shape):
    return function(randn(shape, shape, shape), lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))


def transposed(x, w):
    return x @ w.t()


CHAIN = 4_000_000
ROWS = [
    ("dispatch", "record x + y, each of 1000", enqueue, False, False),
    ("dispatch", "100 dependent adds of 4 numbers, and wait", tiny, False, True),
    ("dispatch", "airy_ai of 4 numbers, by PyTorch's CPU kernel", served_by_the_cpu, False, True),
    ("pointwise", "tanh(x/2+b) sigmoid(x) + exp(-x^2)/10, 4M", function(randn((CHAIN,), (CHAIN,)), lambda x, b: torch.tanh(x * 0.5 + b) * torch.sigmoid(x) + torch.exp(-x * x) * 0.1), True, True),
    ("pointwise", "the same, 64k", function(randn((65536,), (65536,)), lambda x, b: torch.tanh(x * 0.5 + b) * torch.sigmoid(x) + torch.exp(-x * x) * 0.1), True, True),
    ("pointwise", "gelu (erf), 1M", function(randn((1 << 20,)), F.gelu), True, True),
    ("pointwise", "dropout, 1M", function(randn((1 << 20,)), lambda x: F.dropout(x, 0.1)), True, True),
    ("reductions", "layer norm + softmax, 4096 x 768", function(randn((4096, 768)), lambda x: torch.softmax(F.layer_norm(x, (768,)) + x, -1)), True, True),
    ("reductions", "sum over rows of 1024 x 4096", function(randn((1024, 4096)), lambda x: (x * x).sum(0)), True, True),
    ("products", "f32 128 x 784 x 512", function(randn((128, 784), (512, 784)), transposed), False, True),
    ("products", "f32 512 x 512 x 512", function(randn((512, 512), (512, 512)), torch.mm), False, True),
    ("products", "f32 1024 x 1024 x 1024", function(randn((1024, 1024), (1024, 1024)), torch.mm), False, True),
    ("products", "f32 1 x 4096 x 4096", function(randn((1, 4096), (4096, 4096)), transposed), False, True),
    ("products", "bf16 512 x 512 x 512", function(randn((512, 512), (512, 512), dtype=torch.bfloat16), torch.mm), False, True),
    ("products", "bf16 32 x 768 x 3072", function(randn((32, 768), (3072, 768), dtype=torch.bfloat16), transposed), False, True),
    ("products", "bf16 1 x 4096 x 4096", function(randn((1, 4096), (4096, 4096), dtype=torch.bfloat16), transposed), False, True),
    ("products", "f32 96 of 128 x 64 x 128", function(randn((96, 128, 64), (96, 64, 128)), torch.bmm), False, True),
    ("convolution", "3x3 64 -> 64, 56 x 56, batch 8", inference(lambda: nn.Conv2d(64, 64, 3, padding=1), lambda: torch.randn(8, 64, 56, 56)), False, True),
    ("convolution", "depthwise 3x3 128, 28 x 28, batch 8", inference(lambda: nn.Conv2d(128, 128, 3, padding=1, groups=128), lambda: torch.randn(8, 128, 28, 28)), False, True),
    ("attention", "causal, 4 x 8 x 512 x 64", attention((4, 8, 512, 64)), False, True),
    ("training", "mlp, batch 128", training(mlp, lambda: (torch.randn(128, 784), torch.randint(10, (128,)))), True, True),
    ("training", "mlp with dropout, batch 128", training(lambda: mlp(0.1), lambda: (torch.randn(128, 784), torch.randint(10, (128,)))), True, True),
    ("training", "cnn, batch 32", training(cnn, lambda: (torch.randn(32, 3, 32, 32), torch.randint(10, (32,)))), True, True),
    ("training", "transformer, 8 x 64 tokens", training(Transformer, lambda: (torch.randint(1024, (8, 64)),) * 2, loss=tokens_loss), True, True),
    ("training", "lstm, 32 x 32", training(LSTM, lambda: (torch.randn(32, 32, 64), torch.randint(10, (32,)))), False, True),
    ("training", "embedding bags, batch 512", training(Recommender, lambda: (torch.randint(20000, (512, 16)), torch.randint(2, (512,))), lambda p: torch.optim.SGD(p, 0.01)), False, True),
    ("training", "AdamW alone, 25 tensors of 200k, foreach", foreach_adamw, False, True),
    ("inference", "transformer encoder, 4 x 128 tokens", inference(lambda: Transformer(causal=False), lambda: torch.randint(1024, (4, 128))), True, True),
    ("training", "convolutions and their gradients, batch 8", convolution_gradients, False, True),
    ("inference", "resnet18, batch 1", inference(resnet18, lambda: torch.randn(1, 3, 224, 224)), True, True),
    ("inference", "32 calls, a new length each", changing_shapes, False, True),
    ("inference", "Llama, 124 M weights in f32, a token", generate(torch.float32), False, True),
    ("inference", "Llama, 124 M weights in bf16, a token", generate(torch.bfloat16), False, True),
    ("cold", "decode 40 tokens, each call one longer", growing_decode, False, True),
    ("cold", "first 20 training steps of an mlp", first_steps, False, True),
]  # fmt: skip
CALLS = {"record x + y, each of 1000": 1000, "airy_ai of 4 numbers, by PyTorch's CPU kernel": 100, "Llama, 124 M weights in f32, a token": 16, "Llama, 124 M weights in bf16, a token": 16}  # calls inside one step


def cold_call(name, device):
    """Seconds of the first call of a row, what it makes included."""
    build = next(row[2] for row in ROWS if row[1] == name)
    torch.ones(1, device=device) + 1  # the device is open
    if device == "tern":
        torch.tern.synchronize()
    start = time.perf_counter()
    result = build(device, lambda f: f)()
    if device == "tern":
        torch.tern.synchronize()
    del result
    return time.perf_counter() - start


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    print(cold_call(sys.argv[1], sys.argv[2]))
