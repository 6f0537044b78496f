"""--precision: the schemes that need no plan, their options, and what goes together."""

import collections

from command import MODEL, USAGE, CommandTest, main

SHORT = ("--runs", 1, "--warmup", 1, "--seconds", 0, "--quiet")


class Precisions(CommandTest):
    def types(self, model, *options):
        return collections.Counter(layer["type"] for layer in self.json("inspect", model, *options)["layers"])

    def test_weights_are_stored_where_there_is_one_tap(self):
        self.assertEqual(self.types("resnet18")["Conv"], 20)
        for precision in ("w8", "w4"):
            types = self.types("resnet18", "--precision", precision)
            # Three downsampling convolutions of one tap, and the classifier.
            self.assertEqual((types["Conv"], types["WConv"], types["WLinear"], types["Gemm"]), (17, 3, 1, 0))
        self.assertIn("int4 g32", self.pipit("inspect", "resnet18", "--precision", "w4", "--group-size", 32).stdout)
        self.assertIn("int4 g128", self.pipit("inspect", "resnet18", "--precision", "w4").stdout)

    def test_why_names_what_was_refused(self):
        layers = self.json("inspect", "resnet18", "--precision", "w8", "--why")["layers"]
        convolution = next(layer for layer in layers if layer["type"] == "WConv")
        self.assertEqual(convolution["kernel"], "tile")
        self.assertEqual([r["kernel"] for r in convolution["refused"]], ["gemv"])
        self.assertEqual(next(layer["kernel"] for layer in layers if layer["type"] == "WLinear"), "gemv")

    def scores(self, *options):
        done = self.json("classify", MODEL, self.write_bmp("image.bmp", (200, 40, 90)), *options)
        return {p["class"]: p["probability"] for p in done["images"][0]["top"]}

    def test_answers_are_near_those_of_fp32(self):
        real = self.scores()
        best = max(real, key=real.get)
        for precision in ("w8", "w4", "int8-dynamic"):
            scores = self.scores("--precision", precision)
            self.assertAlmostEqual(scores[best], real[best], delta=0.2, msg=precision)

    def test_int8_dynamic_takes_convolutions_and_classifier(self):
        types = self.types("resnet18", "--precision", "int8-dynamic")
        self.assertEqual((types["DynamicQConv"], types["Conv"], types["Gemm"]), (21, 0, 0))
        # The three convolutions that shorten a shortcut read what the block's first one reads.
        self.assertEqual(types["DynamicQuantize"], 18)
        for choice in ("per-sample", "per-tensor"):
            options = ("--precision", "int8-dynamic", "--dynamic-scales", choice)
            self.assertIn(choice.replace("-", " "), self.pipit("inspect", MODEL, *options).stdout)

    def test_bench_takes_a_list(self):
        result = self.json("bench", MODEL, "--precision", "fp32,int8-dynamic,w8,w4", "--group-size", 64,
                           "--dynamic-scales", "per-tensor", *SHORT)
        self.assertEqual([row["precision"] for row in result["results"]], ["fp32", "int8-dynamic", "w8", "w4"])
        self.assertFalse([row for row in result["results"] if "error" in row])

    def test_options_of_another_precision_are_refused(self):
        for arguments, names in ((("--group-size", 32), "--group-size"),
                                 (("--precision", "w8", "--group-size", 32), "--group-size"),
                                 (("--precision", "w4", "--group-size", 48), "--group-size"),
                                 (("--precision", "w4", "--plan", "plan.json"), "--plan"),
                                 (("--precision", "w4", "--dynamic-scales", "per-tensor"), "--dynamic-scales"),
                                 (("--precision", "int8-dynamic", "--dynamic-scales", "x"), "--dynamic-scales"),
                                 (("--precision", "w2"), "--precision")):
            for command in ("inspect", "bench"):
                with self.subTest(command, arguments=arguments):
                    done = self.pipit(command, MODEL, *arguments, code=USAGE)
                    self.assert_one_line_error(done, names)
                    self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    main()
