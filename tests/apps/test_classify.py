"""pipit classify."""

import json

from command import MODEL, RUNTIME, CommandTest, main

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
        (image,) = self.json("classify", MODEL, "image.bmp", "--no-autotune")["images"]
        *lines, last = self.pipit("classify", MODEL, "image.bmp", "--no-autotune").stdout.splitlines()
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
        fixed = ("classify", MODEL, "--no-autotune")
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

    def test_only_broken_images(self):
        self.write("text.jpg", "not an image\n")
        done = self.pipit("classify", MODEL, "text.jpg", "--profile", code=RUNTIME)
        self.assert_one_line_error(done, "text.jpg")
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    main()
