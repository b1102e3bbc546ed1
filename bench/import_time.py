"""What finding tern adds to `import torch`: fresh interpreters with and without the autoload, interleaved, minimum of many. The bar is 0.2 s; beyond it this exits with 1."""
import json
import os
import pathlib
import subprocess
import sys

BUILD = pathlib.Path(__file__).resolve().parent.parent / "build"
BAR_SECONDS = 0.2
TIMED = "import time; start = time.perf_counter(); import torch; print(time.perf_counter() - start)"


def seconds(autoload: str) -> float:
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    return float(subprocess.run([sys.executable, "-c", TIMED], env=environment, capture_output=True, text=True, check=True).stdout)


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    pairs = [(seconds("0"), seconds("1")) for _ in range(rounds)]
    without, with_tern = (min(column) for column in zip(*pairs, strict=True))
    row = {"without": without, "with": with_tern, "added": with_tern - without, "ratio": with_tern / without}
    BUILD.mkdir(exist_ok=True)
    (BUILD / "import_time.json").write_text(json.dumps(row, indent=2))
    print(f"import torch: {without:.3f} s; with tern found: {with_tern:.3f} s, {row['added']:+.3f} s ({row['ratio']:.2f}x); the bar is +{BAR_SECONDS} s")
    return row["added"] > BAR_SECONDS


if __name__ == "__main__":
    sys.exit(main())
