#!/usr/bin/env python3
"""Times pipit against PyTorch on the same NVIDIA GPU, interleaved in one run: ResNet-18 and ResNet-50 in fp16.

Both sides are the device time of one replay of a captured CUDA graph, between two events, median of --runs replays
after a warm-up. PyTorch runs channels-last with cudnn.benchmark (and, with --compile, also torch.compile's
max-autotune) on a half-precision input that lies on the card; pipit's graph also converts the user's float32 NCHW
image. In each round every engine is timed once, in turn, so that drift of the card hits all. Weights are random on
both sides; the script stops if the multiply-accumulates of the networks differ.

    gpu.py build/pipit --rounds 5 --json peers.json

Prints the median over rounds with its range, the ratio of each round (peer / pipit: above 1 means that pipit is
faster) and the memory on the card beyond the context: at worst, and once ready to run. Exits 77 with the reason where
PyTorch or a GPU is missing.
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

try:
    import torch
    from torch import nn
except ImportError as e:
    print(f"SKIP: {e}")
    sys.exit(77)

# Those that matter most first, for when the time runs out.
CONFIGURATIONS = [("resnet50", 1), ("resnet50", 32), ("resnet18", 1), ("resnet18", 32), ("resnet50", 128),
                  ("resnet18", 128)]
WARMUP = 10


class Block(nn.Module):
    """A residual block: `convolutions` (channels, kernel, stride), the shortcut projected where the shape changes."""

    def __init__(self, channels, convolutions, stride):
        super().__init__()
        layers, inside = [], channels
        for out, kernel, step in convolutions:
            layers += [nn.Conv2d(inside, out, kernel, step, kernel // 2, bias=False), nn.BatchNorm2d(out), nn.ReLU()]
            inside = out
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Identity()
        if stride != 1 or channels != inside:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, inside, 1, stride, bias=False), nn.BatchNorm2d(inside))

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet(name: str) -> nn.Module:
    """ResNet-18 and ResNet-50 (v1.5) as torchvision has them."""
    depths, bottleneck = {"resnet18": ((2, 2, 2, 2), False), "resnet50": ((3, 4, 6, 3), True)}[name]
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                               nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        for i in range(depth):
            stride = 2 if i == 0 and stage > 0 else 1
            convolutions = ([(width, 1, 1), (width, 3, stride), (4 * width, 1, 1)] if bottleneck
                            else [(width, 3, stride), (width, 3, 1)])
            layers.append(Block(channels, convolutions, stride))
            channels = convolutions[-1][0]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def count_macs(model: nn.Module, x: torch.Tensor) -> int:
    """Multiply-accumulates of the convolutions and the classifier."""
    total = 0

    def add(module, _, output):
        nonlocal total
        depth = module.weight.numel() // module.weight.shape[0]
        total += output.numel() * depth

    hooks = [m.register_forward_hook(add) for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    return total


def taken(free_before: int) -> int:
    return max(0, free_before - torch.cuda.mem_get_info()[0])


class Peer:
    """One network captured into a CUDA graph, and what it takes on the card."""

    def __init__(self, name: str, batch: int, compiled: bool):
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        free = torch.cuda.mem_get_info()[0]
        self.model = resnet(name).eval().half().to("cuda", memory_format=torch.channels_last)
        self.x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half)
        self.x = self.x.to(memory_format=torch.channels_last)
        self.macs = count_macs(self.model, self.x)
        # Its own graphs would be captured inside ours.
        run = torch.compile(self.model, mode="max-autotune-no-cudagraphs") if compiled else self.model
        with torch.no_grad():
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    run(self.x)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = run(self.x)
        self.graph.replay()
        torch.cuda.synchronize()
        if not bool(torch.isfinite(self.y).all()):
            sys.exit(f"PyTorch's {name} gives values that are not finite")
        # What the library's search took and gave back counts at worst, not afterwards.
        reserved = torch.cuda.memory_stats()["reserved_bytes.all.peak"]
        self.peak_bytes = taken(free) + max(0, reserved - torch.cuda.memory_reserved())
        torch.cuda.empty_cache()
        self.bytes = taken(free)

    def measure(self, runs: int) -> float:
        """Median milliseconds of one replay."""
        times = []
        for i in range(WARMUP + runs):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            self.graph.replay()
            end.record()
            end.synchronize()
            if i >= WARMUP:
                times.append(begin.elapsed_time(end))
        return statistics.median(times)


def pipit_profile(pipit: Path, name: str, batch: int, runs: int, options: list[str]) -> dict:
    command = [str(pipit), "profile", name, "--device", "cuda", "--precision", "fp16", "--batch", str(batch), "--runs",
               str(runs), "--warmup", str(WARMUP), "--json", "--quiet", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def spread(values: list[float]) -> dict:
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "rounds": values}


def compare(a: argparse.Namespace, name: str, batch: int) -> dict:
    engines = {"torch": Peer(name, batch, False)}
    absent = {}
    if a.compile and batch <= 32:
        try:
            engines["torch.compile"] = Peer(name, batch, True)
        except Exception as e:  # it runs compilers of its own, and they fail in many ways
            absent["torch.compile"] = f"{type(e).__name__}: {str(e).strip().splitlines()[0] if str(e).strip() else ''}"
    times: dict[str, list[float]] = {engine: [] for engine in ("pipit", *engines)}
    ours: dict = {}
    for _ in range(a.rounds):
        ours = pipit_profile(a.pipit, name, batch, a.runs, a.profile_options)
        times["pipit"].append(ours["graph_ms"])
        for engine, peer in engines.items():
            times[engine].append(peer.measure(a.runs))
    macs = sum(layer["macs"] for layer in ours["layers"])
    if macs != engines["torch"].macs:
        sys.exit(f"{name}: pipit counts {macs} multiply-accumulates, PyTorch {engines['torch'].macs}: not the same network")
    row = {"model": name, "batch": batch, "precision": "fp16", "runs": a.runs, "macs": macs,
           "pipit_ms": spread(times["pipit"]), "pipit_memory_bytes": ours.get("device_memory_bytes"),
           "pipit_memory_peak_bytes": ours.get("device_memory_peak_bytes"), "peers": {}, "absent": absent}
    for engine, peer in engines.items():
        row["peers"][engine] = {
            "ms": spread(times[engine]),
            "ratio": spread([theirs / mine for theirs, mine in zip(times[engine], times["pipit"])]),
            "memory_bytes": peer.bytes, "memory_peak_bytes": peer.peak_bytes}
    return row


def line(row: dict) -> str:
    def shown(s, digits):
        return f"{s['median']:.{digits}f} [{s['min']:.{digits}f}, {s['max']:.{digits}f}]"

    text = f"{row['model']} batch {row['batch']}: pipit {shown(row['pipit_ms'], 3)} ms"
    for engine, peer in row["peers"].items():
        text += f"; {engine} {shown(peer['ms'], 3)} ms, ratio {shown(peer['ratio'], 2)}"
    for engine, reason in row["absent"].items():
        text += f"; no {engine}: {reason}"
    return text


def write(path: Path, document: dict) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n")
    temporary.replace(path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=50, help="timed replays per round and engine")
    parser.add_argument("--compile", action="store_true", help="also torch.compile, up to batch 32 (takes minutes)")
    parser.add_argument("--profile-options", default=[], type=shlex.split, metavar="'OPTION...'",
                        help="further options of pipit profile")
    parser.add_argument("--seconds", type=float, help="start no further configuration after this time")
    parser.add_argument("--only", help="one configuration, for example resnet50:32")
    parser.add_argument("--json", type=Path, help="also write everything here, after every configuration")
    a = parser.parse_args()
    start = time.monotonic()
    if a.rounds < 1 or a.runs < 1:
        parser.error("--rounds and --runs are 1 or more")
    chosen = [c for c in CONFIGURATIONS if a.only in (None, f"{c[0]}:{c[1]}")]
    if not chosen:
        parser.error(f"--only {a.only}: there are " + ", ".join(f"{m}:{b}" for m, b in CONFIGURATIONS))
    if not torch.cuda.is_available():
        print("SKIP: PyTorch finds no GPU")
        return 77
    torch.backends.cudnn.benchmark = True
    torch.zeros(1, device="cuda")
    document: dict = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cuda": torch.version.cuda,
                      "cudnn": torch.backends.cudnn.version(), "profile_options": shlex.join(a.profile_options),
                      "results": []}
    for name, batch in chosen:
        if a.seconds and document["results"] and time.monotonic() - start > a.seconds:
            document.setdefault("left_out", []).append(f"{name}:{batch}")
            continue
        document["results"].append(compare(a, name, batch))
        print(line(document["results"][-1]), flush=True)
        if a.json:
            write(a.json, document)
    if left_out := document.get("left_out"):
        print(f"no time for {', '.join(left_out)}")
        if a.json:
            write(a.json, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
