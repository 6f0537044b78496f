"""pipit diff: what it says about each layer, and what it refuses."""

import json

from command import MODEL, RUNTIME, USAGE, CommandTest, main


class Diff(CommandTest):
    def setUp(self):
        super().setUp()
        for i in range(6):
            self.write_bmp(f"images/{i}.bmp", (40 * i, 250 - 30 * i, 60 + 20 * i))
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--no-histograms", "--quiet")

    def diff(self, *arguments):
        return self.json("diff", MODEL, "images", "--plan", "plan.json", *arguments)

    def test_measures_every_layer(self):
        result = self.diff()
        self.assertEqual((result["images"], result["share_images"], result["precision"]), (6, 6, "int8"))
        weighted = [layer for layer in result["layers"] if layer["type"] in ("Conv", "Gemm")]
        self.assertEqual([layer["name"] for layer in weighted],
                         [layer["name"] for layer in self.json("inspect", MODEL)["layers"]
                          if layer["type"] in ("Conv", "Gemm")])
        for layer in weighted:
            self.assertEqual(layer["precision"], "int8")
            self.assertTrue(0.9 < layer["cosine"] <= 1, layer)
            self.assertTrue(10 < layer["sqnr_db"] < 60, layer)
            self.assertGreater(layer["max_error"], 0)
            self.assertTrue(0 < layer["worst_channel"]["noise_share"] <= 1, layer)
            self.assertGreater(layer["noise_alone"], 0)
            self.assertAlmostEqual(layer["share_alone"], layer["noise_alone"] / result["output_noise"])
            self.assertAlmostEqual(layer["share_removed"], 1 - layer["noise_without"] / result["output_noise"])
        # The last layer of the model is its output.
        self.assertEqual(weighted[-1]["cosine"], result["output"]["cosine"])

    def test_images_of_other_formats_are_left_out_and_counted(self):
        self.write("images/a.jpg", b"GIF89a" + bytes(40))
        self.write("images/b.tif", b"II*\0" + bytes(40))
        done = self.pipit_with_notes("diff", MODEL, "images", "--plan", "plan.json", "--fast", "--json")
        result = json.loads(done.stdout)
        self.assertEqual((result["images"], result["left_out"]), (6, {"GIF": 1, "TIFF": 1}))
        self.assertRegex(done.stderr, r"(?m)^pipit: note: 2 images are left out, .*: 1 GIF, 1 TIFF;")

    def test_images_that_cannot_be_used_are_excluded_and_named(self):
        before = self.diff()
        self.write("images/0.png", b"\x89PNG\r\n\x1a\n cut")
        (self.folder / "images/gone.bmp").symlink_to("nowhere")
        for options in ((), ("--batch", 4)):
            done = self.pipit_with_notes("diff", MODEL, "images", "--plan", "plan.json", *options, "--json")
            result = json.loads(done.stdout)
            self.assertEqual([image["path"] for image in result.pop("unreadable")], ["images/0.png", "images/gone.bmp"])
            self.assertRegex(done.stderr, r"(?m)^pipit: note: 2 of 8 images cannot be used.*0\.png.*gone\.bmp")
            if not options:
                self.assertEqual(result, before)
        self.assert_one_line_error(self.pipit("diff", MODEL, "images", "--plan", "plan.json", "--strict", code=RUNTIME), "images/")

    def test_says_the_same_for_any_batch_of_images_and_threads(self):
        one = self.diff("--threads", 1)
        three = self.diff("--threads", 3)
        del one["threads"], three["threads"]
        self.assertEqual(one, three)

    def test_a_batch_changes_rounding_only(self):
        # Six images fill one batch of four and half of another.
        one, four = self.diff(), self.diff("--batch", 4)
        self.assertEqual((four["images"], four["share_images"]), (6, 6))
        self.assertEqual(one["output"]["other_top1"], four["output"]["other_top1"])
        self.assertAlmostEqual(one["output"]["sqnr_db"], four["output"]["sqnr_db"], delta=0.1)
        for a, b in zip(one["layers"], four["layers"]):
            self.assertEqual((a["name"], a["precision"]), (b["name"], b["precision"]))
            self.assertAlmostEqual(a["cosine"], b["cosine"], places=4)

    def test_the_table_has_the_worst_first(self):
        layers = self.diff()["layers"]
        names = {layer["name"] for layer in layers}

        def rows(*options):
            lines = self.pipit("diff", MODEL, "images", "--plan", "plan.json", *options).stdout.splitlines()
            return [line.split()[0] for line in lines if line.split() and line.split()[0] in names]

        self.assertEqual(rows("--sort", "order"), [layer["name"] for layer in layers])
        judged = [layer for layer in layers if "share_removed" in layer]
        worst = [layer["name"] for layer in sorted(judged, key=lambda layer: -layer["share_removed"])]
        self.assertEqual(rows()[:len(worst)], worst)
        fast = sorted(layers, key=lambda layer: float("inf") if layer["sqnr_db"] is None else layer["sqnr_db"])
        self.assertEqual(rows("--fast"), [layer["name"] for layer in fast])

    def test_fast_leaves_out_what_takes_long(self):
        fast = self.diff("--fast", "--limit", 2)
        self.assertEqual(fast["images"], 2)
        self.assertNotIn("output_noise", fast)
        self.assertNotIn("noise_alone", fast["layers"][0])
        lines = self.pipit("diff", MODEL, "images", "--plan", "plan.json", "--fast").stdout.splitlines()
        self.assertIn("SQNR dB", lines[0])
        self.assertNotIn("alone", lines[0])

    def test_layers_that_are_kept_err_less(self):
        whole = self.diff("--fast")["layers"][0]
        kept = self.diff("--fast", "--keep", "first=fp32")["layers"][0]
        self.assertEqual(kept["precision"], "fp32")
        self.assertEqual(kept["clipped"], None)
        self.assertEqual((kept["max_error"], kept["sqnr_db"]), (0, None))  # infinite: not in JSON
        self.assertGreater(whole["max_error"], 0)

    def test_refuses(self):
        def refused(*arguments, code, words):
            self.assert_one_line_error(self.pipit("diff", *arguments, code=code), *words)

        refused(MODEL, "images", code=USAGE, words=["--plan"])
        refused(MODEL, "nowhere", "--plan", "plan.json", code=RUNTIME, words=["nowhere"])
        refused(MODEL, "images", "--plan", "plan.json", "--precision", "fp16", code=USAGE, words=["unknown option --precision;"])
        refused("resnet18", "images", "--plan", "plan.json", "--resize", 224, "--crop", 224, code=RUNTIME,
                words=["another model"])
        if not self.has_gpu():
            refused(MODEL, "images", "--plan", "plan.json", "--device", "cuda", code=RUNTIME, words=["device cuda"])
        refused(MODEL, "images", "--plan", "plan.json", "--device", "gpu", code=USAGE, words=["--device"])
        plan = json.loads((self.folder / "plan.json").read_text())
        names = [layer["name"] for layer in self.json("inspect", MODEL)["layers"] if layer["type"] in ("Conv", "Gemm")]
        plan["keep"] = dict.fromkeys(names, "fp32")
        self.write("plan.json", json.dumps(plan))
        refused(MODEL, "images", "--plan", "plan.json", code=RUNTIME, words=["nothing would compute in INT8"])


if __name__ == "__main__":
    main()
