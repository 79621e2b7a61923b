#!/usr/bin/env python3
"""A slice of the 27B at full width, held against transformers.

usage: slice.py DIR QUASAR [--layers 8] [--vocab 32768] [--tokens 200] [--small]

Makes a Hugging Face checkpoint of random bf16 weights in DIR with torch, and a
reference file from transformers in fp32 on the GPU (the MTP layer put together
from transformers' modules, which leave mtp.* out). Then converts the checkpoint
to the bf16 tier with QUASAR and compares `score --ref` on the CUDA backend:
final hidden state within 1 % relative, the same best token wherever the
reference's margin exceeds four times the largest logit error, and the drafts.
Prints one line `ok` or `not ok`. --small takes the demo's widths."""
import argparse
import json
import os
import subprocess
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    Qwen3_5DecoderLayer,
    Qwen3_5ForCausalLM,
    Qwen3_5RMSNorm,
)

TOP = 20
DEPTH = 3


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("dir")
    p.add_argument("quasar")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--vocab", type=int, default=32768)
    p.add_argument("--tokens", type=int, default=200)
    p.add_argument("--small", action="store_true")
    p.add_argument("--device", default="cuda")
    p.add_argument("--backend", default="cuda")
    return p.parse_args()


def config_of(a):
    wide = dict(hidden_size=5120, intermediate_size=17408, num_attention_heads=24, num_key_value_heads=4,
                linear_num_key_heads=16, linear_num_value_heads=48)
    small = dict(hidden_size=384, intermediate_size=1152, num_attention_heads=6, num_key_value_heads=1,
                 linear_num_key_heads=2, linear_num_value_heads=6)
    rope = dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_interleaved=True,
                mrope_section=[11, 11, 10])
    kinds = ["full_attention" if (i + 1) % 4 == 0 else "linear_attention" for i in range(a.layers)]
    return dict(model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"], vocab_size=a.vocab,
                num_hidden_layers=a.layers, head_dim=256, linear_key_head_dim=128, linear_value_head_dim=128,
                linear_conv_kernel_dim=4, full_attention_interval=4, layer_types=kinds, rms_norm_eps=1e-6,
                hidden_act="silu", attention_bias=False, attn_output_gate=True, tie_word_embeddings=False,
                max_position_embeddings=32768, mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False,
                mamba_ssm_dtype="float32", partial_rotary_factor=0.25, rope_parameters=rope, attention_dropout=0.0,
                bos_token_id=None, eos_token_id=1, pad_token_id=0, initializer_range=0.02, use_cache=True,
                dtype="bfloat16", **(small if a.small else wide))


def randomise(module, gen):
    """Weights of sane scale, rounded to bf16: what the checkpoint holds."""
    for name, p in module.named_parameters():
        leaf = name.rsplit(".", 2)[-2] if "." in name else name
        if p.dim() >= 2 and "conv1d" not in name:
            scale = 1.0 if "embed_tokens" in name else p.shape[-1] ** -0.5
            p.data.normal_(0, scale, generator=gen)
        elif "conv1d" in name:
            p.data.uniform_(-0.8, 0.8, generator=gen)
        elif name.endswith("A_log"):
            p.data.uniform_(-1, 2, generator=gen)
        elif name.endswith("dt_bias"):
            p.data.uniform_(-5, -1, generator=gen)
        elif "norm" in leaf:
            p.data.add_(torch.empty_like(p.data).uniform_(-0.2, 0.2, generator=gen))
        p.data.copy_(p.data.to(torch.bfloat16).float())


class Mtp(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h = cfg.hidden_size
        self.layers = torch.nn.ModuleList([Qwen3_5DecoderLayer(cfg, cfg.layer_types.index("full_attention"))])
        self.fc = torch.nn.Linear(2 * h, h, bias=False)
        self.pre_fc_norm_embedding = Qwen3_5RMSNorm(h, eps=cfg.rms_norm_eps)
        self.pre_fc_norm_hidden = Qwen3_5RMSNorm(h, eps=cfg.rms_norm_eps)
        self.norm = Qwen3_5RMSNorm(h, eps=cfg.rms_norm_eps)

    def forward(self, model, tokens, hidden):
        n, dev = len(tokens), hidden.device
        e = model.model.embed_tokens(torch.tensor([tokens], device=dev))
        both = torch.cat([self.pre_fc_norm_embedding(e), self.pre_fc_norm_hidden(hidden[None])], -1)
        x = self.fc(both)
        pos = torch.arange(n, device=dev)[None]
        turn = model.model.rotary_emb(x, pos[None].expand(3, 1, n))
        mask = torch.full((n, n), float("-inf"), device=dev).triu(1)[None, None]
        x = self.layers[0](x, position_embeddings=turn, attention_mask=mask, position_ids=pos)
        x = x[0] if isinstance(x, tuple) else x
        return self.norm(x)[0]


def top_of(logits, k=TOP):
    v, i = logits.topk(k)
    return [[int(a), float(b)] for a, b in zip(i, v)]


@torch.no_grad()
def reference(model, mtp, ids):
    dev = next(model.parameters()).device
    n = len(ids)
    out = model(torch.tensor([ids], device=dev), use_cache=False)
    lg = out.logits[0]
    seq = list(ids)
    margins = []
    for _ in range(DEPTH + 2):
        last = model(torch.tensor([seq], device=dev), use_cache=False).logits[0, -1]
        two = last.topk(2)
        seq.append(int(two.indices[0]))
        margins.append(float(two.values[0] - two.values[1]))
    h = model.model(torch.tensor([seq], device=dev), use_cache=False).last_hidden_state[0]
    last = h[n - 1].double()
    tokens, hid, drafts = seq[1:n + 1], h[:n].clone(), []
    for _ in range(DEPTH):
        m = mtp(model, tokens, hid)[-1]
        row = model.lm_head(m)
        two = row.topk(2)
        drafts.append((int(two.indices[0]), float(two.values[0] - two.values[1])))
        tokens, hid = tokens + [drafts[-1][0]], torch.cat([hid, m[None]])
    where = sorted({0, n // 4, n // 2, 63, 64, 127, 128, n - 2, n - 1} & set(range(n)))
    return dict(name="slice", ids=list(ids), positions=[dict(pos=p, top=top_of(lg[p])) for p in where],
                final_hidden_last_prompt_position=dict(l2=float(last.norm()), head=last[:8].tolist(),
                                                       values=last.tolist()),
                greedy=dict(ids=seq[n:], margins=margins),
                mtp=[dict(base=n - 1, known_next=seq[n], drafts=[d for d, _ in drafts],
                          margins=[m for _, m in drafts])])


def main():
    a = arguments()
    os.makedirs(a.dir, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    hf = os.path.join(a.dir, "hf")
    os.makedirs(hf, exist_ok=True)
    with open(os.path.join(hf, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config_of(a), f, indent=1)
    cfg = AutoConfig.from_pretrained(hf)
    cfg._attn_implementation = "eager"
    gen = torch.Generator(device=a.device)
    gen.manual_seed(2026)
    with torch.device(a.device):
        model = Qwen3_5ForCausalLM(cfg).float().eval()
        mtp = Mtp(cfg).float().eval()
    randomise(model, gen)
    randomise(mtp, gen)
    ids = torch.randint(1, a.vocab, (a.tokens,), generator=torch.Generator().manual_seed(3)).tolist()
    ref = reference(model, mtp, ids)
    ref_path = os.path.join(a.dir, "ref.json")
    with open(ref_path, "w", encoding="utf-8") as f:
        json.dump(ref, f)
    sd = {k: v.to(torch.bfloat16).cpu().contiguous() for k, v in model.state_dict().items()}
    sd.update({"mtp." + k: v.to(torch.bfloat16).cpu().contiguous() for k, v in mtp.state_dict().items()})
    save_file(sd, os.path.join(hf, "model.safetensors"))
    del model, mtp, sd
    torch.cuda.empty_cache() if a.device == "cuda" else None
    qsr = os.path.join(a.dir, "slice.qsr")
    subprocess.run([a.quasar, "convert", hf, qsr, "--tier", "bf16"], check=True)
    run = subprocess.run([a.quasar, "score", "-m", qsr, "--ref", ref_path, "--backend", a.backend, "--json"],
                         stdout=subprocess.PIPE, check=False)
    rep = json.loads(run.stdout)
    err = rep["logits"]["max_abs"]
    top1 = rep["logits"]["top1"]
    wrong = [t for t in top1 if not t["same"] and t["margin"] > 4 * err]
    hidden = rep["hidden"]["relative_l2"]
    good = hidden <= 0.01 and not wrong
    # a continuation or draft may leave the reference only at a near tie
    same = rep["greedy"]["same"]
    if same < len(ref["greedy"]["ids"]):
        good = good and ref["greedy"]["margins"][same] <= 4 * err
    mt = rep["mtp"]
    drafts = mt[0]["same"] if mt else -1
    if mt and drafts < DEPTH:
        good = good and ref["mtp"][0]["margins"][drafts] <= 4 * err
    print(f"slice: hidden {hidden:.3g} relative, logits {err:.3g} at most, top-1 {sum(t['same'] for t in top1)}"
          f"/{len(top1)}, greedy {same}/{len(ref['greedy']['ids'])}, drafts {drafts}/{DEPTH}")
    print("ok slice" if good else "not ok slice")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
