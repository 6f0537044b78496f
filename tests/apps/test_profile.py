"""pipit profile."""

import math
import re
import struct

import onnx_model
from command import MODEL, RUNTIME, USAGE, CommandTest, main


def npy(shape, values, descr="<f4", fortran=False):
    """What numpy.save() writes of 32-bit floats."""
    header = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {tuple(shape)}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + struct.pack(f"<{len(values)}f", *values)


class Profile(CommandTest):
    def test_json(self):
        result = self.json("profile", MODEL, "--runs", "5", "--warmup", "1", "--batch", "2", "--threads", "1")
        self.assertEqual((result["runs"], result["batch"], result["threads"]), (5, 2, 1))
        for name in ("read_ms", "load_ms", "first_run_ms", "arena_bytes", "layers_ms", "end_to_end_ms", "profiler_overhead_ms"):
            self.assertGreater(result[name], 0, name)
        self.assertAlmostEqual(result["first_answer_ms"],
                               result["read_ms"] + result["load_ms"] + result["first_run_ms"], delta=1e-9)
        self.assertNotIn("device_memory_bytes", result)  # of a GPU only
        layers = result["layers"]
        self.assertEqual([layer["index"] for layer in layers], list(range(len(layers))))
        self.assertAlmostEqual(result["residual_ms"], result["end_to_end_ms"] - result["layers_ms"], delta=1e-9)
        self.assertEqual(result["schema"], 1)
        self.assertEqual(len(result["samples_ms"]), 5)
        self.assertLessEqual(result["end_to_end_p10_ms"], result["end_to_end_ms"])
        self.assertLessEqual(result["end_to_end_ms"], result["end_to_end_p90_ms"])
        for layer in layers:
            self.assertEqual(layer["nodes"][0], layer["name"])
            self.assertEqual(sorted(layer["samples_ms"])[2], layer["median_ms"])
            self.assertLessEqual(layer["p10_ms"], layer["median_ms"])
            self.assertLessEqual(layer["median_ms"], layer["p90_ms"])
            self.assertEqual(layer["input"][0], 2)
            self.assertAlmostEqual(layer["share"], layer["median_ms"] / result["layers_ms"], delta=1e-9)
            self.assertEqual(layer["gflops"] > 0, layer["macs"] > 0)

    def test_layers_are_those_of_inspect(self):
        # By order: two timings may choose differently.
        profiled = self.json("profile", MODEL, "--runs", "1")
        inspected = self.json("inspect", MODEL)
        for key in ("name", "type", "kernel", "macs", "geometry", "output"):
            self.assertEqual([layer[key] for layer in profiled["layers"]],
                             [layer[key] for layer in inspected["layers"]])

    def test_text(self):
        text = self.pipit("profile", MODEL, "--runs", "2").stdout
        self.assertRegex(text, r"(?m)^sum of layers +[\d.]+ ms .*\(median of 2 runs\)$")
        self.assertRegex(text, r"(?m)^end to end +[\d.]+ ms   p10 [\d.]+, p90 [\d.]+$")
        self.assertRegex(text, r"(?m)^unexplained +-?[\d.]+ ms")

    def test_floor(self):
        ceilings = self.keep_ceilings(gflops=500, gb_per_s=10)
        result = self.json("profile", MODEL, "--runs", "2", "--floor")
        self.assertEqual(result["ceilings"], ceilings)
        first = result["layers"][0]  # 3x3, 3 to 24 channels on 32x32
        self.assertEqual(first["bytes"], 4 * (3 * 32 * 32 + 24 * 3 * 9 + 24 + 24 * 32 * 32))
        # Weights are packed for whole vectors.
        self.assertGreaterEqual(first["moved_bytes"], first["bytes"])
        self.assertLessEqual(first["moved_bytes"], 4 * (3 * 32 * 32 + 32 * 3 * 9 + 32 + 24 * 32 * 32))
        for layer in result["layers"]:
            compute, memory = 2 * layer["done_macs"] / 500e3, layer["moved_bytes"] / 10e3
            floor = max(compute, memory)
            self.assertAlmostEqual(layer["floor_us"], floor, delta=1e-9 * floor)
            self.assertEqual(layer["bound"], "compute" if compute > memory else "memory")
            self.assertAlmostEqual(layer["x_floor"], 1e3 * layer["median_ms"] / floor, delta=1e-6)
            self.assertAlmostEqual(layer["share_of_limit"], floor / (1e3 * layer["median_ms"]), delta=1e-6)
            self.assertAlmostEqual(layer["flop_per_byte"], 2 * layer["done_macs"] / layer["moved_bytes"], delta=1e-9)
        self.assertAlmostEqual(result["floor_ms"], sum(layer["floor_us"] for layer in result["layers"]) / 1e3, delta=1e-9)
        self.assertAlmostEqual(result["floor_ms"], sum(bound["floor_ms"] for bound in result["bounds"]), delta=1e-9)
        text = self.pipit("profile", MODEL, "--runs", "2", "--floor").stdout
        self.assertRegex(text, r"(?m) FLOP/B +floor us +of limit +bound$")
        self.assertRegex(text, r"(?m)^floor +[\d.]+ ms   (compute|memory) \d+ %.*; the layers take [\d.]+ times as long$")
        self.assertRegex(text, r"(?m)^ceilings +fp32 500 GFLOP/s; reading memory 10 GB/s; of 20")
        convolutions = [layer for layer in result["layers"] if layer["type"] == "Conv"]
        self.assertAlmostEqual(result["convolutions_ms"], sum(layer["median_ms"] for layer in convolutions), delta=1e-9)
        share = 2 * sum(layer["done_macs"] for layer in convolutions) / (1e-3 * result["convolutions_ms"]) / 0.5e12
        self.assertAlmostEqual(result["convolutions_share_of_peak"], share, delta=1e-9)
        self.assertAlmostEqual(result["convolutions_share_of_tiles"], share, delta=1e-9)
        self.assertRegex(text, r"(?m)^convolutions +[\d.]+ ms   [\d.]+ GFLOP/s with padding, [\d.]+% of the peak, [\d.]+% of tiles")

    def test_memory(self):
        result = self.json("profile", MODEL, "--runs", "2", "--threads", "1")
        memory = result["memory"]
        layers = result["layers"]
        self.assertEqual(memory["arena_bytes"], result["arena_bytes"])
        self.assertEqual(memory["workspace_bytes"], max(layer["workspace_bytes"] for layer in layers))
        # A layer's constants are its own here: nothing is counted twice.
        self.assertEqual(memory["packed_bytes"] + memory["constant_bytes"], sum(layer["weight_bytes"] for layer in layers))
        # 1.1 M weights, and what fills up vectors; Winograd keeps more.
        self.assertGreaterEqual(memory["packed_bytes"], 4 * sum(layer["macs"] > 0 for layer in layers))
        self.assertGreater(memory["packed_bytes"], 0.8 * memory["weight_bytes"])
        self.assertGreater(memory["rss_bytes"], memory["packed_bytes"] + memory["arena_bytes"] // 2)
        self.assertGreaterEqual(memory["peak_rss_bytes"], memory["rss_bytes"])
        text = self.pipit("profile", MODEL, "--runs", "2", "--memory").stdout
        for name in ("weights", "packed", "constants", "arena", "workspace", "process", "process peak"):
            self.assertRegex(text, rf"(?m)^{name} +[\d.]+ MiB  [\w';]")
        self.assertRegex(text, r"(?m) weights MiB +workspace MiB$")
        self.assertNotIn("workspace MiB", self.pipit("profile", MODEL, "--runs", "2").stdout)
        self.assertIn("with 1 thread\n", self.pipit("profile", MODEL, "--threads", 1, "--runs", 1).stdout)
        done = self.pipit("profile", MODEL, "--memory", "--threads", "1,2", code=USAGE)
        self.assert_one_line_error(done, "--memory")

    def test_weights_that_layers_share_are_packed_once(self):
        for op, shape, attributes in (("MatMul", (128, 128), {}), ("Conv", (32, 32, 3, 3), {"pads": [1, 1, 1, 1]})):
            count = math.prod(shape)
            weights = onnx_model.tensor("w", onnx_model.FLOAT, shape, struct.pack(f"<{count}f", *(i % 7 - 3 for i in range(count))))
            nodes = []
            for i in range(4):
                nodes += [onnx_model.node(op, [f"x{i}" if i else "x", "w"], f"p{i}", **attributes),
                          onnx_model.node("Tanh", [f"p{i}"], f"x{i + 1}" if i < 3 else "y")]
            file = self.write("shared.onnx", onnx_model.model((8, 128) if op == "MatMul" else (1, 32, 16, 16), nodes, [weights]))
            result = self.json("profile", file, "--runs", "1", "--warmup", "0")
            packed = [layer["weight_bytes"] for layer in result["layers"] if layer["macs"]]
            self.assertEqual(len(packed), 4)
            self.assertGreaterEqual(min(packed), 4 * count)
            ways = set(packed)  # the first layer may have another kernel than those after it
            self.assertLess(len(ways), 3)
            self.assertEqual(result["memory"]["packed_bytes"], sum(ways))

    def test_halves_are_packed_in_half_the_room(self):
        wide, half = (self.json("profile", MODEL, "--runs", "2", "--kernel", "no-winograd", "--precision", precision)["memory"]
                      for precision in ("fp32", "fp16"))
        self.assertAlmostEqual(half["packed_bytes"] / wide["packed_bytes"], 0.5, delta=0.02)

    def test_floors_that_are_beaten_are_told_of(self):
        self.keep_ceilings(gflops=1e-3, gb_per_s=1e-3)
        stderr = self.pipit_with_notes("profile", MODEL, "--runs", "2", "--floor").stderr
        self.assertRegex(stderr, r"(?m)^pipit: note: \d+ layers ran in less than their floors, '[^']+' by \d+ %: .*'pipit ceilings'")
        self.keep_ceilings(gflops=1e9, gb_per_s=1e9)
        self.assertNotIn("floor", self.pipit_with_notes("profile", MODEL, "--runs", "2", "--floor").stderr)

    def rows(self, *arguments):
        """The lines of the table: what stands between its title line and the sums."""
        text = self.pipit("profile", MODEL, "--runs", "3", *arguments).stdout
        return re.search(r"\n\n(.*?\n)(.*)^sum of layers", text, re.M | re.S)[2].splitlines()

    def test_rows_are_sorted(self):
        names = [row.split()[1] for row in self.rows("--sort", "name")]
        self.assertEqual(names, sorted(names))
        self.assertEqual([row.split()[0] for row in self.rows("--sort", "order")], [str(i) for i in range(len(names))])
        slowest, *_, rest = self.rows("--sort", "ms", "--top", "3")
        self.assertRegex(rest, rf"^\.\.\. and {len(names) - 3} layers more, [\d.]+ ms, [\d.]+%$")
        shares = [float(re.search(r"([\d.]+)%", row)[1]) for row in self.rows("--sort", "ms")]
        self.assertEqual(shares, sorted(shares, reverse=True))
        self.assertEqual(len(self.rows("--sort", "macs", "--top", "2")), 3)
        self.assertIn("Conv", slowest)

    def test_layers_of_a_type_together(self):
        layers = self.json("profile", MODEL, "--runs", "3")["layers"]
        for by in ("type", "kernel"):
            profile = self.json("profile", MODEL, "--runs", "3", "--by", by)
            groups = profile["groups"]
            self.assertEqual({group[by] for group in groups}, {layer[by] for layer in layers})
            self.assertEqual(sum(group["layers"] for group in groups), len(layers))
            self.assertEqual(sum(group["macs"] for group in groups), sum(layer["macs"] for layer in layers))
            for group in groups:
                self.assertAlmostEqual(group["share"], group["median_ms"] / profile["layers_ms"], delta=1e-3)
            table = self.rows("--by", by)
            self.assertEqual(len(table), len(groups))
        self.assertRegex("\n".join(self.rows("--by", "type")), r"(?m)^Conv +\d+ +[\d.]+ M +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+%")

    def test_lists_are_joined(self):
        result = self.json("profile", MODEL, "--runs", "3", "--precision", "fp32,int8-dynamic", "--batch", "1,2")
        sides = [(one["precision"], one["batch"]) for one in result["results"]]
        self.assertEqual(sides, [("fp32", 1), ("fp32", 2), ("int8-dynamic", 1), ("int8-dynamic", 2)])
        nodes = [node for row in result["joined"] for node in row["nodes"]]
        self.assertEqual(len(nodes), len(set(nodes)))
        for one in result["results"]:
            self.assertLessEqual({node for layer in one["layers"] for node in layer["nodes"]}, set(nodes))
        for row in result["joined"]:
            first, *others = row["median_ms"]
            for ms, speedup, batch in zip(others, row["speedup"][1:], (2, 1, 2)):
                if first and ms:
                    self.assertAlmostEqual(speedup, first / (ms / batch), delta=1e-9 * speedup)
                else:
                    self.assertIsNone(speedup)
        text = self.pipit("profile", MODEL, "--runs", "3", "--threads", "1,2").stdout
        self.assertIn("x is how many times as fast as with 1 thread", text)
        self.assertRegex(text, r"(?m)^layer +type +1 thread ms +p10 +p90 +2 threads ms +p10 +p90 +x +kernel 1 thread")
        self.assertRegex(text, r"(?m)^sum of layers( +[\d.]+){7}$")
        self.assertRegex(text, r"(?m)^end to end( +[\d.]+){7}$")
        for option in (("--floor",), ("--by", "type")):
            done = self.pipit("profile", MODEL, "--threads", "1,2", *option, code=USAGE)
            self.assert_one_line_error(done, option[0])

    def test_input_file(self):
        model = self.write("relu.onnx", onnx_model.model((2, 3, 2, 2), [onnx_model.node("Relu", ["x"], "y")]))
        one = [float(i) for i in range(12)]
        for name, shape, values in (("batch.npy", (2, 3, 2, 2), one * 2), ("one.npy", (1, 3, 2, 2), one),
                                    ("sample.npy", (3, 2, 2), one)):
            path = self.write(name, npy(shape, values))
            self.assertEqual(self.json("profile", model, "--runs", "1", "--input", path)["input"], str(path))
        for content, words in ((npy((5,), one[:5]), ("2x3x2x2", "5")), (npy((2, 3, 2, 2), one), ("bytes",)),
                               (npy((12,), one, ">f4"), (">f4", "float32")),
                               (npy((3, 2, 2), one, fortran=True), ("ascontiguousarray",)),
                               (npy((3, 2, 2), one)[:40], ("header",)), (npy((3, 2, 2), one)[:9], ("numpy.save",)),
                               (npy((-3, 2, 2), one), ("-3",)), (npy(("a", 2), one), ("extent",)),
                               (npy((1 << 40, 1 << 40), one), ("bad.npy",)), (npy((1 << 62,), one), ("bad.npy",)), (npy((1,) * 9, one), ("dimensions",))):
            path = self.write("bad.npy", content)
            done = self.pipit("profile", model, "--input", path, code=RUNTIME)
            self.assert_one_line_error(done, *words)
        self.assert_one_line_error(self.pipit("profile", model, "--input", "missing.npy", code=RUNTIME), "missing.npy")
        self.write_bmp("image.bmp", (90, 120, 150))
        self.assertEqual(self.json("profile", MODEL, "--runs", "1", "--batch", "2", "--input", "image.bmp")["batch"], 2)
        for options in ((), ("--input", "image.bmp")):
            result = self.json("profile", MODEL, "--runs", "1", "--batch", "2", "--image-bytes", *options)
            first = result["layers"][0]
            self.assertEqual((result["input_type"], first["type"], first["input_type"]), ("u8", "NormalizeImage", "u8"))
            self.assertEqual(self.json("profile", MODEL, "--runs", "1", *options)["input_type"], "f32")
        done = self.pipit("profile", MODEL, "--image-bytes", "--input", "one.npy", code=RUNTIME)
        self.assert_one_line_error(done, "one.npy", "--image-bytes")

    def test_a_table_fits_its_terminal(self):
        self.keep_ceilings(gflops=1000, gb_per_s=1000)
        wide = self.pipit("profile", MODEL, "--runs", "2").stdout
        title = next(line for line in wide.splitlines() if "kernel" in line and "share" in line)
        self.assertGreater(max(len(line) for line in wide.splitlines()), 100)
        for columns in (80, 100):
            text = self.on_a_terminal(columns, "profile", MODEL, "--runs", "2", "--floor")
            self.assertLessEqual(max(len(line) for line in text.splitlines()), columns)
            table = text.split("sum of layers")[0]
            for word in ("layer", "ms", "share"):
                self.assertRegex(table, rf"\b{word}\b")
        self.assertIn(title.split(), [line.split() for line in self.on_a_terminal(80, "profile", MODEL, "--runs", "2", "--wide").splitlines()])
        narrow = self.on_a_terminal(30, "profile", MODEL, "--runs", "2").split("sum of layers")[0].splitlines()
        self.assertLessEqual(max(len(line) for line in narrow[1:]), 30)
        self.assertTrue(any("..." in line for line in narrow))

    def test_settings_fit_a_terminal(self):
        settings = ("--threads", "1,2", "--precision", "fp32,int8-dynamic", "--quiet")
        lines = self.on_a_terminal(80, "profile", MODEL, "--runs", "2", *settings).splitlines()
        self.assertIn("4: int8-dynamic, 2 threads", lines)
        rows = lines[next(i for i, line in enumerate(lines) if line.startswith("layer ")):]
        self.assertEqual(re.findall(r"\d: ms", rows[0]), ["1: ms", "2: ms", "3: ms", "4: ms"])
        self.assertLessEqual(max(map(len, rows)), 80)
        self.assertTrue(any(row.startswith("sum of layers ") for row in rows))
        self.assertIn("fp32, 1 thread ms", self.on_a_terminal(80, "profile", MODEL, "--runs", "2", *settings, "--wide"))

    def test_integer_convolutions_count(self):
        result = self.json("profile", MODEL, "--precision", "int8-dynamic", "--runs", "2", "--threads", "1")
        convolutions = [layer for layer in result["layers"] if layer["type"] in ("Conv", "DynamicQConv")]
        self.assertIn(("DynamicQConv", "int8"), {(layer["type"], layer["products"]) for layer in convolutions})
        for layer in convolutions:
            self.assertGreaterEqual(layer["done_macs"], layer["macs"])


if __name__ == "__main__":
    main()
