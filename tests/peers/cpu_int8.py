#!/usr/bin/env python3
"""Times INT8 on the CPU: pipit and ONNX Runtime, each against its own float32, and OpenVINO, interleaved in one run.

    cpu_int8.py build/pipit resnet50.onnx mobilenet_v2.onnx --images photographs --threads 2 --rounds 5

Both quantize the same model, calibrated on the same images: pipit with `pipit calibrate` (every tensor symmetric,
weights per output channel), ONNX Runtime with quantize_static as its documentation recommends for x86 (QDQ, u8
activations, s8 weights per channel, after its own pre-processing), range by min and max unless --method says
otherwise. OpenVINO, where it is installed, runs the file that ONNX Runtime quantized, once with the layers that are not
quantized in its default, bf16 where the CPU multiplies it, and once with them in fp32. The images are read as one input
of the model: short side 256, centre crop of its width, ImageNet's mean.

In every round each of them runs in a process of its own, in turn; rounds rotate the order. Printed: medians over
rounds with their range, and ratios round by round (above 1: pipit is faster). Then the answers: relative error of
each INT8 output against float32's on one of the images, so that none is faster by computing something else; beyond
--max-error (of the norm) the exit code is 4.

Needs: pip install numpy onnx onnxruntime pillow; openvino.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import accuracy
import cpu
from cpu import Case, Skip, call, cpu_name, spread

PEERS = ["onnxruntime"] + ["openvino", "openvino fp32"] * (importlib.util.find_spec("openvino") is not None)
COLUMNS = ["pipit fp32", "pipit int8", "onnxruntime fp32", *(f"{peer} int8" for peer in PEERS)]


def pixels(case: Case, image: Path):
    """One image as the model's input, [1, 3, height, width]."""
    side = case.shape[3]
    how = argparse.Namespace(resize=max(256, side), crop=side, interpolation="bilinear", mean=[0.485, 0.456, 0.406],
                             std=[0.229, 0.224, 0.225])
    return accuracy.preprocess(accuracy.Image.open(image).convert("RGB"), how)


def quantized_by_peer(case: Case, images: list[Path], folder: Path) -> Path:
    """The model as ONNX Runtime quantizes it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.images = iter(images)

        def get_next(self):
            image = next(self.images, None)
            return None if image is None else {case.input: pixels(case, image)}

    prepared = folder / f"{case.name}.prepared.onnx"
    quantized = folder / f"{case.name}.int8.onnx"
    quant_pre_process(str(case.path), str(prepared), skip_symbolic_shape=True)
    quantize_static(str(prepared), str(quantized), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8)
    return quantized


def calibrated(a: argparse.Namespace, case: Case, folder: Path) -> Path:
    """pipit's plan for the model."""
    plan = folder / f"{case.name}.json"
    side = case.shape[3]
    call([str(a.pipit), "calibrate", str(case.path), str(folder / "images"), "--resize", str(max(256, side)), "--crop",
          str(side), "--method", a.method, "--output", str(plan), "--quiet"], a.threads)
    return plan


def run_pipit(a: argparse.Namespace, case: Case, options: list[str]) -> dict:
    command = [str(a.pipit), "bench", str(case.path), "--json", "--quiet", "--threads", str(a.threads), "--batch",
               str(case.batch), "--seconds", str(a.seconds), *options]
    return json.loads(call(command, a.threads))["results"][0]


def answers(a: argparse.Namespace, case: Case, folder: Path, plan: Path, quantized: Path) -> dict[str, float]:
    """Relative error of the two INT8 answers against ONNX Runtime's float32, on the first image."""
    np = accuracy.np
    if case.batch != 1:
        return {}
    x = pixels(case, sorted((folder / "images").iterdir())[0])

    def peer(model: Path):
        return accuracy.onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(
            None, {case.input: x})[0]

    expected = peer(case.path)
    test = folder / f"{case.name}.test"
    data = test / "test_data_set_0"
    data.mkdir(parents=True)
    (test / "model.onnx").symlink_to(case.path.resolve())
    for file, name, value in (("input_0.pb", case.input, x), ("output_0.pb", case.output, expected)):
        (data / file).write_bytes(cpu.onnx.numpy_helper.from_array(value, name).SerializeToString())
    ours = json.loads(call([str(a.pipit), "verify", str(test), "--json", "--norm", "1e30", "--precision", "int8",
                            "--plan", str(plan)], a.threads))["tests"][0]["relative_error"]
    theirs = peer(quantized)
    return {"pipit int8": ours,
            "onnxruntime int8": float(np.linalg.norm(theirs - expected) / np.linalg.norm(expected))}


def measure(case: Case, a: argparse.Namespace, folder: Path) -> dict:
    images = sorted((folder / "images").iterdir())
    plan, quantized = calibrated(a, case, folder), quantized_by_peer(case, images, folder)
    errors = answers(a, case, folder, plan, quantized)
    int8 = Case(quantized, case.batch)
    runs = {
        "pipit fp32": lambda: run_pipit(a, case, []),
        "pipit int8": lambda: run_pipit(a, case, ["--precision", "int8", "--plan", str(plan)]),
        "onnxruntime fp32": lambda: cpu.run_peer("onnxruntime", case, a, a.seconds),
    }
    for peer in PEERS:
        name, _, precision = peer.partition(" ")
        runs[f"{peer} int8"] = lambda name=name, precision=precision: cpu.run_peer(
            name, int8, a, a.seconds, precision=precision or "default")
    times: dict[str, list[float]] = {name: [] for name in COLUMNS}
    computed: dict[str, str] = {}  # what an engine says that it computes floats in
    for r in range(a.rounds):
        turn = r % len(COLUMNS)
        for name in COLUMNS[turn:] + COLUMNS[:turn]:
            row = runs[name]()
            times[name].append(row["median_ms"])
            computed[name] = row["precision"]
    gain = [f / i for f, i in zip(times["pipit fp32"], times["pipit int8"])]
    ratios = {peer: [theirs / ours for theirs, ours in zip(times[f"{peer} int8"], times["pipit int8"])] for peer in PEERS}
    cells = [spread(times[name], 2) for name in COLUMNS] + [spread(gain, 2)]
    cells += [spread(ratio, 2) for ratio in ratios.values()]
    cells += [f"{errors[name]:.3f}" if name in errors else "" for name in ("pipit int8", "onnxruntime int8")]
    print(f"| {case.name} | {case.batch} | {' | '.join(cells)} |", flush=True)
    if "openvino int8" in computed:
        print(f"{case.name}: what is not quantized is in {computed['openvino int8']} in OpenVINO's default",
              file=sys.stderr, flush=True)
    return {"model": case.name, "batch": case.batch, "threads": a.threads, "ms": times, "computed": computed, "gain": gain,
            "ratios": ratios,
            "relative_error": errors}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pipit", type=Path)
    parser.add_argument("models", type=Path, nargs="+", help="ONNX files, or folders with a model.onnx")
    parser.add_argument("--images", type=Path, required=True, help="a folder of photographs to calibrate on")
    parser.add_argument("--limit", type=int, default=32, help="photographs used, spread over the folder [32]")
    parser.add_argument("--method", default="minmax", help="pipit's method of calibration [minmax]")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="timed runs of each engine in a round [1]")
    parser.add_argument("--max-error", type=float, default=0.5, help="of an INT8 answer, relative norm [0.5]")
    parser.add_argument("--json", type=Path, help="also write everything here")
    a = parser.parse_args()
    if missing := cpu.MISSING or accuracy.MISSING:
        parser.exit(1, f"{parser.prog}: {missing}; pip install numpy onnx onnxruntime pillow\n")
    found = sorted(path for path in a.images.glob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not found:
        parser.error(f"--images: {a.images} holds no JPEG or PNG")
    count = min(a.limit, len(found))

    head = ["model", "batch", *(f"{name} ms" for name in COLUMNS), "fp32 / int8"]
    head += [f"{peer} / pipit, int8" for peer in PEERS] + ["error, pipit", "error, onnxruntime"]
    print(f"| {' | '.join(head)} |\n|" + "---|" * len(head), flush=True)
    results = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "images").mkdir()
        for i in range(count):
            image = found[i * len(found) // count]
            (folder / "images" / image.name).symlink_to(image.resolve())
        for path in a.models:
            results.append(measure(Case(path / "model.onnx" if path.is_dir() else path, a.batch), a, folder))
    if a.json:
        document = {"cpu": cpu_name(), "cpus": os.cpu_count(), "rounds": a.rounds, "seconds": a.seconds,
                    "images": count, "method": a.method, "peers": {peer: version(peer) for peer in PEERS if " " not in peer}, "results": results}
        temporary_file = a.json.with_suffix(".tmp")
        temporary_file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        temporary_file.replace(a.json)
    worst = max((error for result in results for error in result["relative_error"].values()), default=0)
    if worst > a.max_error:
        print(f"an INT8 answer is {worst:.2f} of the norm away from float32's", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Skip as reason:
        sys.exit(f"a run failed: {reason}")
