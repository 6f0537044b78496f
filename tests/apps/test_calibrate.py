"""pipit calibrate: what it writes, what does not change it, and what it refuses."""

import json
import re

from command import MODEL, RUNTIME, USAGE, CommandTest, main


class Calibrate(CommandTest):
    def setUp(self):
        super().setUp()
        for i in range(7):
            self.write_bmp(f"images/{i}.bmp", (30 * i, 250 - 20 * i, 90 + 10 * i))

    def calibrate(self, *arguments, output="plan.json"):
        self.pipit("calibrate", *arguments, "--output", output)
        return json.loads((self.folder / output).read_text())

    def test_writes_a_plan_that_a_person_can_read(self):
        plan = self.calibrate(MODEL, "images", "--method", "minmax")
        self.assertEqual((plan["pipit_precision_plan"], plan["method"], plan["weights"]), (1, "minmax", "per_channel"))
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

    def test_exports_for_other_engines(self):
        plan = self.calibrate(MODEL, "images", "--method", "entropy", "--export", "trt-cache", "--export", "ncnn")
        cache = (self.folder / "plan.trt-cache").read_text().splitlines()
        self.assertEqual(cache[0], "TRT-8601-EntropyCalibration2")
        self.assertEqual(len(cache), 1 + len(plan["tensors"]))
        for line in cache[1:]:
            self.assertRegex(line, r"^\S+: [0-9a-f]{8}$")
        table = (self.folder / "plan.ncnn-table").read_text().splitlines()
        weights = [line for line in table if re.match(r"\S+_param_0 ", line)]
        self.assertEqual(len(table), 2 * len(weights))
        layers = self.json("inspect", MODEL)["layers"]
        self.assertEqual(len(weights), sum(layer["type"] in ("Conv", "Gemm") for layer in layers))

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
        self.assertEqual(plan["keep"], {names[0]: "fp32", names[-1]: "fp16"})
        int8 = ("inspect", MODEL, "--precision", "int8", "--plan", "plan.json", "--quiet")

        def in_int8(*arguments):
            layers = self.json(*int8, *arguments)["layers"]
            return {layer["name"] for layer in layers if layer["type"] == "QConv"}

        self.assertEqual(in_int8(), set(names[1:-1]))
        self.assertEqual(in_int8("--keep", f"{names[3]}=fp32"), set(names[1:-1]) - {names[3]})
        done = self.pipit(*int8, "--keep", f"{names[3]}x=fp32", code=RUNTIME)
        self.assert_one_line_error(done, names[3] + "x", f"did you mean '{names[3]}'")
        self.assert_one_line_error(self.pipit(*int8, "--keep", names[3], code=USAGE), "--keep", "NAME=fp32")
        done = self.pipit("inspect", MODEL, "--keep", "first=fp32", code=USAGE)
        self.assert_one_line_error(done, "--keep", "--precision int8")
        done = self.pipit("calibrate", MODEL, "images", "--keep", "nothing=fp32", "--output", "x.json", code=RUNTIME)
        self.assert_one_line_error(done, "nothing")
        self.assertFalse((self.folder / "x.json").exists())

    def test_refuses_bad_input_and_leaves_no_file(self):
        def refused(*arguments, code, words):
            done = self.pipit("calibrate", *arguments, "--output", "out.json", code=code)
            self.assert_one_line_error(done, *words)
            self.assertEqual([p.name for p in self.folder.glob("out.json*")], [])

        refused(MODEL, "nowhere", code=RUNTIME, words=["nowhere"])
        refused(MODEL, "images", "--skip", 7, code=RUNTIME, words=["--skip"])
        refused(MODEL, code=USAGE, words=["IMAGES"])
        refused(MODEL, "images", "--method", "magic", code=USAGE, words=["--method"])
        refused(MODEL, "images", "--percentile", 101, code=USAGE, words=["--percentile"])
        refused("--merge", "missing.json", code=USAGE, words=["missing.json"])
        done = self.pipit("calibrate", MODEL, "images", "--export", "ncnn", "--output", "x.ncnn-table", code=USAGE)
        self.assert_one_line_error(done, "--export")
        self.write("broken.json", "{")
        refused("--merge", "broken.json", code=RUNTIME, words=["broken.json"])
        self.calibrate(MODEL, "images")
        refused("--merge", "plan.json", "plan.json", code=RUNTIME, words=["already counted"])
        self.write("images/x.jpg", b"no image")
        refused(MODEL, "images", code=RUNTIME, words=["x.jpg"])
        done = self.pipit("calibrate", MODEL, self.write_bmp("7.bmp", (1, 2, 3)), "--output", "no/such/plan.json",
                          code=RUNTIME)
        self.assert_one_line_error(done, "no/such/plan.json")


if __name__ == "__main__":
    main()
