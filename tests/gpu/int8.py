"""INT8 against fp16 on the same GPU in one run: what tests/gpu.sh calls its part "int8"."""

from __future__ import annotations

import pathlib
import random
import struct
import tempfile

# Model and batch; --quick takes those marked.
BENCHMARKS = [("resnet18", 1, False), ("resnet18", 32, False), ("resnet18", 128, False), ("resnet50", 1, False),
              ("resnet50", 32, True), ("resnet50", 128, False)]
KEPT = ("graph_ms", "layers_ms", "end_to_end_ms", "load_ms", "device_memory_bytes", "device_memory_peak_bytes")


def write_image(path: pathlib.Path, seed: int, side: int = 256) -> None:
    """A 24-bit BMP of coloured squares: the built-in models' weights are random, so any image calibrates them."""
    rng = random.Random(seed)
    squares = [[bytes(rng.randrange(256) for _ in range(3)) for _ in range(8)] for _ in range(8)]
    rows = b"".join(b"".join(squares[y * 8 // side][x * 8 // side] for x in range(side)) for y in range(side))
    info = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, len(rows), 2835, 2835, 0, 0)
    path.write_bytes(struct.pack("<2sIHHI", b"BM", 54 + len(rows), 0, 0, 54) + info + rows)


def slower_layers(int8: dict, fp16: dict) -> list[str]:
    """Layers that took more than 3 % longer in INT8, by name; kernels are timed one by one, outside of the graph."""
    before = {layer["name"]: layer["median_ms"] for layer in fp16["layers"]}
    return [layer["name"] for layer in int8["layers"]
            if layer["name"] in before and layer["median_ms"] > 1.03 * before[layer["name"]]]


def int8(run, json_of) -> tuple[list[dict], dict]:
    """Every model and batch in fp16 and INT8, one after the other, by rule and, unless --quick, by measurement."""
    rows, profiles = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "images").mkdir()
        for seed in range(4):
            write_image(folder / "images" / f"{seed}.bmp", seed)
        calibrated: dict[str, dict] = {}
        for model, batch, short in BENCHMARKS:
            if run.quick and not short:
                continue
            plan = folder / f"{model}.json"
            if model not in calibrated:
                calibrated[model] = run("int8", "pipit", "calibrate", model, folder / "images", "--no-histograms", "--quiet",
                                        "--output", plan)
            for tuned in (False,) if run.quick else (False, True):
                row = {"model": model, "batch": batch, "autotuned": tuned, "fp16": {}, "int8": {}}
                rows.append(row)
                if calibrated[model]["code"] != 0:
                    row["problem"] = calibrated[model]["problem"]
                    continue
                tuning = ["--autotune", "--tuning-cache", folder / "tuning.json"] if tuned else []
                documents = {}
                for precision in ("fp16", "int8"):
                    quantized = ["--plan", plan] if precision == "int8" else []
                    done = run("int8", "pipit", "profile", model, "--device", "cuda", "--precision", precision, *quantized,
                               "--json", "--quiet", "--runs", 50, "--warmup", 10, "--batch", batch, *tuning,
                               *run.profile_options)
                    document = json_of(done["text"]) if done["code"] == 0 else None
                    if document is None:
                        row["problem"] = done["problem"] or "the output is no JSON"
                        break
                    documents[precision] = document
                    row[precision] = {key: document.get(key) for key in KEPT}
                    profiles[f"{model}-b{batch}-{precision}{'-autotuned' if tuned else ''}"] = document
                if "problem" not in row:
                    row["ratio"] = row["fp16"]["graph_ms"] / row["int8"]["graph_ms"]
                    row["slower"] = slower_layers(documents["int8"], documents["fp16"])
    return rows, profiles
