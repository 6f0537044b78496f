"""What the commands make of unusual models: shapes, labels, bad values, messages that name the model."""

import struct

from command import MODEL, RUNTIME, UNSUPPORTED, USAGE, CommandTest, main
from onnx_model import FLOAT, INT64, flatten, model, node, tensor


class Models(CommandTest):
    def setUp(self):
        super().setUp()
        self.image = self.write_bmp("image.bmp", (90, 120, 150))
        for i in range(3):
            self.write_bmp(f"images/{i}_x.bmp", (90, 120, 150 + i))
        self.write("model.onnx", flatten())

    def test_a_batch_that_collapses_is_refused(self):
        shape = tensor("shape", INT64, [2], struct.pack("<qq", 1, -1))
        self.write("collapse.onnx", model(("N", 3, 2, 2), [node("Reshape", ["x", "shape"], "y")], [shape]))
        self.assertEqual(self.json("evaluate", "collapse.onnx", "images")["images"], 3)
        done = self.pipit("evaluate", "collapse.onnx", "images", "--batch", 2, code=RUNTIME)
        self.assert_one_line_error(done, "collapse.onnx", "2x3x2x2", "1x24")
        self.assertEqual(done.stdout, "")

    def test_a_batch_is_no_larger_than_the_folder(self):
        for batch, more, expected in ((64, [], 3), (64, ["--limit", 2], 2), (2, [], 2), (1, [], 1)):
            with self.subTest(batch=batch, more=more):
                result = self.json("evaluate", "model.onnx", "images", "--batch", batch, *more)
                self.assertEqual(result["batch"], expected)

    def test_fixed_batches(self):
        self.write("two.onnx", flatten((2, 3, 2, 2)))
        (alone,) = self.json("classify", "model.onnx", self.image)["images"]
        for two in (["two.onnx"], ["model.onnx", "--dim", "N=2"]):
            (image,) = self.json("classify", two[0], self.image, *two[1:])["images"]
            self.assertEqual(image["top"], alone["top"])
        done = self.pipit("evaluate", "two.onnx", "images", "--batch", 3, code=RUNTIME)
        self.assert_one_line_error(done, "two.onnx: the file fixes the batch at 2", "batch 3")
        self.assertEqual(self.json("profile", "two.onnx", "--runs", 1)["batch"], 2)

    def test_batch_and_dim_that_contradict_each_other(self):
        for command in (["profile", "model.onnx"], ["evaluate", "model.onnx", "images"]):
            done = self.pipit(*command, "--batch", 3, "--dim", "N=2", code=USAGE)
            self.assert_one_line_error(done, "batch 3 contradicts the given dimensions", "'x'", "2")
        # Also where the folder's three images reduce the batch to what --dim says.
        done = self.pipit("evaluate", "model.onnx", "images", "--batch", 64, "--dim", "N=3", code=USAGE)
        self.assert_one_line_error(done, "batch 64 contradicts the given dimensions", "3")
        self.assertEqual(self.json("evaluate", "model.onnx", "images", "--batch", 3, "--dim", "N=3")["batch"], 3)
        self.assertEqual(self.json("profile", "model.onnx", "--batch", 2, "--dim", "N=2", "--runs", 1)["batch"], 2)

    def test_nan_names_model_and_image(self):
        nan = tensor("nan", FLOAT, [1], struct.pack("<f", float("nan")))
        nodes = [node("Flatten", ["x"], "f"), node("Mul", ["f", "nan"], "y")]
        self.write("nan.onnx", model(("N", 3, 2, 2), nodes, [nan]))
        done = self.pipit("classify", "nan.onnx", "image.bmp", code=RUNTIME)
        self.assert_one_line_error(done, "nan.onnx", "image.bmp", "NaN")
        done = self.pipit("evaluate", "nan.onnx", "images", code=RUNTIME)
        self.assert_one_line_error(done, "nan.onnx", "0_x.bmp", "NaN")

    def test_the_reference_runs_in_fp16(self):
        for precision in ("fp32", "fp16"):
            with self.subTest(precision=precision):
                result = self.json("classify", MODEL, "image.bmp", "--kernel", "reference", "--precision", precision)
                best = result["images"][0]["top"][0]
                self.assertAlmostEqual(best["probability"], self.best()["probability"], delta=0.01)
                self.assertEqual(best["class"], self.best()["class"])

    def best(self):
        return self.json("classify", MODEL, "image.bmp")["images"][0]["top"][0]

    def test_labels_are_as_many_as_classes(self):
        for count in (11, 13):
            labels = "".join(f"label {i}\n" for i in range(count))
            self.write("labels.txt", labels)
            self.write("stored.onnx", flatten(metadata={"pipit.labels": labels}))
            for command, operand in (("classify", self.image), ("evaluate", "images")):
                with self.subTest(count=count, command=command):
                    done = self.pipit(command, "model.onnx", operand, "--labels", "labels.txt", code=RUNTIME)
                    self.assert_one_line_error(done, "labels.txt", "model.onnx", f"{count} labels", "12 classes")
                    done = self.pipit(command, "stored.onnx", operand, code=RUNTIME)
                    self.assert_one_line_error(done, "stored.onnx", f"{count} labels", "12 classes")

    def test_large_inputs_are_refused_for_their_size(self):
        shape = tensor("shape", INT64, [2], struct.pack("<qq", 1, -1))
        nodes = [node("GlobalAveragePool", ["x"], "p"), node("Reshape", ["p", "shape"], "y")]
        self.write("large.onnx", model((1, 3, 17000, 17000), nodes, [shape]))
        done = self.pipit("classify", "large.onnx", self.image, code=RUNTIME)
        self.assert_one_line_error(done, "large.onnx", "1x3x17000x17000", "16384")

    def test_errors_of_the_plan_name_the_model(self):
        self.write("huge.onnx", model((1, 3, 131072, 131072), [node("Relu", ["x"], "y")]))
        done = self.pipit("inspect", "huge.onnx", code=RUNTIME)
        self.assertTrue(done.stderr.startswith("pipit: huge.onnx: the activations need"), done.stderr)

    def test_long_lists_are_cut(self):
        nodes = [node(f"Nonsense{i}", [f"v{i}" if i > 0 else "x"], f"v{i + 1}", f"node {i}") for i in range(30)]
        nodes.append(node("Flatten", ["v30"], "y"))
        data = model((1, 3, 2, 2), nodes)
        self.write("test/model.onnx", data)
        done = self.pipit("inspect", "test/model.onnx", code=UNSUPPORTED)
        lines = done.stderr.splitlines()
        self.assertEqual(len(lines), 21, done.stderr)
        self.assertIn("30 parts", lines[0])
        self.assertEqual(lines[-1], "  ... and 11 more")
        self.write("test/test_data_set_0/input_0.pb", tensor("x", FLOAT, [1, 3, 2, 2], b"\0" * 48))
        self.write("test/test_data_set_0/output_0.pb", tensor("y", FLOAT, [1, 12], b"\0" * 48))
        (test,) = self.json("verify", "test", code=UNSUPPORTED)["tests"]
        self.assertEqual(test["note"].splitlines()[1:], [*lines[1:]])

    def test_a_share_of_the_activations_only_where_there_is_one(self):
        self.assertNotRegex(self.pipit("inspect", "model.onnx").stdout, r"(?m)^arena .*%")
        self.assertRegex(self.pipit("inspect", MODEL).stdout, r"(?m)^arena .*\(\d\d?\.\d %\);")

    def test_folders_without_labels(self):
        self.write_bmp("named/cat/1_a.bmp", (1, 2, 3))
        done = self.pipit("evaluate", "model.onnx", "named", code=RUNTIME)
        self.assert_one_line_error(done, "1_a.bmp", "'cat'", "--labels")
        self.write_bmp("numbered/0/1_a.bmp", (1, 2, 3))
        self.write_bmp("numbered/11/1_b.bmp", (1, 2, 3))
        self.assertEqual(self.json("evaluate", "model.onnx", "numbered")["images"], 2)


class Escapes(CommandTest):
    """Names from files reach the terminal as text."""

    RAW = "\x1b]0;title\x07 \x9b1m \u202eevil \u2066x\n  y\r\x7f"
    SHOWN = r"\x1b]0;title\x07 \u009b1m \u202eevil \u2066x\x0a  y\x0d\x7f"

    def setUp(self):
        super().setUp()
        self.write_bmp("image.bmp", (90, 120, 150))

    def assert_clean(self, text):
        self.assertNotRegex(text, "[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

    def test_names_in_tables(self):
        raw, shown = "\u202eevil\u2066 \u200f", r"\u202eevil\u2066 \u200f"  # the reader refuses control characters
        nodes = [node("Abs", [raw], "f", raw), node("Flatten", ["f"], "y")]
        self.write("model.onnx", model((1, 3, 2, 2), nodes, input_name=raw))
        for command in (["inspect", "--why"], ["profile", "--runs", 1]):
            text = self.pipit(command[0], "model.onnx", *command[1:]).stdout
            self.assert_clean(text)
            self.assertIn(shown, text)

    def test_labels(self):
        raw = "\x1b[31m\x85\u202e".encode() + b"\xff\xc0\xaf\xed\xa0\x80 \xc3\xa9\xe2\x82\xac"
        self.write("labels.txt", b"\n".join([raw] * 12))
        self.write("model.onnx", flatten())
        text = self.pipit("classify", "model.onnx", "image.bmp", "--labels", "labels.txt", "--topk", 1).stdout
        self.assert_clean(text)
        self.assertIn(r"\x1b[31m\u0085\u202e\xff\xc0\xaf\xed\xa0\x80 " + "é€", text)

    def test_json(self):
        raw = "é \x1b[31m\x7f\x9b\u202e\u2066"
        self.write("labels.txt", "\n".join([raw] * 12))
        self.write("model.onnx", flatten())
        arguments = ["classify", "model.onnx", "image.bmp", "--labels", "labels.txt", "--topk", 1]
        self.assert_clean(self.pipit(*arguments, "--json").stdout)
        self.assertEqual(self.json(*arguments)["images"][0]["top"][0]["label"], raw)

    def test_paths(self):
        name = self.RAW.replace("/", "")
        (self.folder / name).write_bytes((self.folder / "image.bmp").read_bytes())
        self.write("model.onnx", flatten())
        text = self.pipit("classify", "model.onnx", name).stdout
        self.assert_clean(text)
        self.assertEqual(text.splitlines()[0], self.SHOWN)

    def test_errors(self):
        fake = "none\npipit: all is well\x1b[0m"
        for arguments, code in ((["inspect", fake], RUNTIME), (["classify", MODEL, fake], RUNTIME),
                                ([fake], USAGE), (["inspect", MODEL, fake], USAGE),
                                (["inspect", MODEL, "--kernel", fake], USAGE)):
            with self.subTest(arguments):
                done = self.pipit(*arguments, code=code)
                self.assert_one_line_error(done, r"none\x0apipit: all is well\x1b[0m")


if __name__ == "__main__":
    main()
