"""pipit evaluate."""

from command import MODEL, RUNTIME, CommandTest, main


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

    def test_folder_problems(self):
        (self.folder / "empty").mkdir()
        self.write_bmp("strange/unicorn/a.bmp", (1, 2, 3))
        self.write_bmp("beyond/10_too-many.bmp", (1, 2, 3))
        self.write("notes.txt", "no image")
        for folder, word in (("missing", "missing"), ("empty", "empty"), ("strange", "unicorn"),
                             ("beyond", "10_too-many.bmp"), ("notes.txt", "notes.txt")):
            with self.subTest(folder):
                self.assert_one_line_error(self.pipit("evaluate", MODEL, folder, code=RUNTIME), word)

    def test_a_broken_image_is_named(self):
        self.write("images/ship/broken.bmp", b"BM")
        done = self.pipit("evaluate", MODEL, "images", "--batch", "4", code=RUNTIME)
        self.assert_one_line_error(done, "broken.bmp")
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    main()
