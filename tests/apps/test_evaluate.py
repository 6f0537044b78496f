"""pipit evaluate."""

from command import MODEL, RUNTIME, USAGE, CommandTest, main


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
        results = [self.json("evaluate", MODEL, "images", "--no-autotune", "--threads", threads, "--batch", batch)
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
                done = self.pipit("evaluate", MODEL, "images", "--batch", batch, "--threads", threads, code=RUNTIME)
                self.assert_one_line_error(done, "17.bmp")
                self.assertEqual(done.stdout, "")


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
                              code=RUNTIME)
            self.assert_one_line_error(done, "11.bmp")


if __name__ == "__main__":
    main()
