"""`make tpu-check`: asks `tern check` about the examples and the models of models.py, for every target whose compiler is here, and writes the page docs/targets.md.

Answers are kept (TERN_CACHE_DIR), so what has been asked once is quick. A question that a compiler did not answer in its time is written down as such.
"""

import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
TARGETS = ["tpu:v5e", "tpu:v6e", "tpu:7x", "cuda:h100"]
OTHERS = ["neuron:trn2", "neuron:trn3", "neuron:inf2", "rocm:mi300x"]
INTRODUCTION = """# Targets

What `make tpu-check` says: programs compiled by the real compilers of chips that are not in the machine (libtpu, jax-cuda12-pjrt). `compiles` and memory are the compiler's; seconds
are a roofline, so at least that, from the compiler's traffic where it counts any (TPU) and tern's elsewhere. Chips without a compiler here get the roofline alone: not compiled.
"no answer": the compiler was not given the time on the machine that wrote this page. Compile times are that machine's.
"""
# (heading, arguments, further targets)
PROGRAMS = [
    ("digits_cnn.py, a training step", ["digits_cnn.py"], []),
    ("char_gpt.py, a training step", ["char_gpt.py"], []),
    ("BERT-like encoder: 12 layers, batch 8 x 128, bf16 autocast, AdamW", ["models.py", "bert"], []),
    ("GPT-2-sized: 124 M weights, batch 4 x 512, bf16 autocast, AdamW", ["models.py", "gpt2"], ["tpu:v5e:2x2"]),
    ("ResNet-50: batch 16, bf16 autocast, AdamW", ["models.py", "resnet50"], []),
    ("Llama-like, 1.2 G weights in bf16: a decode step with 2,048 cached positions", ["models.py", "llama1b-decode"], []),
    ("Llama, 7 G weights in bf16: a training step with AdamW, 1 x 2,048", ["models.py", "llama7b"], []),
]


def ask(arguments: list[str], targets: list[str], seconds: float) -> list[dict]:
    command = [sys.executable, "-m", "torch_tern", "check", "--json", "--no-values", "--compile-seconds", str(seconds)]
    command += [word for target in targets for word in ("--target", target)]
    done = subprocess.run([*command, str(HERE / arguments[0]), *arguments[1:]], capture_output=True, text=True)
    if not done.stdout.startswith("["):
        raise SystemExit(f"{' '.join(arguments)}: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout)


def section(heading: str, rows: list[dict]) -> str:
    from torch_tern.check import report

    lines = [f"## {heading}", "", "| " + " | ".join(report.COLUMNS) + " |", "|" + "---|" * len(report.COLUMNS)]
    lines += ["| " + " | ".join(report.cells(row)) + " |" for row in rows]
    shown = next((row for row in rows if row["fits"] is False), rows[0])
    said = dict.fromkeys(text.splitlines()[0][:300] for row in rows for text in [row["message"], *row["notes"]] if text and not text.startswith("not compiled: tern"))
    lines += [""] + [f"- {text}" for text in said]
    if shown["largest"]:
        a = shown["largest"][0]
        lines.append(f"- the largest tensor: {a['dtype']}[{'x'.join(map(str, a['dims']))}], {report.size(a['bytes'])}, {a['line'] or a['operation']}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=1800, help="what a compiler may take for one program")
    args = parser.parse_args()
    parts = [INTRODUCTION]
    for heading, arguments, further in PROGRAMS:
        rows = ask(arguments, TARGETS + further + OTHERS, args.seconds)
        for row in rows:
            print(heading, row["target"], "compiles" if row["compiles"] else row["message"][:100], flush=True)
        parts.append(section(heading, rows))
    args.page.write_text("\n".join(parts))


if __name__ == "__main__":
    main()
