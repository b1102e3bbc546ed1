"""Real models, tiny and with random weights: the CPU's losses and gradients, every operator native (the tests' TERN_FALLBACK=error)."""
import copy
import os

os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch
import torch.nn.functional as F
from operators import compare
from torch import nn


def on(device, batch):
    return {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in batch.items()}


def check(reference, batch, loss_of=lambda model, batch: model(**batch).loss, tolerance=1e-3):
    """Loss and gradients; each gradient within `tolerance` of its own size, or of the whole gradient's where it is rounding noise (the bias of a key, say)."""
    mine = copy.deepcopy(reference).to("tern")
    expected, loss = loss_of(reference, batch), loss_of(mine, on("tern", batch))
    expected.backward()
    loss.backward()
    torch.testing.assert_close(loss.detach().cpu(), expected.detach(), rtol=1e-5, atol=1e-6)
    largest = max(p.grad.abs().max().item() for p in reference.parameters() if p.grad is not None)
    for (name, p), q in zip(reference.named_parameters(), mine.parameters()):
        assert (p.grad is None) == (q.grad is None), name
        if p.grad is not None:
            bound = tolerance * max(p.grad.abs().max().item(), 1e-3 * largest)
            assert (q.grad.cpu() - p.grad).abs().max().item() <= bound, name
    return mine


# ---- Hugging Face ----
def ids(*shape, start=3):
    return torch.randint(start, 64, shape, generator=torch.Generator().manual_seed(1))


def numbers(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 16, "patch_size": 4}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = {**SIZES, **TOKENS, "num_key_value_heads": 2, "max_position_embeddings": 64}
AUDIO = {
    "vocab_size": 20, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "conv_dim": (16, 16), "conv_stride": (4, 2),
    "conv_kernel": (6, 3), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "pad_token_id": 0,
}  # fmt: skip
PADDED = torch.tensor([[1] * 12, [1] * 8 + [0] * 4])
TEXT = {"input_ids": ids(2, 12), "labels": ids(2, 12)}
SPEECH = {"input_values": numbers(2, 400), "labels": torch.tensor([[3, 7, 7, 2, 9], [1, 4, 19, 4, 4]])}
WHISPER = {
    **TOKENS, "vocab_size": 64, "num_mel_bins": 8, "encoder_layers": 2, "encoder_attention_heads": 4, "decoder_layers": 2, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 48, "encoder_ffn_dim": 48, "d_model": 32, "max_source_positions": 20, "max_target_positions": 20, "decoder_start_token_id": 3,
    "suppress_tokens": None, "begin_suppress_tokens": None,
}  # fmt: skip
MODELS = {
    "bert": ("BertForSequenceClassification", "BertConfig", SIZES, {"input_ids": ids(2, 12), "attention_mask": PADDED, "labels": torch.tensor([0, 1])}),
    "bert, masked words": ("BertForMaskedLM", "BertConfig", SIZES, {**TEXT, "attention_mask": PADDED}),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, **TOKENS}, TEXT),
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER, TEXT),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 8}, {**TEXT, "attention_mask": PADDED.flip(1)}),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", {**DECODER, "num_local_experts": 4, "output_router_logits": True}, TEXT),
    "t5": ("T5ForConditionalGeneration", "T5Config", {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
           {"input_ids": ids(2, 12), "labels": ids(2, 6)}),
    "whisper": ("WhisperForConditionalGeneration", "WhisperConfig", WHISPER, {"input_features": numbers(2, 8, 40), "labels": ids(2, 6)}),
    "vit": ("ViTForImageClassification", "ViTConfig", {**VISION, "num_labels": 5}, {"pixel_values": numbers(2, 3, 16, 16), "labels": torch.tensor([1, 4])}),
    "clip": ("CLIPModel", "CLIPConfig", {"text_config": {**SIZES, **TOKENS, "max_position_embeddings": 16}, "vision_config": VISION, "projection_dim": 16},
             {"input_ids": ids(2, 12), "pixel_values": numbers(2, 3, 16, 16), "return_loss": True}),
    "wav2vec2": ("Wav2Vec2ForCTC", "Wav2Vec2Config", {**AUDIO, "ctc_zero_infinity": True}, SPEECH),
    "wav2vec2, masked": ("Wav2Vec2ForCTC", "Wav2Vec2Config", {**AUDIO, "feat_extract_norm": "layer", "do_stable_layer_norm": True},
                         {**SPEECH, "attention_mask": torch.tensor([[1] * 400, [1] * 320 + [0] * 80])}),
}  # fmt: skip


def make(name):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    model, config, options, batch = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**options)).eval(), batch


@pytest.mark.parametrize("name", MODELS)
def test_hugging_face(name):
    check(*make(name), tolerance=5e-3 if "wav2vec2" in name else 1e-3)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "mixtral", "t5", "whisper"])
def test_generate(name):
    """Greedy decoding and beam search with the key-value cache give the CPU's tokens."""
    model, batch = make(name)
    mine = copy.deepcopy(model).to("tern")
    key = "input_features" if name == "whisper" else "input_ids"
    for options in ({"do_sample": False}, {"do_sample": False, "num_beams": 3}):
        expected = model.generate(batch[key], max_new_tokens=8, min_new_tokens=8, **options)
        got = mine.generate(batch[key].to("tern"), max_new_tokens=8, min_new_tokens=8, **options)
        assert torch.equal(got.cpu(), expected)


# ---- images ----
class Residual(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
                                  nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))  # fmt: skip
        self.short = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


class Inverted(nn.Module):
    """MobileNet's and EfficientNet's block: expand, depthwise, squeeze and excite, project."""

    def __init__(self, inputs, outputs, stride, act, excite):
        super().__init__()
        wide = inputs * 3
        self.expand = nn.Sequential(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), act())
        self.depth = nn.Sequential(nn.Conv2d(wide, wide, 5, stride, 2, groups=wide, bias=False), nn.BatchNorm2d(wide), act())
        self.excite = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, 4, 1), act(), nn.Conv2d(4, wide, 1), nn.Sigmoid()) if excite else None
        self.project = nn.Sequential(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x):
        y = self.depth(self.expand(x))
        y = self.project(y * self.excite(y) if self.excite else y)
        return x + y if self.adds else y


def classifier(*blocks, width):
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.0), nn.Linear(width, 5))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.middle, self.up = Residual(3, 8), Residual(8, 16), Residual(16, 8)
        self.grow, self.head = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(8, 5, 1)

    def forward(self, x):
        skip = self.down(x)
        y = self.middle(F.max_pool2d(skip, 2))
        return self.head(self.up(torch.cat([skip, self.grow(y)], 1))).mean((2, 3))


class Denoiser(nn.Module):
    """A diffusion U-Net: time embedding, group norms, self- and cross-attention, nearest upsampling."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 16))
        self.first, self.down, self.last = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 16, 3, 2, 1), nn.Conv2d(32, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, 16) for _ in range(3))
        self.self_attention, self.cross_attention = nn.MultiheadAttention(16, 2, batch_first=True), nn.MultiheadAttention(16, 2, kdim=12, vdim=12, batch_first=True)

    def forward(self, x, t, text):
        angles = t[:, None] * torch.exp(-torch.arange(8, device=x.device) * 0.5)
        time = self.time(torch.cat([angles.sin(), angles.cos()], 1))
        skip = F.silu(self.norms[0](self.first(x))) + time[:, :, None, None]
        y = self.down(F.silu(self.norms[1](skip)))
        flat = self.norms[2](y).flatten(2).transpose(1, 2)
        flat = flat + self.self_attention(flat, flat, flat, need_weights=False)[0]
        flat = flat + self.cross_attention(flat, text, text, need_weights=False)[0]
        y = flat.transpose(1, 2).view_as(y)
        return self.last(torch.cat([skip, F.interpolate(y, scale_factor=2.0)], 1))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, 2, 1))
        self.decode = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.SiLU(), nn.Upsample(scale_factor=2), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU(),
                                    nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(8, 3, 3, padding=1))  # fmt: skip

    def forward(self, x, noise):
        mean, log_variance = self.encode(x).chunk(2, 1)
        y = self.decode(mean + noise * torch.exp(0.5 * log_variance.clamp(-30, 20)))
        return F.mse_loss(y, x) + 0.1 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()


IMAGES = {
    "resnet": lambda: classifier(Residual(8, 8), Residual(8, 16, 2), width=16),
    "mobilenet": lambda: classifier(Inverted(8, 8, 1, nn.Hardswish, False), Inverted(8, 16, 2, nn.Hardswish, True), width=16),
    "efficientnet": lambda: classifier(Inverted(8, 8, 1, nn.SiLU, True), Inverted(8, 16, 2, nn.SiLU, True), width=16),
    "unet": UNet,
}


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("name", IMAGES)
def test_images(name, layout):
    torch.manual_seed(0)
    batch = {"x": numbers(4, 3, 16, 16).to(memory_format=layout), "y": torch.tensor([0, 1, 4, 2])}
    check(IMAGES[name]().to(memory_format=layout), batch, lambda model, batch: F.cross_entropy(model(batch["x"]), batch["y"]), tolerance=5e-3)


def test_diffusion():
    torch.manual_seed(0)
    batch = {"x": numbers(2, 4, 8, 8), "t": torch.tensor([3.0, 70.0]), "text": numbers(2, 5, 12)}
    check(Denoiser(), batch, lambda model, batch: F.mse_loss(model(**batch), batch["x"]))
    check(VAE(), {"x": numbers(2, 3, 16, 16), "noise": numbers(2, 4, 4, 4)}, lambda model, batch: model(**batch))


# ---- sequences ----
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent(kind, packed):
    for options in ({}, {"bidirectional": True}, {"bias": False}, {"proj_size": 3}):
        if "proj_size" in options and kind != "LSTM":
            continue
        torch.manual_seed(0)

        def loss(model, batch):
            x = batch["x"]
            if packed:
                x = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([6, 2, 5]), batch_first=True, enforce_sorted=False)
            y, state = model(x)
            if packed:
                y = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0]
            return y.square().sum() + sum(s.sin().sum() for s in (state if isinstance(state, tuple) else (state,)))

        check(getattr(nn, kind)(4, 5, 2, batch_first=True, **options), {"x": numbers(3, 6, 4)}, loss)


def test_ctc():
    torch.manual_seed(0)
    scores = torch.randn(12, 3, 6, requires_grad=True)
    padded, joined = torch.randint(1, 6, (3, 4)), torch.randint(1, 6, (9,))
    for reduction in ("none", "mean", "sum"):
        compare(lambda x, t: F.ctc_loss(x.log_softmax(2), t, (12, 10, 9), (4, 3, 0), reduction=reduction), scores, padded)
    compare(lambda x, t, i, n: F.ctc_loss(x.log_softmax(2), t, i, n), scores, joined, torch.tensor([12, 10, 9]), torch.tensor([4, 3, 2]))
    # Too short for its target, and of no length at all.
    for zero in (False, True):
        compare(lambda x, t: F.ctc_loss(x.log_softmax(2), t, (12, 2, 0), (4, 4, 0), reduction="none", zero_infinity=zero), scores, padded)
    torch.tern.reset_stats()
    lengths = [(12, 12, 12), (9, 10, 11), (12, 4, 9)]
    for i, inputs in enumerate(lengths * 2):
        F.ctc_loss(scores.detach().to("tern").log_softmax(2), padded.to("tern"), inputs, (4, 3, 2)).item()
        if i == 0:
            compiled = torch.tern.stats()["compiled"]
    assert torch.tern.stats()["compiled"] == compiled  # lengths are data


# ---- resampling ----
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
def test_interpolate(mode):
    x = torch.randn(2, 3, 6, 5)
    for layout in (torch.contiguous_format, torch.channels_last):
        y = x.to(memory_format=layout).requires_grad_()
        compare(lambda v: F.interpolate(v, size=(9, 4), mode=mode), y)
        compare(lambda v: F.interpolate(v, scale_factor=(2, 1.7), mode=mode), y)
        if mode != "area":
            compare(lambda v: F.interpolate(v, scale_factor=1.7, mode=mode, recompute_scale_factor=False), y)
        if mode in ("bilinear", "bicubic"):
            compare(lambda v: F.interpolate(v, size=(7, 11), mode=mode, align_corners=True), y)
    for dtype in (torch.float64, torch.bfloat16):
        compare(lambda v: F.interpolate(v, size=(9, 4), mode=mode), x.to(dtype).requires_grad_())
    if mode == "nearest":
        compare(lambda v: F.interpolate(v, size=(9, 4), mode=mode), torch.randint(256, (1, 3, 6, 5)).to(torch.uint8))
    for rank, name in ((1, {"bilinear": "linear"}.get(mode, mode)), (3, {"bilinear": "trilinear"}.get(mode, mode))):
        if mode != "bicubic" and (mode, rank) != ("area", 3):  # there is no bicubic, and area is adaptive pooling
            compare(lambda v: F.interpolate(v, scale_factor=2.0, mode=name), torch.randn(1, 2, *(3, 4, 5)[:rank], requires_grad=True))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grid_sample(mode, padding):
    for aligned in (False, True):
        grid = (torch.randn(2, 4, 5, 2) * 0.8).requires_grad_()
        compare(lambda v, g: F.grid_sample(v, g, mode, padding, aligned), torch.randn(2, 3, 6, 5, requires_grad=True), grid)
        if mode != "bicubic":
            grid = (torch.randn(1, 3, 4, 2, 3) * 0.8).requires_grad_()
            compare(lambda v, g: F.grid_sample(v, g, mode, padding, aligned), torch.randn(1, 2, 3, 4, 5, requires_grad=True), grid)


# ---- attention ----
def test_attention_variants():
    q, k, v = (torch.randn(2, 4, n, 8, requires_grad=True) for n in (6, 7, 7))
    few = [torch.randn(2, 2, 7, 8, requires_grad=True) for _ in range(2)]
    attend = F.scaled_dot_product_attention
    compare(attend, q, k, v)
    compare(lambda q, k, v: attend(q.transpose(1, 2).contiguous().transpose(1, 2), k, v), q, k, v)
    compare(lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v)
    compare(lambda q, k, v, m: attend(q, k, v, attn_mask=m), q, k, v, torch.rand(6, 7) > 0.3)
    compare(lambda q, k, v, m: attend(q, k, v, attn_mask=m), q, k, v, torch.randn(2, 1, 6, 7, requires_grad=True))
    compare(lambda q, k, v: attend(q, k, v, enable_gqa=True), q, *few)
    compare(attend, q[0].detach().requires_grad_(), k[0].detach().requires_grad_(), v[0].detach().requires_grad_())


def test_weight_norm():
    torch.manual_seed(0)
    for layer in (nn.Linear(5, 4), nn.Conv1d(5, 6, 3)):
        model = nn.utils.parametrizations.weight_norm(layer)
        check(model, {"x": numbers(3, 5) if isinstance(layer, nn.Linear) else numbers(2, 5, 7)}, lambda m, b: m(b["x"]).sin().sum())
    compare(lambda v, g: torch._weight_norm(v, g, 1), torch.randn(4, 5, requires_grad=True), torch.randn(1, 5, requires_grad=True))


def test_grouped_products():
    ends = torch.tensor([3, 3, 8], dtype=torch.int32)
    rows, weights = torch.randn(8, 16, requires_grad=True), torch.randn(3, 16, 8, requires_grad=True)
    compare(lambda a, b, o: F.grouped_mm(a, b, offs=o), rows, weights, ends)
    compare(lambda a, b, o: F.grouped_mm(a, b, offs=o), torch.randn(3, 8, 16, requires_grad=True), torch.randn(16, 8, requires_grad=True), ends)
    compare(lambda a, b, o: F.grouped_mm(a, b, offs=o), torch.randn(16, 8, requires_grad=True), torch.randn(8, 4, requires_grad=True), ends)
