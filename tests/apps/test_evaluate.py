"""pipit evaluate."""

import json
import os

import struct

import onnx_model
from command import CHECK_FAILED, MODEL, RUNTIME, USAGE, CommandTest, main


class Evaluate(CommandTest):
    def setUp(self):
        super().setUp()
        # Seven images, so that a batch of four is not full the second time.
        for i, (label, colour) in enumerate((("frog", (60, 120, 40)), ("frog", (90, 90, 60)),
                                             ("ship", (40, 90, 200)), ("ship", (120, 160, 220)),
                                             ("airplane", (150, 190, 250)), ("cat", (160, 130, 90)),
                                             ("truck", (200, 60, 50)))):
            self.write_bmp(f"images/{label}/{i}.bmp", colour)

    def expected(self, k):
        """How many images `classify` gives their folder's name among its first k classes."""
        names = sorted(self.folder.glob("images/*/*.bmp"))
        images = self.json("classify", MODEL, *names, "--topk", k)["images"]
        return sum(name.parent.name in [entry["label"] for entry in image["top"]]
                   for name, image in zip(names, images, strict=True))

    def test_json(self):
        result = self.json("evaluate", MODEL, "images")
        self.assertEqual(result["images"], 7)
        self.assertEqual(result["folder"], "images")
        for k, name in ((1, "top1"), (5, "top5")):
            self.assertEqual(result[name + "_correct"], self.expected(k))
            self.assertAlmostEqual(result[name], result[name + "_correct"] / 7)
            low, high = result[name + "_interval95"]
            self.assertTrue(0 <= low <= result[name] <= high <= 1)
        self.assertGreater(result["images_per_s"], 0)
        self.assertGreaterEqual(result["model_images_per_s"], result["images_per_s"])

    def test_batches_do_not_change_the_answer(self):
        one, four = (self.json("evaluate", MODEL, "images", "--batch", n) for n in (1, 4))
        self.assertEqual((one["batch"], four["batch"]), (1, 4))
        for name in ("images", "top1_correct", "top5_correct"):
            self.assertEqual(one[name], four[name])

    def test_threads_and_more_batches_than_slots_do_not_change_the_answer(self):
        for i in range(53):
            self.write_bmp(f"images/{('bird', 'deer', 'dog')[i % 3]}/more{i}.bmp", (i * 37 % 256, i * 91 % 256, 3 * i))
        results = [self.json("evaluate", MODEL, "images", "--threads", threads, "--batch", batch)
                   for threads in (1, 2, 3) for batch in (1, 2, 7, 60, 1000)]
        for k, name in ((1, "top1_correct"), (5, "top5_correct")):
            self.assertEqual({result[name] for result in results}, {self.expected(k)})
        self.assertEqual({result["images"] for result in results}, {60})

    def test_limit(self):
        self.assertEqual(self.json("evaluate", MODEL, "images", "--limit", "3")["images"], 3)
        self.assertEqual(self.json("evaluate", MODEL, "images", "--limit", "100")["images"], 7)

    def test_text(self):
        result = self.json("evaluate", MODEL, "images")
        text = self.pipit("evaluate", MODEL, "images").stdout
        self.assertRegex(text, r"(?m)^images +7$")
        self.assertRegex(text, rf"(?m)^top-1 +{100 * result['top1']:.2f} %")
        self.assertRegex(text, rf"(?m)^top-5 +{100 * result['top5']:.2f} %")
        self.assertRegex(text, r"(?m)^speed +[\d.]+ images/s")

    def answers(self, *options):
        """What classify says of every image, in the order of the folder."""
        names = sorted(self.folder.glob("images/*/*.bmp"))
        return [(name.parent.name, image["top"][0]["label"])
                for name, image in zip(names, self.json("classify", MODEL, *names, *options)["images"], strict=True)]

    def test_against_fp32(self):
        self.pipit("calibrate", MODEL, "images/frog", "--output", "plan.json", "--no-histograms", "--quiet")
        plan = json.loads((self.folder / "plan.json").read_text())
        for tensor in plan["tensors"]:
            tensor["scale"] *= 30  # few levels: other answers
        self.write("plan.json", json.dumps(plan))
        int8 = ("--precision", "int8", "--plan", "plan.json")
        result = self.json("evaluate", MODEL, "images", *int8, "--against", "fp32", "--batch", 2)
        self.assertEqual(result["notes"], ["2 of the 7 images calibrated plan.json: on them INT8 looks better than it is"])
        fp32, mixed = self.answers(), self.answers(*int8)
        against = result["against"]
        self.assertEqual(against["other_answers"], sum(a != b for a, b in zip(fp32, mixed)))
        self.assertGreater(against["other_answers"], 0)
        rights = [(label == a, label == b) for (label, a), (_, b) in zip(fp32, mixed)]
        self.assertEqual(against["only_base_right"], sum(a and not b for a, b in rights))
        self.assertEqual(against["only_model_right"], sum(b and not a for a, b in rights))
        self.assertEqual((against["name"], against["images"]), ("fp32", 7))
        self.assertAlmostEqual(against["top1"], result["top1"])
        self.assertAlmostEqual(against["base_top1"] - result["top1"], against["drop_points"] / 100)
        low, high = against["drop_points_interval95"]
        self.assertTrue(low <= against["drop_points"] <= high)
        self.assertNotIn("verdict", against)
        text = self.pipit("evaluate", MODEL, "images", *int8, "--against", "fp32").stdout
        self.assertRegex(text, rf"(?m)^against   fp32: top-1 {100 * against['base_top1']:.2f} %, drop "
                               rf"{against['drop_points']:.2f} \[.*\] points; {against['other_answers']} images? answered "
                               r"otherwise$")

    def test_against_a_model_with_another_order_of_classes(self):
        # Scores are the colours of one pixel; the other model has them, and their labels, the other way round.
        labels = ["red", "green", "blue"]
        for i, label in enumerate(labels):
            self.write_bmp(f"spots/{label}/a.bmp", tuple(200 if c == i else 20 for c in range(3)), side=1)
        shape = ("N", 3, 1, 1)
        turned = [onnx_model.node("Flatten", ["x"], "f"), onnx_model.node("Gather", ["f", "order"], "y", axis=1)]
        order = onnx_model.tensor("order", onnx_model.INT64, [3], struct.pack("<3q", 2, 1, 0))
        self.write("a.onnx", onnx_model.flatten(shape, metadata={"pipit.labels": json.dumps(labels)}))
        self.write("b.onnx", onnx_model.model(shape, turned, [order], {"pipit.labels": json.dumps(labels[::-1])}))
        plain = ("--mean", "0,0,0", "--std", "1,1,1", "--resize", 1, "--crop", 1)
        against = self.json("evaluate", "a.onnx", "spots", "--against", "b.onnx", *plain)["against"]
        self.assertEqual((against["base_top1"], against["other_answers"]), (1, 0))
        # Other names for the classes: no answer is the same.
        self.write("c.onnx", onnx_model.model(shape, turned, [order], {"pipit.labels": json.dumps(labels)}))
        against = self.json("evaluate", "a.onnx", "spots", "--against", "c.onnx", *plain)["against"]
        self.assertEqual((against["base_top1"], against["other_answers"]), (1 / 3, 2))

    def test_against_another_model_and_a_limit(self):
        none = self.json("evaluate", MODEL, "images", "--against", MODEL, "--max-drop", "90")
        self.assertEqual(none["notes"], self.json("evaluate", MODEL, "images")["notes"])
        none = none["against"]
        self.assertEqual((none["drop_points"], none["other_answers"], none["verdict"], none["passed"]), (0, 0, "proven", True))
        text = self.pipit("evaluate", MODEL, "images", "--against", "fp16", "--max-drop", "0.5").stdout
        self.assertRegex(text, r"(?m)^promise   at most 0.5 points: not proven there: measured within, about \d+ images")
        self.write("flatten.onnx", onnx_model.flatten(("N", 3, 32, 32)))
        done = self.pipit("evaluate", MODEL, "images", "--against", "flatten.onnx", code=RUNTIME)
        self.assert_one_line_error(done)
        for typo in ("missing.onnx", "fp23", "int8", "resnet"):
            done = self.pipit("evaluate", MODEL, "images", "--against", typo, code=USAGE)
            self.assert_one_line_error(done, "--against", f"'{typo}'", "fp32, fp16", MODEL)

    def test_the_base_is_loaded_before_anything_is_measured(self):
        self.write("no-model.onnx", b"no model")
        self.write("images/ship/broken.bmp", b"BM")  # what measuring would find
        done = self.pipit("evaluate", MODEL, "images", "--against", "no-model.onnx", code=RUNTIME)
        self.assert_one_line_error(done, "no-model.onnx")

    def test_a_limit_wants_something_to_hold_against(self):
        self.assert_one_line_error(self.pipit("evaluate", MODEL, "images", "--max-drop", "1", code=USAGE), "--against")

    def test_too_much_lost_is_exit_code_4(self):
        self.pipit("calibrate", MODEL, "images", "--output", "plan.json", "--no-histograms", "--quiet")
        plan = json.loads((self.folder / "plan.json").read_text())
        for tensor in plan["tensors"]:
            tensor["scale"] *= 100
        self.write("plan.json", json.dumps(plan))
        # Images lie in the folder of what fp32 says of them, and few levels say one class of all.
        said = [answer for _, answer in self.answers()]
        for path, answer in zip(sorted(self.folder.glob("images/*/*.bmp")), said, strict=True):
            self.write(f"said/{answer}/{path.name}", path.read_bytes())
        self.assertGreater(len(set(said)), 1)
        done = self.pipit("evaluate", MODEL, "said", "--precision", "int8", "--plan", "plan.json", "--against", "fp32",
                          "--max-drop", "0", "--json", code=CHECK_FAILED)
        against = json.loads(done.stdout)["against"]
        self.assertEqual((against["base_top1"], against["passed"], against["images_needed"]), (1, False, None))

    def test_folder_problems(self):
        (self.folder / "empty").mkdir()
        self.write_bmp("strange/unicorn/a.bmp", (1, 2, 3))
        self.write_bmp("beyond/10_too-many.bmp", (1, 2, 3))
        self.write("notes.txt", "no image")
        for folder, word in (("missing", "missing"), ("empty", "empty"), ("strange", "unicorn"),
                             ("beyond", "10_too-many.bmp"), ("notes.txt", "notes.txt")):
            with self.subTest(folder):
                self.assert_one_line_error(self.pipit("evaluate", MODEL, folder, code=RUNTIME), word)

    def test_a_broken_image_is_excluded_and_named(self):
        before = self.json("evaluate", MODEL, "images")
        self.assertNotIn("unreadable", before)
        self.write("images/ship/broken.bmp", b"BM")
        (self.folder / "images/ship/gone.jpg").symlink_to("nowhere.jpg")
        os.mkfifo(self.folder / "images/cat/pipe.png")
        names = ["images/cat/pipe.png", "images/ship/broken.bmp", "images/ship/gone.jpg"]
        for batch in (1, 4):
            done = self.pipit_with_notes("evaluate", MODEL, "images", "--batch", batch, "--json")
            result = json.loads(done.stdout)
            self.assertEqual([image["path"] for image in result["unreadable"]], names)
            for image in result["unreadable"]:
                self.assertIn(image["path"], image["error"])
            for key in ("images", "top1_correct", "top5_correct"):
                self.assertEqual(result[key], before[key])
            (note,) = (note for note in result["notes"] if "excluded" in note)
            self.assert_one_line_error(done, note)
            for name in names:
                self.assertIn(name, note)
            self.assertIn("3 of 10 images", note)
        text = self.pipit("evaluate", MODEL, "images", "--quiet").stdout
        self.assertRegex(text, r"(?m)^images +7, without 3 that cannot be used$")
        done = self.pipit("evaluate", MODEL, "images", "--batch", "4", "--strict", code=RUNTIME)
        self.assert_one_line_error(done, "pipe.png")
        self.assertEqual(done.stdout, "")

    def test_excluded_images_are_in_no_pair(self):
        self.write("images/ship/0.bmp", b"BM")
        against = json.loads(self.pipit_with_notes("evaluate", MODEL, "images", "--against", "fp16",
                                                   "--json").stdout)["against"]
        self.assertEqual(against["images"], 7)

    def test_none_that_can_be_read_is_an_error(self):
        for i in range(3):
            self.write(f"broken/{i}_.bmp", b"BM")
        self.assert_one_line_error(self.pipit("evaluate", MODEL, "broken", code=RUNTIME), "broken/0_.bmp", "none of 3")

    def test_files_are_told_by_their_content(self):
        before = self.json("evaluate", MODEL, "images")
        for i, path in enumerate(sorted(self.folder.glob("images/*/*.bmp"))):
            path.rename(path.with_name(f"{i}" + ("", ".jfif", ".txt", ".tif")[i % 4]))
        self.write("images/ship/x.gif", b"GIF89a" + bytes(40))
        self.write("images/ship/phone.jpg", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40))
        self.write("images/cat/y.gif", b"GIF89a" + bytes(40))
        self.write("images/notes.txt", "BM stands for bitmap, P6 for pixels")
        self.write("images/.hidden.gif", b"GIF89a" + bytes(40))
        done = self.pipit_with_notes("evaluate", MODEL, "images", "--json")
        result = json.loads(done.stdout)
        self.assertEqual(result["left_out"], {"GIF": 2, "HEIC": 1})
        for key in ("images", "top1_correct", "top5_correct"):
            self.assertEqual(result[key], before[key])
        self.assert_one_line_error(done, "3 images are left out", "2 GIF, 1 HEIC")
        self.assertIn(done.stderr.removeprefix("pipit: note: ").strip(), result["notes"])
        # The model is not at fault.
        done = self.pipit("evaluate", MODEL, "images/ship/phone.jpg", code=RUNTIME)
        self.assert_one_line_error(done, "phone.jpg", "HEIC")
        self.write("gifs/0_a.gif", b"GIF89a" + bytes(40))
        for command in (("evaluate", MODEL, "gifs"), ("calibrate", MODEL, "gifs", "--output", "plan.json")):
            self.assert_one_line_error(self.pipit(*command, code=RUNTIME), "gifs", "1 GIF")

    def test_the_first_of_several_broken_images_is_named(self):
        for i in range(40):
            self.write_bmp(f"images/dog/{i:02}.bmp", (i, 2 * i, 3 * i))
        whole = (self.folder / "images/dog/00.bmp").read_bytes()
        # In the order of the list the one that takes longest to refuse comes first.
        self.write("images/dog/17.bmp", whole[:-1])
        for i in (18, 19, 25, 39):
            self.write(f"images/dog/{i:02}.bmp", b"")
        for threads in (1, 2, 4):
            for batch in (1, 4, 100):
                done = self.pipit("evaluate", MODEL, "images", "--batch", batch, "--threads", threads, "--strict",
                                  code=RUNTIME)
                self.assert_one_line_error(done, "17.bmp")
                self.assertEqual(done.stdout, "")


class Independent(CommandTest):
    """Models whose scores are independent: the mean of red, green and blue above or below 0.5."""

    PIXELS = ("--mean", "0,0,0", "--std", "1,1,1", "--resize", 2, "--crop", 2, "--interpolation", "nearest")
    COLOURS = {"a": (250, 10, 10), "b": (10, 250, 10), "c": (250, 250, 10), "d": (10, 10, 10), "e": (150, 10, 250),
               "f": (110, 250, 10)}

    def write_model(self, name, classes, last):
        """Logits are 10 * (colour - 0.5) for the first `classes` of red, green and blue."""
        weights = [10.0 * (row == column) for row in range(classes) for column in range(3)]
        tensors = [onnx_model.tensor("w", onnx_model.FLOAT, [classes, 3], struct.pack(f"<{3 * classes}f", *weights)),
                   onnx_model.tensor("b", onnx_model.FLOAT, [classes], struct.pack(f"<{classes}f", *[-5.0] * classes))]
        nodes = [onnx_model.node("GlobalAveragePool", ["x"], "g"), onnx_model.node("Flatten", ["g"], "f"),
                 onnx_model.node("Gemm", ["f", "w", "b"], "s", transB=1), onnx_model.node(last, ["s"], "y")]
        self.write(name, onnx_model.model(("N", 3, 2, 2), nodes, tensors))

    def setUp(self):
        super().setUp()
        self.write_model("tags.onnx", 3, "Sigmoid")
        self.write_model("one.onnx", 1, "Sigmoid")
        self.write_model("logits.onnx", 3, "Identity")
        self.write("labels.txt", "red\ngreen\nblue\n")

    def image(self, path, name):
        self.write_bmp(path, self.COLOURS[name], 2)

    def evaluate(self, *arguments):
        return json.loads(self.pipit_with_notes("evaluate", *arguments, *self.PIXELS, "--json").stdout)

    def test_one_score(self):
        for name in self.COLOURS:
            self.image(f"folder/{'dull' if name in 'bdf' else 'red'}/{name}.bmp", name)
        self.image("folder/dull/wrong.bmp", "a")
        self.write("names.txt", "dull\nred\n")
        result = self.evaluate("one.onnx", "folder", "--labels", "names.txt")
        self.assertEqual((result["scores"], result["threshold"], result["images"]), ("sigmoid", 0.5, 7))
        self.assertEqual(result["confusion"], {"true_yes": 3, "false_yes": 1, "true_no": 3, "false_no": 0})
        self.assertAlmostEqual(result["accuracy"], 6 / 7)
        self.assertEqual((result["top1"], result["top1_correct"]), (result["accuracy"], 6))
        self.assertNotIn("top5", result)
        # a, its copy and c are equally sure and share a threshold; e comes after them.
        self.assertAlmostEqual(result["average_precision"], (2 * (2 / 3) + 3 / 4) / 3)
        strict = self.evaluate("one.onnx", "folder", "--labels", "names.txt", "--threshold", 0.95)
        self.assertEqual(strict["confusion"], {"true_yes": 2, "false_yes": 1, "true_no": 3, "false_no": 1})
        text = self.pipit_with_notes("evaluate", "one.onnx", "folder", "--labels", "names.txt", *self.PIXELS).stdout
        self.assertRegex(text, r"(?m)^accuracy  85.71 %")
        self.assertIn("red: 3 of 3 right, dull: 3 of 4", text)
        self.assertNotIn("top-", text)
        self.write("accuracy.json", json.dumps(result))
        self.pipit("profile", "one.onnx", "--runs", 2, "--accuracy", "accuracy.json", "--output", "report.html", "--quiet")

    def test_one_score_without_labels(self):
        for folder, name in (("1", "a"), ("0", "b"), ("yes", "c"), ("no", "d")):
            self.image(f"{'numbers' if folder in '01' else 'words'}/{folder}/{name}.bmp", name)
            self.image(f"others/{'cats' if folder in '01' else 'dogs'}/{name}.bmp", name)
        for folder in ("numbers", "words"):
            self.assertEqual(self.evaluate("one.onnx", folder)["top1_correct"], 2)
        done = self.pipit("evaluate", "one.onnx", "others", code=RUNTIME)
        self.assert_one_line_error(done, "cats", "yes or no", "--labels", "--truth")

    def test_tags_of_a_file(self):
        truth = {"a": "red", "b": "green", "c": "red;green", "d": "", "e": "2", "f": "green"}
        for name in self.COLOURS:
            self.image(f"folder/{name}.bmp", name)
        self.image("folder/more.bmp", "a")
        self.write("truth.csv", "image,classes\r\n" + "".join(f'"{name}.bmp",{tags}\r\n' for name, tags in truth.items()))
        options = ("folder", "--labels", "labels.txt", "--truth", "truth.csv")
        result = self.evaluate("tags.onnx", *options)
        self.assertEqual((result["scores"], result["images"]), ("sigmoid", 6))
        self.assertIn("1 image of folder not named in truth.csv, and left out", result["notes"])
        # e is blue and, by a bit more than half, red, which is not said of it.
        self.assertEqual(result["exact_correct"], 5)
        self.assertNotIn("top1", result)
        classes = {entry["label"]: entry for entry in result["classes"]}
        self.assertEqual({label: entry["images"] for label, entry in classes.items()}, {"red": 2, "green": 3, "blue": 1})
        self.assertEqual((classes["red"]["true_yes"], classes["red"]["false_yes"]), (2, 1))
        for entry in classes.values():
            self.assertAlmostEqual(entry["average_precision"], 1)
        self.assertAlmostEqual(result["mean_average_precision"], 1)
        text = self.pipit_with_notes("evaluate", "tags.onnx", *options, *self.PIXELS).stdout
        self.assertRegex(text, r"(?m)^exact     83.33 %")
        self.assertRegex(text, r"(?m)^mAP       100.00 %")
        against = self.evaluate("tags.onnx", *options, "--against", "tags.onnx", "--max-drop", 90)["against"]
        self.assertEqual((against["drop_points"], against["other_answers"]), (0, 0))
        # The same model without its sigmoid, and what is said of it.
        same = self.evaluate("logits.onnx", *options, "--scores", "sigmoid-logits")
        self.assertEqual(same["classes"], result["classes"])
        done = self.pipit("evaluate", "logits.onnx", *options, code=USAGE)
        self.assert_one_line_error(done, "truth.csv:4: an image of 2 classes", "one class is right", "--scores")

    def test_tags_of_folders(self):
        for folder, names in (("red", "ace"), ("green", "bcf"), ("blue", "e")):
            for name in names:
                self.image(f"folder/{folder}/{folder}-{name}.bmp", name)
        result = self.evaluate("tags.onnx", "folder", "--labels", "labels.txt")
        # c and e lie in two folders.
        self.assertEqual((result["images"], result["exact_correct"]), (5, 5))
        for path in ("green/green-c.bmp", "blue/blue-e.bmp"):
            (self.folder / "folder" / path).unlink()
        single = self.evaluate("tags.onnx", "folder", "--labels", "labels.txt")
        self.assertEqual((single["images"], single["top1_correct"], single["top5_correct"]), (5, 4, 5))
        self.assertIn("mean_average_precision", single)

    def test_mistakes_in_a_file_of_classes(self):
        for name in "ab":
            self.image(f"folder/{name}.bmp", name)
        for text, words in (("a.bmp,red\nz.bmp,red\n", ("truth.csv:2", "z.bmp")), ("a.bmp,pink\n", ("truth.csv:1", "'pink'")),
                            ("a.bmp,3\n", ("'3'", "3 classes")), ("a.bmp,red\na.bmp,red\n", ("truth.csv:2", "second time")),
                            ("a.bmp,red,green\n", ("truth.csv:1", "two columns")),
                            ("a.bmp,red\nb.bmp\n", ("truth.csv:2", "comma", "'b.bmp'")),
                            ('"a.bmp"\n', ("truth.csv:1", "comma")), ('"a.bmp,red\n', ("truth.csv:1", "quote")),
                            ("\n", ("truth.csv", "no image")), ("../folder/a.bmp,red\n", ("truth.csv:1", "below folder")),
                            (f"{self.folder}/folder/a.bmp,red\n", ("truth.csv:1", "below folder")),
                            (f"a.bmp,{'q' * 5000}\n", ("qqq...'",))):
            with self.subTest(text[:40]):
                self.write("truth.csv", text)
                done = self.pipit("evaluate", "tags.onnx", "folder", "--labels", "labels.txt", "--truth", "truth.csv", code=RUNTIME)
                self.assert_one_line_error(done, *words)

    def test_images_that_cannot_be_used_are_counted_once(self):
        for name in "abcd":
            self.image(f"folder/{name}.bmp", name)
        for name in ("e", "f"):
            self.write(f"folder/{name}.gif", b"GIF89a" + bytes(40))
        (self.folder / "folder/gone.bmp").symlink_to("nowhere")
        self.write("truth.csv", "a.bmp,red\nb.bmp,green\ne.gif,red\n")
        done = self.pipit_with_notes("evaluate", "tags.onnx", "folder", *self.PIXELS, "--labels", "labels.txt", "--truth", "truth.csv",
                                     "--json")
        result = json.loads(done.stdout)
        self.assertEqual((result["images"], result["left_out"]), (2, {"GIF": 1}))
        self.assertEqual([image["path"] for image in result["unreadable"]], ["folder/e.gif"])
        # Tags by folders, where files of the same bytes are one image.
        for tag, name in (("red", "a"), ("green", "a"), ("green", "b")):
            self.image(f"tags/{tag}/{name}.bmp", name)
        for tag in ("red", "green"):
            (self.folder / f"tags/{tag}/gone.bmp").symlink_to("nowhere")
        result = json.loads(self.pipit_with_notes("evaluate", "tags.onnx", "tags", *self.PIXELS, "--labels", "labels.txt", "--json").stdout)
        self.assertEqual((result["images"], len(result["unreadable"])), (2, 2))

    def test_images_without_classes_have_no_mean(self):
        self.image("folder/a.bmp", "a")
        self.write("truth.csv", "a.bmp,\n")
        options = ("tags.onnx", "folder", "--labels", "labels.txt", "--truth", "truth.csv")
        self.assertIsNone(self.evaluate(*options)["mean_average_precision"])
        self.assertIn("no image has a class", self.pipit_with_notes("evaluate", *options, *self.PIXELS).stdout)

    def test_tune_and_prune_name_what_they_measure(self):
        for i in range(12):
            self.write_bmp(f"folder/{i % 2}/{i}.bmp", (200 + i, 10, 10) if i % 2 else (50 - i, 10, 10), 2)
        tune = ("tune", "one.onnx", "folder", *self.PIXELS, "--max-drop", 100, "--output", "mixed.json")
        for options, name in (((), "accuracy"), (("--judge-by", "model"), "agreement with fp32")):
            text = self.pipit_with_notes(*tune, *options, "--save-svg", "mixed.svg").stdout
            self.assertIn(f"{name} %", text)
            self.assertIn(f"6 images: {name} ", text)
            self.assertNotIn("top-1", text)
            svg = (self.folder / "mixed.svg").read_text()
            self.assertIn(f"{name} by the expected drop", svg)

    def test_other_commands_judge_yes_and_no(self):
        """INT8 with scales that are too coarse answers otherwise; where only the largest score counted none would."""
        for i in range(24):
            self.write_bmp(f"folder/{i % 2}/{i}.bmp", (200 + 2 * i, 10, 10) if i % 2 else (50 - 2 * i, 10, 10), 2)
        self.pipit_with_notes("calibrate", "one.onnx", "folder", *self.PIXELS, "--limit", 4, "--output", "plan.json",
                              "--no-histograms")
        plan = json.loads((self.folder / "plan.json").read_text())
        for tensor in plan["tensors"]:
            tensor["scale"] *= 300
        self.write("plan.json", json.dumps(plan))
        int8 = ("--plan", "plan.json", "--keep", "first=int8", "--keep", "last=int8", *self.PIXELS)
        compared = json.loads(self.pipit_with_notes("evaluate", "one.onnx", "folder", "--precision", "int8", *int8, "--against",
                                                    "fp32", "--json").stdout)
        self.assertEqual(compared["against"]["base_top1"], 1)
        self.assertGreater(compared["against"]["other_answers"], 0)
        differences = json.loads(self.pipit_with_notes("diff", "one.onnx", "folder", *int8, "--json").stdout)
        self.assertEqual(differences["output"]["other_top1"], compared["against"]["other_answers"])
        for judge in ("labels", "model"):
            tuned = json.loads(self.pipit_with_notes("tune", "one.onnx", "folder", *int8, "--judge-by", judge, "--max-drop", 100,
                                                     "--output", "mixed.json", "--json").stdout)
            self.assertGreater(tuned["unseen_int8"]["drop_points"], 0, judge)


class Devices(CommandTest):
    """--devices on whatever this machine has: without a GPU only the errors can be seen."""

    def setUp(self):
        super().setUp()
        for i in range(23):
            self.write_bmp(f"images/{('frog', 'ship')[i % 2]}/{i}.bmp", (i * 37 % 256, i * 91 % 256, 9 * i))

    def test_malformed_lists(self):
        for devices in ("", ",", "0,", ",0", "0,,1", "0;1", "0, 1", "-1", "+1", "one", "0,1x", "1.0", "99999999999",
                        ",".join(["0"] * 65)):
            with self.subTest(devices):
                done = self.pipit("evaluate", MODEL, "images", "--device", "cuda", f"--devices={devices}", code=USAGE)
                self.assert_one_line_error(done, "--devices")

    def test_devices_are_gpus(self):
        for device in ([], ["--device", "cpu"]):
            done = self.pipit("evaluate", MODEL, "images", "--devices", "0", *device, code=USAGE)
            self.assert_one_line_error(done, "--devices", "--device cuda")

    def test_there_is_no_such_gpu(self):
        done = self.pipit("evaluate", MODEL, "images", "--device", "cuda", "--devices", "0,1000", code=RUNTIME)
        self.assert_one_line_error(done, "GPU" if self.has_gpu() else "device cuda")
        self.assertEqual(done.stdout, "")

    def test_the_answer_is_that_of_one_device(self):
        if not self.has_gpu():
            self.skipTest("no usable GPU")
        cuda = ("evaluate", MODEL, "images", "--device", "cuda")
        one = self.json(*cuda)
        self.assertNotIn("devices", one)
        for devices in ([0], [0, 0], [0, 0, 0]):
            for options in ([], ["--batch", "4"], ["--batch", "32", "--threads", "1"]):
                with self.subTest((devices, options)):
                    result = self.json(*cuda, *options, "--devices", ",".join(map(str, devices)))
                    for name in ("images", "top1_correct", "top5_correct"):
                        self.assertEqual(result[name], one[name])
                    self.assertEqual([d["gpu"] for d in result["devices"]], devices)
                    self.assertEqual(sum(d["images"] for d in result["devices"]), 23)
                    self.assertAlmostEqual(sum(d["images_per_s"] for d in result["devices"]), result["images_per_s"],
                                           delta=1e-6 * result["images_per_s"])
        text = self.pipit(*cuda, "--devices", "0,0").stdout
        self.assertEqual(text.count("\nGPU 0 "), 2)

    def test_a_broken_image_ends_all_devices(self):
        if not self.has_gpu():
            self.skipTest("no usable GPU")
        self.write("images/ship/11.bmp", b"BM")
        self.write("images/ship/21.bmp", b"")
        for batch in (1, 3, 32):
            done = self.pipit("evaluate", MODEL, "images", "--device", "cuda", "--devices", "0,0", "--batch", batch,
                              "--strict", code=RUNTIME)
            self.assert_one_line_error(done, "11.bmp")


if __name__ == "__main__":
    main()
