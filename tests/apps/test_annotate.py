"""pipit annotate, and what classify, evaluate and inspect say of labels, preprocessing and images."""

import json
import struct
import zlib

from command import MODEL, RUNTIME, USAGE, CommandTest, main
from onnx_model import FLOAT, field, flatten, model, node, tensor

LABELS = [f"thing {i}" for i in range(12)]


class Annotate(CommandTest):
    def setUp(self):
        super().setUp()
        self.write_bmp("image.bmp", (90, 120, 150))
        self.write("labels.txt", "\n".join(LABELS) + "\n")
        # With an unknown field, and metadata of others.
        self.before = flatten() + field(14, field(1, "author") + field(2, "somebody")) + field(2000, "unknown")
        self.after = field(14, field(1, "author") + field(2, "somebody else"))

    def annotate(self, *options, code=0):
        return self.pipit("annotate", "model.onnx", "--output", "out.onnx", *options, code=code)

    def test_only_the_entries_change(self):
        self.write("model.onnx", self.before)
        self.annotate("--labels", "labels.txt", "--mean", "0.5,0.25,0.125")
        out = (self.folder / "out.onnx").read_bytes()
        self.assertTrue(out.startswith(self.before))
        again = self.pipit("annotate", "out.onnx", "--labels", "labels.txt", "--output", "again.onnx")
        self.assertEqual(again.returncode, 0)
        again = (self.folder / "again.onnx").read_bytes()
        self.assertEqual(len(again), len(out))  # replaced, not added
        self.assertTrue(again.startswith(self.before))

    def test_entries_of_the_same_key_are_replaced_wherever_they_stand(self):
        self.write("model.onnx", self.before + field(14, field(1, "pipit.labels") + field(2, "\n".join(LABELS[::-1])))
                   + self.after)
        self.annotate("--labels", "labels.txt")
        self.assertTrue((self.folder / "out.onnx").read_bytes().startswith(self.before + self.after))
        self.assertEqual(self.json("inspect", "out.onnx")["labels"], LABELS)

    def test_what_is_stored_is_shown_and_used(self):
        self.write("model.onnx", self.before)
        self.annotate("--labels", "labels.txt", "--preset", "timm", "--std", "0.5,0.5,0.25")
        seen = self.json("inspect", "out.onnx")
        self.assertEqual(seen["labels"], LABELS)
        self.assertEqual(seen["preprocessing"]["interpolation"], "bicubic")
        self.assertEqual(seen["preprocessing"]["std"], [0.5, 0.5, 0.25])
        text = self.pipit("inspect", "out.onnx").stdout
        self.assertIn("labels  12: thing 0, ..., thing 11", text)
        self.assertRegex(text, r"(?m)^preprocessing  stored in the model: .*bicubic.* std 0.5 0.5 0.25$")
        used = self.json("classify", "out.onnx", "image.bmp")
        self.assertEqual(used["preprocessing"]["source"], "stored")
        self.assertEqual(used["notes"], [])
        self.assertIn(used["images"][0]["top"][0]["label"], LABELS)
        given = self.json("classify", "model.onnx", "image.bmp", "--preset", "timm", "--std", "0.5,0.5,0.25", "--quiet")
        self.assertEqual(used["images"][0]["top"][0]["probability"], given["images"][0]["top"][0]["probability"])

    def write_with_weights(self, where="w.bin", weights=bytes(48)):
        external = tensor("w", FLOAT, [1, 3, 2, 2], b"").replace(field(9, b""), b"")
        external += field(13, field(1, "location") + field(2, where)) + field(14, 1)
        self.write("model.onnx", model(("N", 3, 2, 2), [node("Add", ["x", "w"], "s"), node("Flatten", ["s"], "y")],
                                       [external]))
        self.write(where, weights)
        return ["annotate", "model.onnx", "--labels", "labels.txt", "--output"]

    def listed(self, folder):
        return sorted(str(p.relative_to(self.folder / folder)) for p in (self.folder / folder).rglob("*"))

    def test_weights_beside_the_model_go_along(self):
        weights = bytes(48)
        command = self.write_with_weights(weights=weights)
        (self.folder / "elsewhere").mkdir()
        self.pipit(*command, "elsewhere/out.onnx")
        self.assertEqual((self.folder / "elsewhere" / "w.bin").read_bytes(), weights)
        self.assertEqual(self.json("inspect", "elsewhere/out.onnx")["labels"], LABELS)
        self.pipit(*command, "out.onnx")
        self.assertEqual(self.json("inspect", "out.onnx")["labels"], LABELS)
        # The same weights are there already: again, and for a second model.
        before = (self.folder / "elsewhere" / "w.bin").stat()
        self.pipit(*command, "elsewhere/out.onnx")
        self.pipit(*command, "elsewhere/again.onnx")
        self.assertEqual((self.folder / "elsewhere" / "w.bin").stat().st_mtime_ns, before.st_mtime_ns)
        self.assertEqual(self.listed("elsewhere"), ["again.onnx", "out.onnx", "w.bin"])
        # Other weights are not replaced.
        self.write("elsewhere/w.bin", bytes(47) + b"x")
        done = self.pipit(*command, "elsewhere/third.onnx", code=RUNTIME)
        self.assert_one_line_error(done, "w.bin")
        self.assertEqual((self.folder / "elsewhere" / "w.bin").read_bytes(), bytes(47) + b"x")
        self.assertFalse((self.folder / "elsewhere" / "third.onnx").exists())
        # Neither the weights themselves nor where they would go may become the model.
        done = self.pipit(*command, "w.bin", code=USAGE)
        self.assert_one_line_error(done, "--output", "w.bin")
        self.assertEqual((self.folder / "w.bin").read_bytes(), weights)
        (self.folder / "third").mkdir()
        self.assert_one_line_error(self.pipit(*command, "third/w.bin", code=RUNTIME), "w.bin")
        self.assertEqual(self.listed("third"), [])

    def test_weights_go_through_no_name_that_others_could_know(self):
        command = self.write_with_weights()
        self.write("victim.txt", "precious")
        for link in (True, False):
            folder = self.folder / f"out{link}"
            folder.mkdir()
            if link:
                (folder / "w.bin.part").symlink_to("../victim.txt")
            else:
                (folder / "w.bin.part").write_text("precious")
            self.pipit(*command, f"{folder.name}/out.onnx")
            self.assertEqual((folder / "w.bin.part").read_text(), "precious")
            self.assertEqual((folder / "w.bin.part").is_symlink(), link)
            self.assertFalse((folder / "w.bin").is_symlink())
            self.assertEqual((folder / "w.bin").read_bytes(), bytes(48))
            self.assertEqual(self.listed(folder.name), ["out.onnx", "w.bin", "w.bin.part"])
        self.assertEqual((self.folder / "victim.txt").read_text(), "precious")
        # Links where the weights go belong to the user, wherever they lead.
        for target in ("../victim.txt", "nowhere"):
            folder = self.folder / "linked"
            folder.mkdir(exist_ok=True)
            (folder / "w.bin").unlink(missing_ok=True)
            (folder / "w.bin").symlink_to(target)
            self.assert_one_line_error(self.pipit(*command, "linked/out.onnx", code=RUNTIME), "w.bin")
            self.assertEqual(self.listed("linked"), ["w.bin"])
        self.assertEqual((self.folder / "victim.txt").read_text(), "precious")

    def test_weights_stay_below_the_folder_and_go_again_with_an_error(self):
        command = self.write_with_weights("sub/deep/w.bin")
        (self.folder / "outside").mkdir()
        (self.folder / "out").mkdir()
        (self.folder / "out" / "sub").symlink_to("../outside")
        self.assert_one_line_error(self.pipit(*command, "out/out.onnx", code=RUNTIME), "sub", "outside")
        self.assertEqual(self.listed("outside"), [])
        (self.folder / "out" / "sub").unlink()
        self.pipit(*command, "out/out.onnx")
        self.assertEqual(self.listed("out"), ["out.onnx", "sub", "sub/deep", "sub/deep/w.bin"])
        # The weights have their place, the model none: nothing is left of both.
        (self.folder / "full").mkdir()
        (self.folder / "full" / "out.onnx").symlink_to("/dev/full")
        self.assert_one_line_error(self.pipit(*command, "full/out.onnx", code=RUNTIME), "out.onnx")
        self.assertEqual(self.listed("full"), ["out.onnx"])

    def test_mistakes(self):
        self.write("model.onnx", self.before)
        self.assert_one_line_error(self.annotate(code=USAGE), "--labels")
        self.write("few.txt", "one\ntwo\n")
        self.assert_one_line_error(self.annotate("--labels", "few.txt", code=RUNTIME), "2 labels", "12 classes")
        done = self.pipit("annotate", MODEL, "--labels", "labels.txt", "--output", "out.onnx", code=USAGE)
        self.assert_one_line_error(done, MODEL)
        done = self.pipit("annotate", "model.onnx", "--labels", "labels.txt", "--output", "model.onnx", code=USAGE)
        self.assert_one_line_error(done, "--output")
        self.assertFalse((self.folder / "out.onnx").exists())


class Assumptions(CommandTest):
    def setUp(self):
        super().setUp()
        self.write_bmp("images/0_a.bmp", (90, 120, 150))
        self.write_bmp("images/1_b.bmp", (190, 20, 150))
        self.write("model.onnx", flatten())

    def notes(self, *arguments):
        done = self.pipit_with_notes(*arguments, "--json")
        notes = json.loads(done.stdout)["notes"]
        self.assertEqual([f"pipit: note: {note}" for note in notes], done.stderr.splitlines())
        self.assertEqual(self.pipit_with_notes(*arguments, "--quiet").stderr, "")
        return notes

    def test_preprocessing_is_stored_given_or_guessed(self):
        complete = ("--resize", 2, "--interpolation", "bicubic", "--mean", "0,0,0", "--std", "1,1,1")
        for model_name, options, source, preset in ((MODEL, (), "stored", None), (MODEL, ("--crop", 32), "stored", None),
                                                    ("model.onnx", (), "guessed", "torchvision"),
                                                    ("model.onnx", ("--mean", "0,0,0"), "guessed", "torchvision"),
                                                    ("model.onnx", ("--preset", "timm"), "given", "timm"),
                                                    ("model.onnx", complete, "given", "torchvision")):
            for command in ("classify", "evaluate"):
                with self.subTest(model=model_name, options=options, command=command):
                    arguments = (command, model_name, "images", *options)
                    done = json.loads(self.pipit_with_notes(*arguments, "--json").stdout)["preprocessing"]
                    self.assertEqual((done["source"], done["preset"]), (source, preset))
                    self.assertEqual(len(done["given"]), len(options) // 2 - ("--preset" in options))
                    self.assertIn(source, self.pipit_with_notes(*arguments).stdout)
                    guessed = [note for note in self.notes(*arguments) if "preprocessing guessed" in note]
                    self.assertEqual(len(guessed), source == "guessed")

    def test_classify_takes_a_folder(self):
        done = self.json("classify", MODEL, "images", "images/1_b.bmp")
        self.assertEqual([image["path"] for image in done["images"]],
                         ["images/0_a.bmp", "images/1_b.bmp", "images/1_b.bmp"])

    def test_no_labels(self):
        self.assertTrue(any("no labels" in note for note in self.notes("classify", "model.onnx", "images")))
        self.assertFalse(any("no labels" in note for note in self.notes("evaluate", "model.onnx", "images")))

    def test_random_weights(self):
        self.assertIn("random weights", self.notes("classify", "resnet18", "images/0_a.bmp")[0])

    def test_photographs_are_turned_upright(self):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

        def photograph(name, rows, orientation):
            exif = b"MM\0*" + struct.pack(">IHHHIHHI", 8, 1, 0x0112, 3, 1, orientation, 0, 0)
            self.write(name, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 2, 0, 0, 0))
                       + chunk(b"eXIf", exif) + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows)))
                       + chunk(b"IEND", b""))

        a, b, c, d = (bytes(rgb) for rgb in ((250, 0, 20), (0, 90, 40), (10, 20, 200), (70, 60, 0)))
        photograph("upright.png", [a + b, c + d], 1)
        photograph("lying.png", [b + d, a + c], 6)  # turned by 90 degrees, clockwise
        options = ("classify", "model.onnx", "upright.png", "lying.png", "--topk", 12)
        upright, lying = json.loads(self.pipit_with_notes(*options, "--json").stdout)["images"]
        self.assertEqual(lying["top"], upright["top"])
        self.assertEqual((lying["exif_orientation"], "exif_orientation" in upright), (6, False))
        self.assertTrue(any("1 image was turned upright" in note for note in self.notes(*options)))
        stored = json.loads(self.pipit_with_notes(*options, "--json", "--no-exif-transpose").stdout)
        self.assertNotEqual(stored["images"][1]["top"], upright["top"])
        self.assertNotIn("exif_orientation", stored["images"][1])
        self.assertFalse(stored["preprocessing"]["exif_transpose"])
        for name in ("upright.png", "lying.png"):
            self.write(f"photographs/0_{name}", (self.folder / name).read_bytes())
        self.assertEqual(json.loads(self.pipit_with_notes("evaluate", "model.onnx", "photographs", "--json").stdout)
                         ["exif_transposed"], 1)

    def test_grey_images(self):
        self.write_bmp("grey/0_a.bmp", (90, 90, 90))
        self.assertEqual(["grey" in note for note in self.notes("evaluate", MODEL, "grey")], [True])
        self.assertEqual(self.notes("evaluate", MODEL, "images"), [])


if __name__ == "__main__":
    main()
