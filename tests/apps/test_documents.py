"""Every example of the documents and of --help runs as it stands; C++ in them compiles.

Networks that would take minutes are replaced by small ones, what is measured is measured for a moment where the example
does not say how long, and what would not end soon is ended: options stay."""

import os
import pathlib
import re
import shutil
import struct
import subprocess
import zlib

import onnx_model
from command import CHECK_FAILED, MODEL, OK, PIPIT, RUNTIME, CommandTest, main

ROOT = pathlib.Path(__file__).parents[2]
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# Words of an example, and what stands for them here.
STAND_INS = {"resnet18": MODEL, "resnet50": MODEL, "efficientnet-lite0": MODEL, "MODEL": "model.onnx", "IMAGE": "photo.jpg"}
SEARCHES = ("tune", "prune")  # in these also
SEARCHED = {MODEL: "model.onnx"}
TESTDATA = "/usr/share/libonnx-testdata"
# Beginnings of examples that go on for long: a moment shows that they are taken.
LONG = ("sweep conv --sample 200", "sweep conv --n 1", "sweep sparsity --precision", "sweep sparsity resnet50",
        "sweep sparsity --layer", "ceilings", "bench model.onnx resnet18", "bench a.onnx", "bench resnet50 --batch", "bench dense.onnx")
SECONDS = 1
IMAGES = 20  # in every folder

WRAPPER = """#!/bin/bash
words=()
for word in "$@"; do
  case $word in
%s
  esac
  case $1:$word in
%s
  esac
  words+=("$word")
done
short() { [[ " ${words[*]} " =~ \ ($2)\  ]] || words+=($1); }  # unless one of these options is given
case $1 in
  prune) short '--search-seconds 0.1' '--keep-ratio' ;;
  bench) short '--seconds 0.1' '--seconds|--runs' ;;
  profile) short '--runs 10' '--runs' ;;
  sweep) short '--seconds 0' '--seconds' ;;
esac
limit=600
case "$*" in
%s
esac
code=0
timeout -s KILL "$limit" "$REAL_PIPIT" "${words[@]}" || code=$?
printf '%%s\\t%%s\\n' "$code" "$*" >> "$PIPIT_LOG"
case $code in 4) code=0 ;; 137) if [ "$limit" != 600 ]; then code=0; fi ;; esac
exit "$code"
"""


def examples(text):
    """The command lines of a document's code blocks that run pipit."""
    for block in re.findall(r"(?ms)^```(?:sh)?\n(.*?)^```", text):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.removeprefix("$ ")
            if re.match(r"pipit |for .*\bdo pipit ", line):
                yield line


def png(side, colour):
    """Like CommandTest.write_bmp."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + b"".join(bytes(max(0, min(255, c + 2 * (x - y))) for c in colour) for x in range(side))
                    for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def classifier(side):
    """Two convolutions, an average and a matrix, for square images and ten classes."""
    def values(count, step):
        return struct.pack(f"<{count}f", *(((i * step) % 17 - 8) / 24 for i in range(count)))

    tensors = [onnx_model.tensor(name, onnx_model.FLOAT, shape, values(count, step))
               for name, shape, count, step in (("w0", (16, 3, 3, 3), 432, 5), ("w1", (16, 16, 3, 3), 2304, 7),
                                                ("w2", (16, 16, 3, 3), 2304, 3), ("w3", (10, 16), 160, 11),
                                                ("b3", (10,), 10, 3))]
    nodes = [onnx_model.node("Conv", ("x", "w0"), "a", "stem", strides=[4, 4]), onnx_model.node("Relu", ("a",), "b"),
             onnx_model.node("Conv", ("b", "w1"), "c", "middle", strides=[2, 2]), onnx_model.node("Relu", ("c",), "d"),
             onnx_model.node("Conv", ("d", "w2"), "e", "last"), onnx_model.node("Relu", ("e",), "f"),
             onnx_model.node("GlobalAveragePool", ("f",), "g"), onnx_model.node("Flatten", ("g",), "h"),
             onnx_model.node("Gemm", ("h", "w3", "b3"), "y", transB=1)]
    return onnx_model.model(("N", 3, side, side), nodes, tensors)


class Examples(CommandTest):
    """Runs command lines where the files are that they name."""

    def setUp(self):
        super().setUp()
        (self.folder / "bin").mkdir()
        wrapper = self.folder / "bin/pipit"
        wrapper.write_text(WRAPPER % (
            "\n".join(f"    {word}) word={stand_in} ;;" for word, stand_in in STAND_INS.items()),
            "\n".join(f"    {command}:{word}) word={stand_in} ;;" for command in SEARCHES
                      for word, stand_in in SEARCHED.items()),
            "\n".join(f'  "{part}"*) limit={SECONDS} ;;' for part in LONG)))
        wrapper.chmod(0o755)
        self.log = self.folder / "log"

    def make_files(self, side, flat):
        """What examples name. `flat`: folders of images without classes."""
        self.keep_ceilings(100, 10)
        for name in ("classes.txt", "imagenet-classes.txt"):
            self.write(name, "\n".join(CLASSES))
        self.write("bare.onnx", classifier(side))
        self.pipit("annotate", "bare.onnx", "--labels", "classes.txt", "--resize", side, "--crop", side, "--output",
                   "model.onnx", "--quiet")
        for name in ("dense", "squeezenet", "squeezenet1_1", "a", "b", "resnet50"):
            shutil.copy(self.folder / "model.onnx", self.folder / f"{name}.onnx")
        # What classify takes where no model is named.
        self.write("cache/pipit/efficientnet-lite0.onnx", self.as_fetched((self.folder / "model.onnx").read_bytes()))
        for name in ("photo.jpg", "cat.jpg", *(("photos/chelsea.png", "photos/coffee.png") if flat else ())):
            self.write(name, png(64, (60, 9 * len(name), 120)))
        for f, folder in enumerate(("photographs", "cifar10-test", "cifar10-train", "images", "IMAGES", "val",
                                    *(() if flat else ("photos",)))):
            for i in range(IMAGES):
                self.write(f"{folder}/{CLASSES[i % 10]}/{i}.png", png(32, (37 * i % 256, 91 * i % 256, 30 * f)))
        self.pipit("prune", "dense.onnx", "images", "--judge-by", "model", "--keep-ratio", "0.5", "--output", "pruned.onnx", "--quiet")
        for name in ("before.json", "after.json"):
            self.write(name, self.pipit_with_notes("bench", MODEL, "--runs", "20", "--json").stdout)

    def prepare(self, line):
        for rows in re.findall(r"--results (\S+)", line):
            (self.folder / rows).unlink(missing_ok=True)  # sweeps go on with them only when told

    def run_lines(self, lines):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "REAL_PIPIT": PIPIT,
                       "PIPIT_LOG": str(self.log)}
        for line in lines:
            with self.subTest(line):
                self.log.unlink(missing_ok=True)
                self.prepare(line)
                done = subprocess.run(["bash", "-eu", "-c", line], cwd=self.folder, env=environment, capture_output=True,
                                      text=True, timeout=1200, check=False)
                codes = [int(run.split("\t")[0]) for run in self.log.read_text().splitlines()]
                self.assertGreaterEqual(len(codes), len(re.findall(r"(?:^|&& |; |do )pipit ", line)))
                if "--device cuda" in line.split(" #")[0] and not self.has_gpu():
                    self.assertIn("cuda", done.stderr)
                    self.assertEqual(set(codes), {RUNTIME})
                else:
                    self.assertEqual(done.returncode, OK, f"{line}\n{done.stdout}\n{done.stderr}")
                    self.assertLessEqual(set(codes), {OK, CHECK_FAILED, 137 if any(p in line for p in LONG) else OK})


class Documents(Examples):
    def test_readme(self):
        self.make_files(32, flat=True)
        lines = list(examples((ROOT / "README.md").read_text(encoding="utf-8")))
        self.assertGreaterEqual(len(lines), 6)
        self.run_lines(lines)

    def test_cli(self):
        self.make_files(224, flat=False)
        lines = list(examples((ROOT / "docs/cli.md").read_text(encoding="utf-8")))
        self.assertGreaterEqual(len(lines), 35)
        self.run_lines(lines)

    def test_other_documents(self):
        self.make_files(227, flat=False)
        names = sorted({*ROOT.glob("docs/**/*.md"), ROOT / "models/README.md", ROOT / "CONTRIBUTING.md"} - {ROOT / "docs/cli.md"})
        lines = [line for name in names for line in examples(name.read_text(encoding="utf-8"))]
        self.assertGreaterEqual(len(lines), 4)
        self.run_lines(lines)


class Help(Examples):
    """Those at the end of --help; images are cut to 227 or 224 in them."""

    def examples(self, of_224):
        def below(command):
            yield from command["examples"]
            for other in command["commands"]:
                yield from below(other)

        lines = list(dict.fromkeys(below(self.json("help"))))
        self.assertGreaterEqual(len(lines), 40)
        return [line for line in lines if ("--crop 224" in line) == of_224 and "pipit fetch" not in line and
                (TESTDATA not in line or os.path.exists(TESTDATA))]  # the first downloads

    def prepare(self, line):
        super().prepare(line)
        for name in ("plan.json", "mixed.json"):
            shutil.copy(self.folder / f"{MODEL if MODEL in line else 'model.onnx'}-plan.json", self.folder / name)

    def make_files(self, side, flat=False):
        super().make_files(side, flat)
        for model, plan, skip in (("model.onnx", "model.onnx-plan", 0), ("model.onnx", "shard1", 4), ("model.onnx", "shard2", 8),
                                  (MODEL, MODEL + "-plan", 0)):
            self.pipit("calibrate", model, "images", "--limit", 2, "--skip", skip, "--output", f"{plan}.json", "--quiet")

    def test_227(self):
        self.make_files(227)
        self.run_lines(self.examples(False))

    def test_224(self):
        self.make_files(224)
        self.run_lines(self.examples(True))


class Cpp(CommandTest):
    PRELUDES = {"docs/adding-a-kernel.md": """#include "layers/common/layer_kernel.h"
#include "layers/ops/softmax.h"
namespace pipit::internal {
Refusal refuse_softmax(const NodeSpec& spec);
void run_softmax(const Softmax&, std::span<const ConstTensorView>, std::span<const TensorView>, const RunContext&);
%s
}
"""}

    def test_blocks_compile(self):
        compiler = shutil.which(os.environ.get("CXX", "c++"))
        self.assertIsNotNone(compiler)
        blocks = [(name, block) for name in sorted({ROOT / "README.md", *ROOT.glob("docs/**/*.md")})
                  for block in re.findall(r"(?ms)^```cpp\n(.*?)^```", name.read_text(encoding="utf-8"))]
        self.assertGreaterEqual(len(blocks), 2)
        for name, block in blocks:
            name = str(name.relative_to(ROOT))
            with self.subTest(name):
                source = self.write("block.cpp", self.PRELUDES.get(name, "%s").replace("%s", block))
                done = subprocess.run([compiler, "-std=gnu++20", "-fsyntax-only", "-Wall", "-I", ROOT, source],
                                      capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    main()
