"""pipit calibrate: what it writes, what does not change it, and what it refuses."""

import json
import os
import re
import signal
import struct
import subprocess
import time

import onnx_model
from command import MODEL, PIPIT, RUNTIME, UNSUPPORTED, USAGE, CommandTest, main, take_interrupts


class Calibrate(CommandTest):
    def setUp(self):
        super().setUp()
        for i in range(7):
            self.write_bmp(f"images/{i}.bmp", (30 * i, 250 - 20 * i, 90 + 10 * i))

    def calibrate(self, *arguments, output="plan.json"):
        self.pipit("calibrate", *arguments, "--output", output, "--quiet")
        return json.loads((self.folder / output).read_text())

    def test_writes_a_plan_that_a_person_can_read(self):
        plan = self.calibrate(MODEL, "images", "--method", "minmax")
        self.assertEqual((plan["pipit_precision_plan"], plan["method"], plan["weights"]), (2, "minmax", "per_channel"))
        self.assertEqual(plan["images"]["count"], 7)
        self.assertEqual(sorted(plan["images"]["files"]), [f"{i}.bmp" for i in range(7)])
        for tensor in plan["tensors"]:
            largest = max(-tensor["min"], tensor["max"])
            self.assertGreater(largest, 0, tensor)
            self.assertAlmostEqual(tensor["threshold"] / largest, 1, places=6)
            self.assertAlmostEqual(tensor["scale"] * 127 / largest, 1, places=6)
            self.assertEqual(tensor["clipped"], 0)
            self.assertIn(tensor["name"], plan["histograms"])
        # Every convolution of ResNet-20 writes one, and reads the image or another's.
        self.assertGreaterEqual(len(plan["tensors"]), 20)

    def test_threads_and_order_change_nothing_and_shards_add_up(self):
        whole = self.calibrate(MODEL, "images", "--threads", 1, output="whole.json")
        self.assertEqual(whole, self.calibrate(MODEL, "images", "--threads", 3, output="threads.json"))
        for i in range(7):
            target = self.folder / ("one" if i % 3 else "two")
            target.mkdir(exist_ok=True)
            (self.folder / f"images/{i}.bmp").rename(target / f"{i}.bmp")
        self.calibrate(MODEL, "one", output="a.json")
        self.calibrate(MODEL, "two", output="b.json")
        self.assertEqual(whole, self.calibrate("--merge", "b.json", "a.json", output="merged.json"))

    def test_merged_plans_take_another_method_and_nothing_else(self):
        whole = self.calibrate(MODEL, "images", "--method", "minmax", output="minmax.json")
        self.calibrate(MODEL, "images", output="mse.json")
        self.assertEqual(whole, self.calibrate("--merge", "mse.json", "--method", "minmax", output="again.json"))
        for option in (["--equalize"], ["--per-tensor-weights"], ["--limit", 3], ["--preset", "caffe"]):
            done = self.pipit("calibrate", "--merge", "mse.json", *option, "--output", "x.json", code=USAGE)
            self.assert_one_line_error(done, option[0], "--merge")

    def test_what_is_read_is_not_replaced(self):
        before = self.calibrate(MODEL, "images")
        (self.folder / "link.json").symlink_to("plan.json")
        for output in ("plan.json", "link.json"):
            done = self.pipit("calibrate", "--merge", "plan.json", "--output", output, code=USAGE)
            self.assert_one_line_error(done, output)
            done = self.pipit("quantize", MODEL, "--plan", "plan.json", "--output", output, code=USAGE)
            self.assert_one_line_error(done, output)
        done = self.pipit("calibrate", MODEL, "images/1.bmp", "--output", "images/1.bmp", code=USAGE)
        self.assert_one_line_error(done, "images/1.bmp")
        done = self.pipit("calibrate", MODEL, "images", "--output", "images/1.bmp", code=USAGE)
        self.assert_one_line_error(done, "images/1.bmp")
        self.write("plan.trt-cache", "")
        done = self.pipit("calibrate", "--merge", "plan.json", "plan.trt-cache", "--export", "trt-cache", "--output",
                          "plan.x", code=USAGE)
        self.assert_one_line_error(done, "--export", "plan.trt-cache")
        self.assertEqual(json.loads((self.folder / "plan.json").read_text()), before)

    def test_outputs_are_checked_before_the_work(self):
        self.write("images/broken.bmp", "no image")  # what the work would stumble over
        (self.folder / "plan.trt-cache").mkdir()
        (self.folder / "folder").mkdir()
        for output in ("no/such/plan.json", "folder", "images/0.bmp/plan.json"):
            done = self.pipit("calibrate", MODEL, "images", "--output", output, code=RUNTIME)
            self.assert_one_line_error(done, output)
            done = self.pipit("tune", MODEL, "images", "--max-drop", 1, "--output", output, code=RUNTIME)
            self.assert_one_line_error(done, output)
            done = self.pipit("tune", MODEL, "images", "--max-drop", 1, "--output", "o.json", "--save-svg", output,
                              code=RUNTIME)
            self.assert_one_line_error(done, output)
        done = self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--export", "trt-cache", code=RUNTIME)
        self.assert_one_line_error(done, "plan.trt-cache", "folder")
        done = self.pipit("tune", MODEL, "images", "--max-drop", 1, "--output", "o.json", "--save-svg", "images/0.bmp",
                          code=USAGE)
        self.assert_one_line_error(done, "--save-svg", "images/0.bmp")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["folder", "images", "plan.trt-cache"])

    def test_a_plan_may_lack_any_tensor(self):
        plan = self.calibrate(MODEL, "images", "--no-histograms")
        for k, tensor in enumerate(plan["tensors"]):
            with self.subTest(tensor["name"]):
                self.write("less.json", json.dumps(plan | {"tensors": plan["tensors"][:k] + plan["tensors"][k + 1:]}))
                self.json("classify", MODEL, "images/1.bmp", "--precision", "int8", "--plan", "less.json", "--quiet")

    def test_methods_never_reach_beyond_the_largest_value(self):
        largest = {t["name"]: t["threshold"] for t in self.calibrate(MODEL, "images", "--method", "minmax")["tensors"]}
        for method in ("percentile", "entropy", "mse"):
            plan = self.calibrate(MODEL, "images", "--method", method, "--no-histograms")
            self.assertNotIn("histograms", plan)
            smaller = 0
            for tensor in plan["tensors"]:
                self.assertLessEqual(tensor["threshold"], largest[tensor["name"]])
                smaller += tensor["threshold"] < largest[tensor["name"]]
            self.assertGreater(smaller, 0, method)

    def test_a_node_with_the_name_of_a_word_is_told_of(self):
        floats = lambda name, shape, count: onnx_model.tensor(name, onnx_model.FLOAT, shape, struct.pack("<f", 0.1) * count)
        node = onnx_model.node
        nodes = [node("Conv", ["x", "v"], "a", "stem"), node("Conv", ["a", "w"], "b", "first"), node("Conv", ["b", "w"], "c", "end"),
                 node("GlobalAveragePool", ["c"], "g"), node("Flatten", ["g"], "y")]
        self.write("model.onnx", onnx_model.model((1, 3, 8, 8), nodes, [floats("v", (4, 3, 1, 1), 12), floats("w", (4, 4, 1, 1), 16)]))
        self.calibrate("model.onnx", "images")
        planned = ("--plan", "plan.json")
        for command, *options in (("calibrate", "images", "--output", "other.json"), ("quantize", *planned, "--output", "q.onnx"),
                                  ("diff", "images", "--fast", *planned), ("inspect", "--precision", "int8", *planned),
                                  ("classify", "images/0.bmp", "--precision", "int8", *planned),
                                  ("tune", "images", "--judge-by", "model", "--max-drop", 100, "--output", "t.json")):
            kept = (command, "model.onnx", *options, "--keep")
            notes = " ".join(self.pipit_with_notes(*kept, "first=fp32").stderr.split())
            self.assertEqual(notes.count("keep: 'first' is the node of that name; the model's first convolution or fully connected "
                                         "layer is 'stem'"), 1, command)
            self.assertNotIn("is the node of", self.pipit_with_notes(*kept, "last=fp32").stderr, command)

    def test_exports_for_other_engines(self):
        plan = self.calibrate(MODEL, "images", "--method", "entropy", "--export", "trt-cache", "--export", "ncnn")
        cache = (self.folder / "plan.trt-cache").read_text().splitlines()
        self.assertEqual(cache[0], "TRT-100300-EntropyCalibration2")
        self.assertEqual(len(cache), 1 + len(plan["tensors"]))
        for line in cache[1:]:
            self.assertRegex(line, r"^\S+: [0-9a-f]{8}$")
        table = (self.folder / "plan.ncnn-table").read_text().splitlines()
        weights = [line for line in table if re.match(r"\S+_param_0 ", line)]
        self.assertEqual(len(table), 2 * len(weights))
        layers = self.json("inspect", MODEL)["layers"]
        self.assertEqual(len(weights), sum(layer["type"] in ("Conv", "Gemm") for layer in layers))

    def test_ncnns_table_has_no_layer_that_is_kept(self):
        self.calibrate(MODEL, "images", "--export", "ncnn", "--keep", "first=fp32", "--keep", "last=fp16")
        names = [line.split()[0] for line in (self.folder / "plan.ncnn-table").read_text().splitlines()]
        layers = [layer["name"] for layer in self.json("inspect", MODEL)["layers"] if layer["type"] in ("Conv", "Gemm")]
        self.assertEqual(len(names), 2 * (len(layers) - 2))
        self.assertNotIn(layers[0], names)
        self.assertNotIn(layers[-1], names)

    def test_layers_that_a_plan_leaves_out_are_told_of(self):
        plan = self.calibrate(MODEL, "images", "--no-histograms")
        arguments = ("inspect", MODEL, "--precision", "int8", "--plan", "plan.json")
        self.pipit(*arguments)
        del plan["tensors"][5:]
        self.write("plan.json", json.dumps(plan))
        self.assert_one_line_error(self.pipit_with_notes(*arguments), "note", "not in INT8")
        self.pipit(*arguments, "--quiet")

    def test_keeps_layers_in_floating_point(self):
        plan = self.calibrate(MODEL, "images", "--no-histograms", "--keep", "first=fp32", "--keep", "last=fp16")
        names = [layer["name"] for layer in self.json("inspect", MODEL)["layers"] if layer["type"] in ("Conv", "Gemm")]
        self.assertEqual(set(plan["keep"]), {names[0], names[-1], "/pool/GlobalAveragePool"})
        self.assertEqual((plan["keep"][names[0]], plan["keep"][names[-1]]), ("fp32", "fp16"))
        int8 = ("inspect", MODEL, "--precision", "int8", "--plan", "plan.json", "--quiet")

        def in_int8(*arguments):
            layers = self.json(*int8, *arguments)["layers"]
            return {layer["name"] for layer in layers if layer["type"] == "QConv"}

        self.assertEqual(in_int8(), set(names[1:-1]))
        self.assertEqual(in_int8("--keep", f"{names[3]}=fp32"), set(names[1:-1]) - {names[3]})
        done = self.pipit(*int8, "--keep", f"{names[3]}x=fp32", code=RUNTIME)
        self.assert_one_line_error(done, names[3] + "x", f"did you mean '{names[3]}'")
        self.assert_one_line_error(self.pipit(*int8, "--keep", names[3], code=USAGE), "--keep", "NAME=fp32")
        done = self.pipit(*int8, "--keep", "first=fp32", "--keep", f"{names[0]}=int8", code=RUNTIME)
        self.assert_one_line_error(done, names[0], "in fp32 and in int8")
        done = self.pipit("inspect", MODEL, "--keep", "first=fp32", code=USAGE)
        self.assert_one_line_error(done, "--keep", "--precision int8")
        done = self.pipit("calibrate", MODEL, "images", "--keep", "nothing=fp32", "--output", "x.json", code=RUNTIME)
        self.assert_one_line_error(done, "nothing")
        self.assertFalse((self.folder / "x.json").exists())

    def test_the_average_before_the_scores_is_kept_and_why(self):
        pool = "/pool/GlobalAveragePool"
        done = self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet")
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual(list(plan["keep"]), [pool])
        self.assertEqual(plan["keep"][pool]["precision"], "fp32")
        self.assertIn(f"{pool} stays in fp32: {plan['keep'][pool]['why']}\n", done.stdout)
        int8 = ("inspect", MODEL, "--precision", "int8", "--plan", "plan.json", "--quiet")

        def pool_type(*arguments):
            return {layer["name"]: layer["type"] for layer in self.json(*int8, *arguments)["layers"]}[pool]

        self.assertEqual((pool_type(), pool_type("--keep", f"{pool}=int8")), ("Pool", "QAveragePool"))
        # Plans are edited, too: without the entry, and with the short form.
        for kept, expected in (({}, "QAveragePool"), ({pool: "fp16"}, "Pool")):
            self.write("plan.json", json.dumps({**plan, "keep": kept}))
            self.assertEqual(pool_type(), expected)
        self.assertEqual(self.calibrate(MODEL, "images", "--keep", f"{pool}=int8")["keep"], {})

    def test_few_images_are_told_of(self):
        arguments = ("calibrate", MODEL, "images", "--output", "plan.json")
        self.assert_one_line_error(self.pipit_with_notes(*arguments), "note", "7 images are few")
        self.pipit(*arguments, "--quiet")
        for i in range(32):
            self.write_bmp(f"many/{i}.bmp", (8 * i, 255 - 8 * i, 90))
        self.calibrate(MODEL, "many")

    def test_images_whose_names_print_alike_stay_apart(self):
        os.mkdir(self.folder / "alike")
        for i, name in enumerate((b"a\xff.bmp", b"a\\xff.bmp", b"a\\\\xff.bmp", "a\u202e.bmp".encode(), b"a\\u202e.bmp")):
            image = self.write_bmp("one.bmp", (40 * i, 90, 200))
            os.rename(image, os.path.join(os.fsencode(self.folder / "alike"), name))
        plan = self.calibrate(MODEL, "alike")
        self.assertEqual(plan["images"]["count"], 5)
        self.assertEqual(len(plan["images"]["files"]), 5)
        self.assertEqual(len(set(plan["images"]["files"].values())), 5)
        self.pipit("inspect", MODEL, "--precision", "int8", "--plan", "plan.json", "--quiet")
        self.write_bmp("rest/0.bmp", (1, 2, 3))
        self.calibrate(MODEL, "rest", output="rest.json")
        self.assertEqual(self.json("calibrate", "--merge", "plan.json", "rest.json", "--output", "all.json")["images"]["count"], 6)

    def test_copies_are_told_of(self):
        self.write("images/copy.bmp", (self.folder / "images/3.bmp").read_bytes())
        notes = self.pipit_with_notes("calibrate", MODEL, "images", "--output", "plan.json").stderr
        self.assertIn("1 of the 8 images calibrated on has the same bytes as another", notes)

    def test_plans_of_other_models_are_refused(self):
        self.calibrate(MODEL, "images")
        done = self.pipit("inspect", "resnet18", "--precision", "int8", "--plan", "plan.json", code=RUNTIME)
        self.assert_one_line_error(done, "plan.json", "another model", MODEL)

    def write_conv(self, name, before, weight):
        """y = Conv(before(x)) of one channel in, two out, with weights (weight, 0)."""
        weights = onnx_model.tensor("w", onnx_model.FLOAT, (2, 3, 1, 1), struct.pack("<6f", *[weight] * 3, 0, 0, 0))
        nodes = [onnx_model.node(before, ["x"], "s"), onnx_model.node("Conv", ["s", "w"], "c"),
                 onnx_model.node("GlobalAveragePool", ["c"], "p"), onnx_model.node("Flatten", ["p"], "y")]
        return self.write(name, onnx_model.model((1, 3, 32, 32), nodes, [weights]))

    def test_nan_activations_are_refused_by_name(self):
        self.write_conv("nan.onnx", "Sqrt", 1)  # of negative pixels
        done = self.pipit("calibrate", "nan.onnx", "images", "--output", "out.json", "--quiet", code=RUNTIME)
        self.assert_one_line_error(done, "tensor 's'", "nan")
        self.assertFalse((self.folder / "out.json").exists())

    def test_constant_tensors_and_dead_channels_work(self):
        self.write_conv("ones.onnx", "Ceil", 0.5)
        for i in range(3):
            self.write(f"flat/{i}.bmp", self.write_bmp("white.bmp", (1000, 1000, 1000)).read_bytes())
        plan = self.calibrate("ones.onnx", "flat", "--mean", "0,0,0", "--std", "1,1,1", "--method", "entropy")
        ranges = {t["name"]: (t["min"], t["max"]) for t in plan["tensors"]}
        self.assertEqual(ranges["s"], (1, 1))
        self.assertEqual(ranges["c"], (0, 1.5))
        done = self.json("classify", "ones.onnx", "flat/0.bmp", "--mean", "0,0,0", "--std", "1,1,1", "--precision",
                         "int8", "--plan", "plan.json")
        self.assertEqual(done["images"][0]["top"][0]["class"], 0)

    def test_the_graph_that_is_observed_is_the_one_that_is_quantized(self):
        """A matrix product over an axis of the image becomes a convolution of its transpose: fused once more, the
        padding before it would go after the transpose, with tensors that no other command knows."""
        tensors = [onnx_model.tensor("pads", onnx_model.INT64, (8,), struct.pack("<8q", 0, 0, 1, 0, 0, 0, 1, 0)),
                   onnx_model.tensor("w", onnx_model.FLOAT, (8, 5), struct.pack("<40f", *[i % 7 - 3 for i in range(40)]))]
        nodes = [onnx_model.node("Pad", ["x", "pads"], "wide"), onnx_model.node("MatMul", ["wide", "w"], "m"),
                 onnx_model.node("Flatten", ["m"], "y")]
        self.write("pad.onnx", onnx_model.model((1, 3, 6, 8), nodes, tensors))
        self.calibrate("pad.onnx", "images")
        self.pipit("quantize", "pad.onnx", "--plan", "plan.json", "--output", "q.onnx", "--quiet")
        self.pipit("diff", "pad.onnx", "images", "--plan", "plan.json", "--quiet")
        planned = self.json("classify", "pad.onnx", "images/1.bmp", "--precision", "int8", "--plan", "plan.json", "--quiet")
        written = self.json("classify", "q.onnx", "images/1.bmp", "--quiet")
        self.assertEqual(planned["images"][0]["top"], written["images"][0]["top"])

    def test_a_batch_that_the_model_mixes(self):
        """Seven images in batches of two that become one of four after the first layer: no tensor counts sevenths."""
        tensors = [onnx_model.tensor("pads", onnx_model.INT64, (8,), struct.pack("<8q", 1, *[0] * 3, 1, *[0] * 3)),
                   onnx_model.tensor("w", onnx_model.FLOAT, (2, 3, 1, 1), struct.pack("<6f", *range(1, 7)))]
        nodes = [onnx_model.node("Pad", ["x", "pads"], "four"), onnx_model.node("Conv", ["four", "w"], "c"),
                 onnx_model.node("Flatten", ["c"], "y")]
        self.write("mixed.onnx", onnx_model.model((2, 3, 4, 4), nodes, tensors))
        self.assertEqual(self.calibrate("mixed.onnx", "images")["images"]["count"], 7)
        self.pipit("quantize", "mixed.onnx", "--plan", "plan.json", "--output", "q.onnx", "--quiet")

    def test_models_with_nothing_to_quantize_are_refused(self):
        nodes = [onnx_model.node("GlobalAveragePool", ["x"], "p"), onnx_model.node("Flatten", ["p"], "y")]
        self.write("pool.onnx", onnx_model.model((1, 3, 32, 32), nodes))
        done = self.pipit("calibrate", "pool.onnx", "images", "--output", "out.json", "--quiet", code=UNSUPPORTED)
        self.assert_one_line_error(done, "pool.onnx", "nothing to quantize")

    def test_an_interrupt_leaves_no_file(self):
        self.write_bmp("many/0.bmp", (1, 100, 200))
        for i in range(1, 30000):  # more than any machine calibrates in half a second
            os.link(self.folder / "many/0.bmp", self.folder / f"many/{i}.bmp")
        (self.folder / "old.json").write_text("old")
        for name in ("new.json", "old.json"):
            process = subprocess.Popen([PIPIT, "calibrate", MODEL, "many", "--threads", "1", "--output", name],
                                       cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, preexec_fn=take_interrupts)
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=300)
            self.assertEqual(process.returncode, -signal.SIGINT)
        self.assertEqual([p.name for p in self.folder.glob("*.json*")], ["old.json"])
        self.assertEqual((self.folder / "old.json").read_text(), "old")

    def test_corrections_are_part_of_the_plan(self):
        plain = self.calibrate(MODEL, "images", "--no-histograms", output="plain.json")
        plan = self.calibrate(MODEL, "images", "--no-histograms", "--equalize", "--bias-correction")
        self.assertNotIn("corrections_hash", plain)
        self.assertEqual(plan["model_hash"], plain["model_hash"])
        # The first two convolutions of each of the nine blocks, and nothing across a residual.
        self.assertEqual(len(plan["equalization"]), 9)
        self.assertEqual(len(plan["bias_correction"]), 22)

        def scores(*arguments):
            return self.json("diff", MODEL, "images", "--fast", *arguments)["layers"][-1]

        self.assertGreater(scores("--plan", "plan.json")["cosine"], 0.99)
        self.assertNotEqual(scores("--plan", "plan.json"), scores("--plan", "plain.json"))
        plan["bias_correction"][next(iter(plan["bias_correction"]))][0] += 1
        self.write("plan.json", json.dumps(plan))
        done = self.pipit("inspect", MODEL, "--precision", "int8", "--plan", "plan.json", code=RUNTIME)
        self.assert_one_line_error(done, "corrections_hash")
        del plan["bias_correction"], plan["equalization"]
        self.write("plan.json", json.dumps(plan))
        done = self.pipit("inspect", MODEL, "--precision", "int8", "--plan", "plan.json", code=RUNTIME)
        self.assert_one_line_error(done, "corrections_hash", "taken out")
        self.calibrate(MODEL, "images", "--bias-correction", output="a.json")
        done = self.pipit("calibrate", "--merge", "a.json", "a.json", "--output", "b.json", code=RUNTIME)
        self.assert_one_line_error(done, "bias")

    def other_notes(self, *arguments):
        """pipit_with_notes(), without the note that this model answers one class for all images."""
        done = self.pipit_with_notes(*arguments)
        lines = done.stderr.splitlines(keepends=True)
        done.stderr = "".join(line for line in lines if "the model answers class 0 for all 32 images" not in line)
        return done

    def test_corrections_that_change_nothing_are_told_of(self):
        self.write_conv("exact.onnx", "Ceil", 127)  # one convolution, whose weights are whole steps
        for i in range(32):
            self.write_bmp(f"many/{i}.bmp", (8 * i, 255 - 8 * i, 90))
        arguments = ("calibrate", "exact.onnx", "many", "--output", "plan.json", "--preset", "torchvision")
        self.assert_one_line_error(self.other_notes(*arguments, "--equalize"), "note", "nothing to equalize")
        self.assert_one_line_error(self.other_notes(*arguments, "--bias-correction"), "note", "no bias")
        self.pipit(*arguments, "--equalize", "--bias-correction", "--quiet")

    def test_a_guess_is_told_of(self):
        self.write_conv("exact.onnx", "Ceil", 127)
        for i in range(32):
            self.write_bmp(f"many/{i}.bmp", (8 * i, 255 - 8 * i, 90))
        calibrate = ("calibrate", "exact.onnx", "many", "--output", "plan.json")
        diff = ("diff", "exact.onnx", "many", "--plan", "plan.json", "--fast")
        for arguments in (calibrate, diff):
            self.assert_one_line_error(self.other_notes(*arguments), "note: preprocessing guessed", "--preset")
            self.assertEqual(self.other_notes(*arguments, "--preset", "torchvision").stderr, "")
            self.assertEqual(self.pipit_with_notes(*arguments, "--quiet").stderr, "")

    def test_images_that_cannot_be_used_are_excluded_and_named(self):
        whole = self.calibrate(MODEL, "images", output="whole.json")
        self.write("images/3x.jpg", b"no image")
        self.write("images/0.png", b"\x89PNG\r\n\x1a\n cut")
        self.write("images/z.gif", b"GIF89a" + bytes(40))
        (self.folder / "images/gone.bmp").symlink_to("nowhere")
        done = self.pipit_with_notes("calibrate", MODEL, "images", "--output", "plan.json", "--json")
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertEqual(plan, whole)
        shown = json.loads(done.stdout)
        self.assertEqual([image["path"] for image in shown["unreadable"]],
                         ["images/0.png", "images/3x.jpg", "images/gone.bmp"])
        self.assertEqual(shown["left_out"], {"GIF": 1})
        for words in ("3 of 10 images", "images/3x.jpg", "1 image is left out"):
            self.assertIn(words, done.stderr)
            self.assertTrue(any(words in note for note in shown["notes"]), shown["notes"])
        # The document is a plan, too.
        self.write("shown.json", done.stdout)
        self.pipit("inspect", MODEL, "--precision", "int8", "--plan", "shown.json", "--quiet")
        for i in range(2):
            self.write(f"broken/{i}.bmp", b"BM")
        done = self.pipit("calibrate", MODEL, "broken", "--output", "x.json", "--quiet", code=RUNTIME)
        self.assert_one_line_error(done, "broken/0.bmp", "none of 2")
        self.assertFalse((self.folder / "x.json").exists())

    def test_much_that_is_clipped_is_told_of(self):
        for i in range(32):
            self.write_bmp(f"many/{i}.bmp", (8 * i, 255 - 8 * i, 90))
        calibrate = ("calibrate", MODEL, "many", "--method", "percentile", "--output", "plan.json")
        done = self.pipit_with_notes(*calibrate, "--percentile", 95, "--json")
        shown = json.loads(done.stdout)
        clipped = {t["name"]: t["clipped"] for t in shown["tensors"] if t["clipped"] > 0.01}
        self.assertGreater(len(clipped), 0)
        worst = max(clipped, key=clipped.get)
        self.assertEqual(shown["clipping"], {"above": 0.01, "tensors": len(clipped), "worst": worst,
                                             "clipped": clipped[worst]})
        self.assertIn(f"of {len(clipped)} of {len(shown['tensors'])} tensors are clipped, most in '{worst}': "
                      f"{100 * clipped[worst]:.2f} %", done.stderr)
        # Ranges that would cost far more than others reach as far as does not.
        self.assertGreater(shown["moved"], 0)
        self.assertIn(f"{shown['moved']} of {len(shown['tensors'])} tensors got another range", done.stderr)
        self.assertTrue(set(shown["notes"]) <= {line.removeprefix("pipit: note: ") for line in done.stderr.splitlines()})
        merged = self.pipit_with_notes("calibrate", "--merge", "plan.json", "--output", "merged.json")
        self.assertEqual(merged.stderr, done.stderr)
        # Whoever uses the plan is told, too.
        for i in range(4):
            self.write_bmp(f"others/{i}.bmp", (9, 255 - 30 * i, 9 + 40 * i))
        for use in (("classify", MODEL, "many/3.bmp", "--precision", "int8"), ("quantize", MODEL, "--output", "int8.onnx"),
                    ("diff", MODEL, "many", "--limit", 2, "--fast"),
                    ("tune", MODEL, "others", "--judge-by", "model", "--max-drop", 100, "--output", "mixed.json")):
            used = self.pipit_with_notes(*use, "--plan", "plan.json").stderr
            self.assertEqual(used.count(f"most in '{worst}'"), 1, use)
        shown = self.json("calibrate", MODEL, "many", "--output", "plan.json")
        self.assertEqual(shown["clipping"], {"above": 0.01, "tensors": 0})

    def test_refuses_bad_input_and_leaves_no_file(self):
        def refused(*arguments, code, words):
            done = self.pipit("calibrate", *arguments, "--output", "out.json", "--quiet", code=code)
            self.assert_one_line_error(done, *words)
            self.assertEqual([p.name for p in self.folder.glob("out.json*")], [])

        refused(MODEL, "nowhere", code=RUNTIME, words=["nowhere"])
        refused(MODEL, "images", "--skip", 7, code=RUNTIME, words=["skip is 7"])
        refused(MODEL, code=USAGE, words=["IMAGES"])
        refused(MODEL, "images", "--method", "magic", code=USAGE, words=["--method"])
        refused(MODEL, "images", "--percentile", 101, code=USAGE, words=["--percentile"])
        refused(MODEL, "images", "--percentile", 99.9, code=USAGE, words=["--percentile", "--method percentile"])
        refused(MODEL, "images", "--plan", "plan.json", code=USAGE, words=["unknown option --plan;"])
        refused("--merge", "missing.json", code=USAGE, words=["missing.json"])
        done = self.pipit("calibrate", MODEL, "images", "--export", "ncnn", "--output", "x.ncnn-table", code=USAGE)
        self.assert_one_line_error(done, "--export")
        self.write("broken.json", "{")
        refused("--merge", "broken.json", code=RUNTIME, words=["broken.json"])
        self.calibrate(MODEL, "images")
        refused("--merge", "plan.json", "plan.json", code=RUNTIME, words=["already counted"])
        self.write("images/x.jpg", b"no image")
        refused(MODEL, "images", "--strict", code=RUNTIME, words=["x.jpg"])
        refused(MODEL, "images/x.jpg", code=RUNTIME, words=["x.jpg"])
        done = self.pipit("calibrate", MODEL, self.write_bmp("7.bmp", (1, 2, 3)), "--output", "no/such/plan.json",
                          "--quiet", code=RUNTIME)
        self.assert_one_line_error(done, "no/such/plan.json")


if __name__ == "__main__":
    main()
