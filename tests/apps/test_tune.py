"""pipit tune: the plan it writes, what it says about it, and what it refuses."""

import json
import re
import xml.etree.ElementTree

from command import CHECK_FAILED, MODEL, OK, RUNTIME, UNSUPPORTED, USAGE, CommandTest, main

CLASSES = ["airplane", "cat", "frog"]


class Tune(CommandTest):
    def setUp(self):
        super().setUp()
        for c, name in enumerate(CLASSES):
            for i in range(6):
                self.write_bmp(f"images/{name}/{i}.bmp", (40 * i, 250 - 70 * c - 10 * i, 60 + 20 * i))

    def tune(self, *arguments, keep_as="fp32", code=OK):
        # In bf16, the default of some CPUs: test_bf16.py.
        return self.json("tune", MODEL, "images", "--output", "mixed.json", "--quiet", "--keep-as", keep_as, *arguments, code=code)

    def test_images_that_cannot_be_used_are_excluded_and_named(self):
        self.write("images/cat/7.bmp", b"BM")
        self.write("images/cat/8.gif", b"GIF89a" + bytes(40))
        (self.folder / "images/frog/9.bmp").symlink_to("nowhere")
        tune = ("tune", MODEL, "images", "--output", "mixed.json", "--max-drop", 100, "--json")
        done = self.pipit_with_notes(*tune)
        result = json.loads(done.stdout)
        self.assertEqual(sorted(image["path"] for image in result["unreadable"]), ["images/cat/7.bmp", "images/frog/9.bmp"])
        self.assertEqual(result["left_out"], {"GIF": 1})
        self.assertEqual(result["steps"][0]["images"] + result["unseen"]["images"], 18)
        self.assertIn("note: 2 of 20 images cannot be used and are excluded", done.stderr)
        self.assertEqual(done.stderr.count("cannot be used"), 1)
        plan = json.loads((self.folder / "mixed.json").read_text())
        self.assertEqual(plan["images"]["count"], result["steps"][0]["images"])
        self.assertEqual(result["calibration_images"], result["steps"][0]["images"])
        # With a plan the content of images is compared.
        done = self.pipit_with_notes(*tune, "--plan", "mixed.json")
        self.assertEqual(json.loads(done.stdout)["unreadable"], sorted(result["unreadable"], key=lambda image: image["path"]))
        done = self.pipit(*tune, "--strict", code=RUNTIME)
        self.assert_one_line_error(done, "images/")

    def test_images_to_check_on_that_are_copies(self):
        tune = ("tune", MODEL, "images", "--output", "mixed.json", "--max-drop", 100, "--judge-by", "model")
        self.assertNotIn("are among those", self.pipit_with_notes(*tune).stderr)
        image = (self.folder / "images/cat/0.bmp").read_bytes()
        for name in CLASSES:
            for i in range(6):
                self.write(f"images/{name}/{i}.bmp", image)
        notes = " ".join(self.pipit_with_notes(*tune).stderr.split())
        self.assertIn("9 of the 9 images to check on are among those that layers are chosen on", notes)

    def test_without_a_limit_everything_stays_in_int8(self):
        result = self.tune("--max-drop", 100, "--save-svg", "mixed.svg")
        self.assertTrue(result["passed"])
        self.assertEqual((result["verdict"], result["images_needed"], result["int8_enough"]), ("proven", None, True))
        self.assertTrue(result["machine"])
        steps = result["steps"]
        self.assertEqual(steps[0]["kept"], 0)
        self.assertEqual([s["chosen"] for s in steps].count(True), 1)
        chosen = next(s for s in steps if s["chosen"])
        # Keeping nothing is the fastest, but for what this machine does besides.
        self.assertLessEqual(chosen["ms"], 1.02 * min(s["ms"] for s in steps))
        self.assertEqual(len(result["kept"]), chosen["kept"])
        self.assertEqual((steps[0]["images"], result["unseen"]["images"], result["calibration_images"]), (9, 9, 9))
        # fp32 against itself.
        fp32 = max((s for s in steps if s["order"] == "noise"), key=lambda s: s["kept"])
        self.assertEqual((fp32["drop_points"], fp32["expected_drop_points"], fp32["ms"]), (0, 0, result["fp32"]["ms"]))
        for step in steps:
            self.assertTrue(step["drop_points_interval95"][0] <= step["drop_points"] <= step["drop_points_interval95"][1], step)
        svg = xml.etree.ElementTree.parse(self.folder / "mixed.svg").getroot()
        circles = [e for e in svg.iter() if e.tag.endswith("circle")]
        self.assertEqual(len(circles), len(steps))

    def test_writes_a_plan_that_says_what_is_kept(self):
        result = self.tune("--max-drop", 0, "--judge-by", "model", "--confidence", 99, keep_as="fp16")
        plan = json.loads((self.folder / "mixed.json").read_text())
        reasoned = plan["keep"].pop("/pool/GlobalAveragePool")  # from the start
        self.assertEqual((reasoned["precision"], result["keep_as"], result["sure"]), ("fp16", "fp16", True))
        self.assertIn("the scores are made of its averages", reasoned["why"])
        self.assertEqual(sorted(plan["keep"]), sorted(result["kept"]))
        self.assertEqual(set(plan["keep"].values()), {"fp16"})
        # Only fp32 itself is sure to agree with fp32.
        self.assertEqual(result["unseen"]["drop_points"], 0)
        # Nine equal answers prove nothing about others, and no number of images proves less than 0.
        self.assertEqual((result["verdict"], result["images_needed"], result["passed"]), ("not proven", None, True))
        layers = self.json("inspect", MODEL, "--precision", "int8", "--plan", "mixed.json", "--quiet")["layers"]
        self.assertEqual([layer["name"] for layer in layers if layer["type"] == "QConv"], [])

    def test_says_how_many_images_would_prove_it(self):
        done = self.pipit_with_notes("tune", MODEL, "images", "--output", "mixed.json", "--max-drop", 20)
        words = re.search(r"(?m)^promise      at most 20 points: not proven there: measured within, about (\d+) images there "
                          r"would prove it$", done.stdout)
        self.assertTrue(words, done.stdout)
        self.assertGreater(int(words[1]), 9)

    def test_images_of_the_plan_are_not_unseen(self):
        self.pipit("calibrate", MODEL, "images/cat", "--output", "plan.json", "--quiet")
        result = self.tune("--plan", "plan.json", "--max-drop", 100, "--batch", 4)
        kept = json.loads((self.folder / "mixed.json").read_text())["keep"]["/pool/GlobalAveragePool"]
        self.assertEqual((kept["precision"], result["keep_as"]), ("fp32", "fp32"))
        self.assertEqual(result["calibration_images"], 0)
        self.assertEqual((result["steps"][0]["images"], result["unseen"]["images"]), (12, 6))
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet")
        done = self.pipit("tune", MODEL, "images", "--plan", "plan.json", "--max-drop", 1, "--output", "x.json",
                          code=RUNTIME)
        self.assert_one_line_error(done, "0 of them new to the plan")
        done = self.pipit("tune", MODEL, "images", "--max-drop", 1, "--limit", 1, "--output", "x.json", code=RUNTIME)
        self.assert_one_line_error(done, "pipit: 1 image: too few")

    def test_a_broken_promise_is_exit_code_4(self):
        # The first of every two images has a wrong class: where fp32 is never right INT8 has nothing to lose. The
        # second one has the class that fp32 gives it, and an INT8 model of few levels hardly ever does.
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--no-histograms", "--quiet")
        for i in range(12):
            image = self.write_bmp("image.bmp", (20 * i, 250 - 15 * i, 60 + 20 * (i % 7)))
            best = self.json("classify", MODEL, image)["images"][0]["top"][0]["class"]
            image.rename(self.write(f"labelled/{chr(97 + i)}/{best if i % 2 else (best + 1) % 10}_x.bmp", ""))
        plan = json.loads((self.folder / "plan.json").read_text())
        plan["images"] = {"count": 0, "hash": "99aa06d3014798d86001c324468d497f", "files": {}}  # of no bytes
        for tensor in plan["tensors"]:
            tensor["scale"] *= 100
        self.write("plan.json", json.dumps(plan))
        done = self.pipit("tune", MODEL, "labelled", "--plan", "plan.json", "--max-drop", 40, "--output", "mixed.json",
                          "--json", code=(OK, CHECK_FAILED))
        result = json.loads(done.stdout)
        self.assertEqual(result["passed"], done.returncode == OK)
        self.assertGreater(result["unseen_int8"]["drop_points"], 40)
        fast_in_fp32 = "layers were measured faster in fp32 and are kept, so too little is lost"
        if result["passed"]:
            self.assertTrue(result["kept"])
            self.skipTest(fast_in_fp32)
        low, high = result["unseen"]["drop_points_interval95"]
        self.assertEqual(result["verdict"], "broken" if low > 40 else "not proven")
        self.assertIsNone(result["images_needed"])
        self.assertEqual((result["fp32"]["search_top1"], result["fp32"]["unseen_top1"]), (0, 1))
        self.assertGreater(result["unseen"]["drop_points"], 40)
        shown = self.on_a_terminal(80, "tune", MODEL, "labelled", "--plan", "plan.json", "--max-drop", 40, "--output", "mixed.json",
                                   notes=True, code=(OK, CHECK_FAILED))
        if "promise      at most 40 points: proven" in shown:
            self.skipTest(fast_in_fp32)
        self.assertIn(f"  pipit tune {MODEL} labelled --plan plan.json --max-drop 40 --confidence 95 ", shown)

    def test_refuses(self):
        def refused(*arguments, code, words):
            done = self.pipit("tune", *arguments, "--output", "out.json", "--quiet", code=code)
            self.assert_one_line_error(done, *words)
            self.assertFalse((self.folder / "out.json").exists())

        refused(MODEL, "images", code=USAGE, words=["--max-drop"])
        refused(MODEL, "images", "--max-drop", -1, code=USAGE, words=["--max-drop"])
        if not self.has_gpu():  # said before images are decoded
            refused(MODEL, "nowhere", "--max-drop", 1, "--device", "cuda", code=RUNTIME, words=["device cuda"])
        refused(MODEL, "images", "--max-drop", 1, "--device", "gpu", code=USAGE, words=["--device"])
        for confidence in (20, "nan"):
            refused(MODEL, "images", "--max-drop", 1, "--confidence", confidence, code=USAGE, words=["--confidence"])
        refused(MODEL, "images", "--max-drop", 1, "--precision", "fp16", code=USAGE, words=["unknown option --precision;"])
        refused(MODEL, "nowhere", "--max-drop", 1, code=RUNTIME, words=["nowhere"])
        for i in range(3):
            self.write_bmp(f"plain/{i}.bmp", (1, 2, 3))
        refused(MODEL, "plain", "--max-drop", 1, code=RUNTIME, words=["--judge-by model"])
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--quiet")
        self.pipit("quantize", MODEL, "--plan", "plan.json", "--output", "int8.onnx", "--quiet")
        refused("int8.onnx", "images", "--max-drop", 1, code=UNSUPPORTED, words=["int8.onnx is quantized already"])
        refused(MODEL, "images/cat/0.bmp", "--max-drop", 1, "--judge-by", "model", code=RUNTIME, words=["too few"])


if __name__ == "__main__":
    main()
