"""bf16 in every command that takes fp16, and in plans."""

import json
import os
import struct
import unittest.mock

import onnx_model
from command import CHECK_FAILED, MODEL, OK, RUNTIME, USAGE, CommandTest, main

SHORT = ("--runs", 1, "--warmup", 1)


class Bf16(CommandTest):
    def images(self):
        for i in range(6):
            for number, name in enumerate(("airplane", "cat")):
                self.write_bmp(f"images/{name}/{i}.bmp", (40 * i, 250 - 70 * number - 10 * i, 60 + 20 * i))
        return "images"

    def isa(self, name):
        """An environment with that instruction set, where there is one."""
        patch = unittest.mock.patch.dict(os.environ, PIPIT_ISA=name)
        patch.start()
        self.addCleanup(patch.stop)

    def test_commands_that_run_a_model(self):
        images = self.images()
        inspected = self.json("inspect", MODEL, "--precision", "bf16")
        self.assertEqual(inspected["precision"], "bf16")
        self.assertEqual([layer["kernel"] for layer in inspected["layers"] if "reference" in layer["kernel"]], [])
        self.assertEqual(self.json("profile", MODEL, "--precision", "bf16", *SHORT)["precision"], "bf16")
        both = self.json("profile", MODEL, "--precision", "fp32,bf16", *SHORT)
        self.assertEqual([result["precision"] for result in both["results"]], ["fp32", "bf16"])
        evaluated = self.json("evaluate", MODEL, images, "--precision", "bf16", "--against", "fp32", "--max-drop", 100)
        self.assertEqual((evaluated["precision"], evaluated["against"]["name"]), ("bf16", "fp32"))
        self.pipit("bench", MODEL, "--precision", "fp32,bf16", *SHORT, "--output", "first.json", "--quiet")
        self.pipit("bench", MODEL, "--precision", "fp32,bf16", *SHORT, "--output", "second.json", "--quiet")
        compared = self.json("compare", "first.json", "second.json", silent=False)
        self.assertEqual([("bf16" in one["first"], "bf16" in one["second"]) for one in compared["comparisons"]],
                         [(False, False), (True, True)])

    def test_verify(self):
        """Values that a bfloat16 holds exactly, and one that it does not."""
        for value, code in ((1.5, OK), (1.001, CHECK_FAILED)):
            x = struct.pack("<4f", *[value] * 4)
            model = onnx_model.model([1, 1, 2, 2], [onnx_model.node("Neg", ["x"], "y")])
            self.write("case/model.onnx", model)
            self.write("case/test_data_set_0/input_0.pb", onnx_model.tensor("x", onnx_model.FLOAT, [1, 1, 2, 2], x))
            self.write("case/test_data_set_0/output_0.pb",
                       onnx_model.tensor("y", onnx_model.FLOAT, [1, 1, 2, 2], struct.pack("<4f", *[-value] * 4)))
            result = self.json("verify", "case", "--precision", "bf16", "--rtol", 1e-5, "--atol", 0, code=code)
            self.assertEqual(len(result["tests"]), 1)

    def test_evaluate_against_bf16(self):
        against = self.json("evaluate", MODEL, self.images(), "--against", "bf16")["against"]
        self.assertEqual((against["name"], against["images"]), ("bf16", 12))
        done = self.pipit("evaluate", MODEL, "images", "--against", "bf61", code=USAGE)
        self.assert_one_line_error(done, "--against", "fp32, fp16, bf16")

    def test_sweeps(self):
        rows = self.json("sweep", "conv", "--n", 1, "--in", 8, "--out", 16, "--size", 8, "--kernel", 3, "--stride", 1,
                         "--all", "--seconds", 0, "--precision", "bf16,int8", "--base", "fp32,bf16")["rows"]
        self.assertEqual([row["precision"] for row in rows], ["bf16", "int8"])
        self.assertTrue(1e-5 < rows[0]["relative_l2"] < 0.02, rows[0])
        rows = self.json("sweep", "sparsity", "--layer", "1x16x8x8:32x3x3", "--keep-ratio", "1,0.5", "--mode", "k",
                         "--seconds", 0, "--precision", "bf16")["rows"]
        self.assertEqual([(row["precision"], row["mode"]) for row in rows], [("bf16", "dense"), ("bf16", "k")])
        self.assertTrue(1e-5 < rows[0]["error"]["relative_l2"] < 0.02, rows[0])

    def test_layers_that_a_plan_keeps(self):
        images = self.images()
        self.pipit("calibrate", MODEL, images, "--output", "plan.json", "--keep", "first=bf16", "--no-histograms", "--quiet")
        kept = json.loads((self.folder / "plan.json").read_text())["keep"]
        (first,) = [name for name, precision in kept.items() if precision == "bf16"]
        int8 = ("--precision", "int8", "--plan", "plan.json")
        layers = {layer["name"]: layer for layer in self.json("inspect", MODEL, *int8, "--quiet")["layers"]}
        self.assertEqual(layers[first]["type"], "Conv")
        self.assertEqual(len([layer for layer in layers.values() if layer["type"] == "QConv"]), 21)
        diff = ("diff", MODEL, images, "--plan", "plan.json", "--fast", "--keep", "last=bf16")

        def in_bf16(*more):
            layers = self.json(*diff, *more, "--quiet")["layers"]
            self.assertIn("int8", [layer["precision"] for layer in layers])
            return [layer["name"] for layer in layers if layer["precision"] == "bf16"]

        # The pool before the last layer is kept in fp32 from the start, and floating point connects both.
        self.assertEqual(in_bf16(), [first])
        inspect = ("inspect", MODEL, *int8, "--keep", "last=bf16")
        self.assertIn("is kept in bf16, but computes in f32", self.pipit_with_notes(*inspect).stderr)
        pool = "/pool/GlobalAveragePool"
        self.assertIn(pool, in_bf16("--keep", f"{pool}=bf16"))
        self.assertNotIn("computes in f32", self.pipit_with_notes(*inspect, "--keep", f"{pool}=bf16").stderr)
        evaluated = self.json("evaluate", MODEL, images, *int8, "--against", "fp32", "--quiet")
        self.assertEqual(evaluated["precision"], "int8")
        done = self.pipit("inspect", MODEL, *int8, "--keep", "first=bf17", code=USAGE)
        self.assert_one_line_error(done, "NAME=bf16")
        if self.has_gpu():
            layers = self.json(*diff, "--device", "cuda", "--quiet")["layers"]
            self.assertEqual([layer["name"] for layer in layers if layer["precision"] == "bf16"], [first])

    def test_tune_ends_in_bf16(self):
        images = self.images()
        tune = ("tune", MODEL, images, "--judge-by", "model", "--max-drop", 100, "--output", "mixed.json")
        result = self.json(*tune, "--keep-as", "bf16", "--quiet")
        self.assertEqual(result["keep_as"], "bf16")
        last = max((step for step in result["steps"] if step["order"] == "noise"), key=lambda step: step["kept"])
        self.assertGreater(last["expected_drop_error"] + abs(last["drop_points"]), 0)  # measured, unlike that of fp32
        self.assertTrue(result["bf16"].pop("enough"))
        self.assertEqual(result["bf16"], {key: last[key] for key in result["bf16"]})
        self.assertGreater(result["fp32"]["ms"], 0)
        text = self.pipit_with_notes(*tune, "--keep-as", "bf16", "--quiet").stdout
        self.assertRegex(text, r"(?m)^bf16 +[\d.]+ ms, agreement with fp32 [\d.]+ % there, drop ")
        # All that is kept, with the layer that is kept from the start, is the model in bf16.
        plan = json.loads((self.folder / "mixed.json").read_text())
        self.assertLessEqual({kept if isinstance(kept, str) else kept["precision"] for kept in plan["keep"].values()}, {"bf16"})

    def test_tune_where_the_cpu_multiplies_it(self):
        if "bf16" not in [finding["name"] for finding in self.json("doctor")["findings"]]:
            self.skipTest("this CPU has no products of bfloat16")
        tune = ("tune", MODEL, self.images(), "--judge-by", "model", "--max-drop", 100, "--output", "mixed.json", "--quiet")
        self.assertEqual(self.json(*tune)["keep_as"], "bf16")
        result = self.json(*tune, "--keep-as", "fp32")
        self.assertEqual(result["keep_as"], "fp32")
        self.assertTrue(result["bf16"]["enough"])
        self.assertNotIn(result["bf16"]["ms"], [step["ms"] for step in result["steps"]])  # a step of its own

    def test_tune_on_a_cpu_without_products_of_bfloat16(self):
        self.isa("baseline")
        result = self.json("tune", MODEL, self.images(), "--judge-by", "model", "--max-drop", 100, "--output", "mixed.json", "--quiet")
        self.assertEqual(result["keep_as"], "fp32")
        self.assertNotIn("bf16", result)

    def test_nothing_is_said_where_it_is_not_faster(self):
        self.isa("baseline")
        self.keep_ceilings(100, 10)
        for command in (("bench", MODEL, "--seconds", 0, *SHORT), ("profile", MODEL, *SHORT)):
            self.assertNotIn("bf16", self.pipit_with_notes(*command).stderr)
        self.assertNotIn("bf16", [finding["name"] for finding in self.json("doctor")["findings"]])

    def test_is_said_once_where_it_is_faster(self):
        findings = {finding["name"]: finding for finding in self.json("doctor")["findings"]}
        if "bf16" not in findings:
            self.skipTest("this CPU has no products of bfloat16")
        self.assertIn("as fast as in fp32", findings["bf16"]["value"])
        self.assertIn("--precision bf16", findings["bf16"]["advice"])
        for command in (("bench", "resnet18", "--seconds", 0, *SHORT), ("profile", "resnet18", *SHORT)):
            for precisions, times in (("fp32", 1), ("fp16,fp32", 1), ("fp32,bf16", 0), ("int8-dynamic", 0)):
                with self.subTest(command[0], precisions=precisions):
                    notes = self.pipit_with_notes(*command, "--precision", precisions).stderr
                    self.assertEqual(notes.count("times as fast"), times, notes)
            self.assertNotIn("times as fast", self.pipit(*command, "--quiet").stderr)

    def test_a_gpu_takes_it(self):
        """Without a GPU that is what the error says, in every command."""
        cuda = ("--device", "cuda", "--quiet")
        images = self.images()
        if not self.has_gpu():
            for command in (("inspect", MODEL, "--precision", "bf16"), ("sweep", "conv", "--precision", "bf16"),
                            ("sweep", "sparsity", "--precision", "fp32,bf16"),
                            ("tune", MODEL, images, "--max-drop", 1, "--output", "m.json", "--keep-as", "bf16")):
                with self.subTest(command):
                    done = self.pipit(*command, *cuda, code=RUNTIME)
                    self.assertNotIn("bf16", done.stderr)
            return
        inspected = self.json("inspect", MODEL, "--precision", "bf16", *cuda)
        self.assertEqual((inspected["precision"], inspected["device"]), ("bf16", "cuda"))
        evaluated = self.json("evaluate", MODEL, images, "--precision", "bf16", "--against", "fp32", "--max-drop", 100, *cuda)
        self.assertEqual(evaluated["precision"], "bf16")
        tuned = self.json("tune", MODEL, images, "--judge-by", "model", "--max-drop", 100, "--output", "mixed.json",
                          "--keep-as", "bf16", *cuda)
        self.assertEqual(tuned["keep_as"], "bf16")


if __name__ == "__main__":
    main()
