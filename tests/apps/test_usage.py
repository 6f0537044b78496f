"""Help, options, exit codes and errors that all subcommands share."""

import json
import os
import re
import shlex
import subprocess
import unittest.mock

import onnx_model
from command import (CHECK_FAILED, MODEL, NESTED_SUBCOMMANDS, OK, OTHER_SUBCOMMANDS, PIPIT, RUNTIME, SUBCOMMANDS, USAGE,
                     CommandTest, main)


class Help(CommandTest):
    def test_lists_every_subcommand(self):
        text = self.pipit("--help").stdout
        listed = re.search(r"Subcommands:\n((?:  .*\n?)+)", text)[1]
        self.assertEqual(sorted(re.findall(r"^  (\w+)", listed, re.M)),
                         sorted([*SUBCOMMANDS, *OTHER_SUBCOMMANDS, *NESTED_SUBCOMMANDS]))

    def test_of_every_subcommand(self):
        for name in SUBCOMMANDS:
            with self.subTest(name):
                text = self.pipit(name, "--help").stdout
                for option in (SUBCOMMANDS[name], "--json", "--quiet"):
                    self.assertIn(option, text)
                # What means nothing to a command is not there.
                runs = name not in ("quantize", "annotate")
                runs_as_told = runs and name not in ("calibrate", "diff", "tune", "prune")
                on_devices = runs_as_told or name in ("diff", "tune")
                rounds = name == "quantize"
                for option, there in (("--threads", runs or rounds), ("--kernel", runs), ("--device", on_devices),
                                      ("--precision", runs_as_told or rounds or name == "prune"),
                                      ("--group-size", runs_as_told or rounds),
                                      ("--autotune", runs and name not in ("calibrate", "diff"))):
                    self.assertEqual(re.search(rf"^  {option}\b", text, re.M) is not None, there, option)
                    if not there:
                        self.assert_one_line_error(self.pipit(name, "a", "b", option, code=USAGE), f"unknown option {option};")

    def test_of_those_that_take_no_model(self):
        for name in OTHER_SUBCOMMANDS:
            text = self.pipit(name, "--help").stdout
            for option in ("--json", "--quiet", "Example"):
                self.assertIn(option, text)
            operands = ["efficientnet-lite0"] * (2 if name == "compare" else 1)
            self.assertIn("--thread-count", self.pipit(name, *operands, "--thread-count", code=USAGE).stderr)
        self.assert_one_line_error(self.pipit("fetch", code=USAGE), "NAME")

    def test_version_tells_what_is_built_in(self):
        self.assertRegex(self.pipit("--version").stdout, r"\Apipit \d+\.\d+\.\d+\ncpu   \d+ threads\n"
                         r"jpeg  (libjpeg-turbo \d.*|stb_image)\npng   (libpng \d.*|stb_image)\n"
                         r"webp  (libwebp \d.*|not built in)\ncuda  ")


class UsageErrors(CommandTest):
    def assert_usage_error(self, *arguments, names):
        done = self.pipit(*arguments, code=USAGE)
        self.assertEqual(done.stdout, "")
        self.assert_one_line_error(done, names)

    def test_alone_it_says_what_to_try(self):
        done = self.pipit(code=USAGE)
        self.assertEqual(done.stderr, "")
        tried = re.findall(r"(?m)^  (pipit .*?)  ", done.stdout)
        self.assertEqual([line.split()[1] for line in tried], ["classify", "profile", "inspect"])
        self.assertLess(len(done.stdout.splitlines()), 12)
        self.assertIn("pipit --help", done.stdout)
        for name in ("photo.jpg", "model.onnx"):
            self.assertIn(name, done.stdout)
        self.write_bmp("photo.jpg", (90, 120, 150))
        self.write("model.onnx", onnx_model.flatten())
        self.keep_default_model(onnx_model.flatten(("N", 3, 2, 2)))
        for line in tried:
            self.pipit_with_notes(*line.replace("resnet50", MODEL).split()[1:])

    def test_unknown_subcommand(self):
        self.assert_usage_error("clasify", names="clasify")
        self.assert_usage_error("--jsn", names="--jsn")
        for words in (("convv",), ("convv", "--n", "1")):
            self.assert_one_line_error(self.pipit("sweep", *words, code=USAGE), "'convv' is not a subcommand", "'conv'", "pipit sweep --help")

    def test_unknown_option_of_every_subcommand(self):
        for name in SUBCOMMANDS:
            with self.subTest(name):
                self.assert_usage_error(name, MODEL, "image", "--thread-count", "2", names="--thread-count")

    def test_missing_operand(self):
        for name, operand in SUBCOMMANDS.items():
            with self.subTest(name):
                self.assert_usage_error(name, names=operand)
                self.assert_usage_error(name, names=f" is required: pipit {name} [OPTIONS] ")
        self.assert_usage_error("classify", "model.onnx",
                                names="IMAGE is required: pipit classify [OPTIONS] [MODEL] IMAGE...; see pipit classify")
        self.assert_usage_error("sweep", names="pipit sweep")

    def test_values(self):
        for arguments, names in (
                (("profile", MODEL, "--runs", "0"), "--runs"),
                (("profile", MODEL, "--runs", "many"), "--runs"),
                (("profile", MODEL, "--runs"), "--runs"),
                (("profile", MODEL, "--batch", "0"), "--batch"),
                (("profile", MODEL, "--batch", "99999999999999999999"), "--batch"),
                (("profile", MODEL, "--threads", "-1"), "--threads"),
                (("profile", MODEL, "--threads", str(min(max(16 * os.cpu_count(), 64), 1024) + 1)), "--threads"),
                (("profile", MODEL, "--device", "tpu"), "--device"),
                (("profile", MODEL, "--precision", "fp8"), "--precision"),
                (("inspect", MODEL, "--dim", "height"), "--dim"),
                (("inspect", MODEL, "--dim", "height=-3"), "--dim"),
                (("classify", MODEL), "IMAGE"),
                (("classify", MODEL, "a.png", "--topk", "0"), "--topk"),
                (("classify", MODEL, "a.png", "--mean", "0.5,0.5"), "--mean"),
                (("classify", MODEL, "a.png", "--interpolation", "lanczos"), "--interpolation"),
                (("classify", MODEL, "a.png", "--mean", "0,0,nan"), "--mean"),
                (("classify", MODEL, "a.png", "--mean", "0,0,grey"), "--mean"),
                (("classify", MODEL, "a.png", "--std", "0.5,0,0.5"), "--std"),
                (("classify", MODEL, "a.png", "--std", "1,1,1e39"), "--std"),
                (("classify", MODEL, "a.png", "--preset", "nonsense"), "torchvision"),
                (("inspect", MODEL, "--kernel", "nonsense"), "'nonsense'; pipit inspect --why"),
                (("verify", "tests", "--kernel", "im2col_gem"), "'im2col_gem'; did you mean 'im2col_gemm'"),
                (("classify", MODEL, "a.png", "--mean", "0,,0,0"), "--mean"),
                (("classify", MODEL, "a.png", "--mean", "0,0,0,0"), "--mean"),
                (("bench", MODEL, "--batch", "1,,2"), "--batch"),
                (("bench", MODEL, "--batch", "1,0"), "--batch"),
                (("bench", MODEL, "--threads", "1,"), "--threads"),
                (("bench", MODEL, "--precision", ",fp32"), "--precision"),
                (("calibrate", MODEL, "images", "--output", "p.json", "--export", "ncnn,,trt-cache"), "--export"),
                (("calibrate", MODEL, "images", "--output", "p.json", "--export", "ncnn,onnx"), "--export"),
                (("calibrate", MODEL, "images", "--output", "p.json", "--autotune"), "--autotune"),
                (("diff", MODEL, "images", "--plan", "p.json", "--precision", "w4"), "unknown option --precision; see pipit diff"),
                (("prune", MODEL, "images", "--keep-ratio", "0.5", "--output", "p.onnx", "--device", "cuda"), "unknown option --device; see pipit prune"),
                (("verify", "tests", "--precision", "int8"), "--plan"),
                (("evaluate", MODEL, "images", "--limit", "-1"), "--limit"),
                (("evaluate", MODEL, "images", "--limit", "1.5"), "--limit"),
                (("evaluate", MODEL, "images", "--limit", "9223372036854775808"), "--limit"),
                (("verify", "tests", "--rtol", "nan"), "--rtol"),
                (("verify", "tests", "--atol", "-1"), "--atol"),
                (("calibrate", MODEL, "images", "--output", "p.json", "--labels", "l.txt"), "--labels"),
                (("diff", MODEL, "images", "--plan", "p.json", "--labels", "l.txt"), "--labels"),
                (("tune", MODEL, "images", "--max-drop", "1", "--output", "p.json", "--judge-by", "model", "--labels",
                  "l.txt"), "--labels"),
                (("inspect", MODEL, "--tuning-cache", "nowhere/cache.json"), "'nowhere'"),
                (("inspect", MODEL, "--plan", ""), "--plan"),
                (("inspect", MODEL, "--group-size", ""), "--group-size"),
                (("inspect", ""), "MODEL"),
                (("verify", "tests", "--atol", "1e99"), "float"),
                (("verify", "tests", "--norm", "inf"), "--norm"),
                (("verify", "tests", "--norm", "0"), "--norm")):
            with self.subTest(arguments):
                self.assert_usage_error(*arguments, names=names)
                self.assertLess(len(self.pipit(*arguments, code=USAGE).stderr), 800)

    def test_every_kernel_of_a_model_can_be_preferred(self):
        for kernel in {layer["kernel"] for layer in self.json("inspect", MODEL)["layers"]}:
            self.pipit("inspect", MODEL, "--kernel", kernel)

    def test_an_instruction_set_that_does_not_exist(self):
        with unittest.mock.patch.dict(os.environ, PIPIT_ISA="nonsense"):
            self.assert_one_line_error(self.pipit("inspect", MODEL, code=USAGE), "PIPIT_ISA=nonsense", "baseline")

    def test_options_before_the_subcommand(self):
        for option in (["--threads", "2"], ["--threads=2"], ["--json"], ["--topk", "3"]):
            with self.subTest(option):
                self.assert_usage_error(*option, "inspect", MODEL, names="options go after it")


class RuntimeErrors(CommandTest):
    def test_missing_model_file(self):
        for name in SUBCOMMANDS:
            with self.subTest(name):
                operands = {"classify": ["a.png"], "evaluate": ["images"],
                            "calibrate": ["images", "--output", "plan.json"],
                            "quantize": ["--plan", "plan.json", "--output", "q.onnx"],
                            "annotate": ["--preset", "timm", "--output", "a.onnx"],
                            "diff": ["images", "--plan", "plan.json"],
                            "tune": ["images", "--max-drop", "1", "--output", "plan.json"],
                            "prune": ["images", "--keep-ratio", "0.5", "--output", "pruned.onnx"]}.get(name, [])
                done = self.pipit(name, "no-such-model.onnx", *operands, code=RUNTIME)
                self.assert_one_line_error(done, "no-such-model.onnx")
                self.assertEqual(done.stdout, "")

    def test_names_that_cannot_be_looked_at(self):
        """The system's reason in our words: a name that is too long, links in a circle."""
        (self.folder / "round").symlink_to("round")
        self.write("truth.csv", f"images,classes\n{'x' * 300}.jpg,cat\n")
        for name in ("round", "x" * 300):
            for arguments in (["inspect", name], ["bench", name], ["classify", name, "a.jpg"], ["classify", MODEL, name],
                              ["evaluate", MODEL, name], ["calibrate", name, ".", "--output", "p.json"],
                              ["tune", MODEL, name, "--max-drop", 1, "--output", "p.json"],
                              ["prune", MODEL, name, "--keep-ratio", 0.5, "--output", "p.onnx"],
                              ["verify", name], ["compare", name, name],
                              ["annotate", name, "--preset", "cifar", "--output", "p.onnx"],
                              ["sweep", "conv", "--sample", 1, "--results", name, "--resume"],
                              ["profile", MODEL, "--tuning-cache", name]):
                with self.subTest(arguments[0], name=name):
                    done = self.pipit(*arguments, code=(RUNTIME, USAGE))
                    self.assert_one_line_error(done, name)
                    self.assertNotIn("filesystem error", done.stderr)

    def test_model_that_is_a_folder(self):
        (self.folder / "model.onnx").mkdir()
        self.assert_one_line_error(self.pipit("inspect", "model.onnx", code=RUNTIME), "model.onnx")

    def test_model_that_is_no_onnx_file(self):
        for content in (b"", b"\0" * 100, b"# a text file\n", bytes(range(256))):
            with self.subTest(content[:8]):
                self.write("model.onnx", content)
                self.assert_one_line_error(self.pipit("inspect", "model.onnx", code=RUNTIME), "model.onnx")

    def test_stdout_that_cannot_be_written(self):
        image = self.write_bmp("image.bmp", (90, 120, 150))
        for arguments in (["--help"], ["--version"], ["inspect", "--help"], ["inspect", MODEL],
                          ["inspect", MODEL, "--json"], ["profile", MODEL, "--runs", "1", "--quiet"],
                          ["classify", MODEL, image]):
            with self.subTest(arguments), open("/dev/full", "w", encoding="utf-8") as full:
                done = self.pipit(*arguments, code=RUNTIME, stdout=full)
                self.assert_one_line_error(done, "stdout")

    def test_stderr_that_cannot_be_written(self):
        self.write("text.jpg", "not an image\n")
        for arguments, code in ((["inspect", "no-such-file"], RUNTIME), (["nonsense"], USAGE), ([], USAGE),
                                (["inspect", MODEL, "--threads", "x"], USAGE),
                                (["classify", MODEL, "text.jpg"], RUNTIME)):
            for redirection in ("2>&-", "2>/dev/full"):
                with self.subTest(arguments, redirection=redirection):
                    shell = ["sh", "-c", f'"$0" "$@" {redirection}', PIPIT, *arguments]
                    done = subprocess.run(shell, cwd=self.folder, stdout=subprocess.PIPE, timeout=300, check=False)
                    self.assertEqual(done.returncode, code)

    def test_cuda_without_a_gpu(self):
        cuda = self.pipit("--version").stdout.split("cuda  ")[1]
        if re.match(r"built with toolkit \S+; NVIDIA", cuda):
            self.skipTest("this machine has a GPU: " + cuda)
        done = self.pipit("inspect", MODEL, "--device", "cuda", code=RUNTIME)
        self.assert_one_line_error(done, "cuda")

    def test_int8_without_scales_is_refused(self):
        done = self.pipit("profile", MODEL, "--precision", "int8", code=USAGE)
        self.assertIn("--plan", done.stderr)
        self.assertEqual(done.stdout, "")


class Terminal(CommandTest):
    """The progress bar, and advice on what to type next, are for terminals only."""

    def on_a_terminal(self, *arguments, codes=(OK,)):
        """What a command writes to stderr where that is a terminal."""
        ours, theirs = os.openpty()
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            with subprocess.Popen([PIPIT, *map(str, arguments)], cwd=self.folder, stdout=subprocess.DEVNULL,
                                  stderr=theirs) as process:
                os.close(theirs)
                written = b""
                while True:
                    try:
                        written += terminal.read(4096)
                    except OSError:  # the other end is closed
                        break
            self.assertIn(process.returncode, codes, written)
        return written.decode()

    def bars(self, text, name):
        """How much of each bar that was drawn is filled."""
        return [bar.count("#") for bar in re.findall(rf"{name} \[([#.]*)\]", text)]

    def test_progress(self):
        shown = self.on_a_terminal("profile", MODEL, "--runs", "3", "--json")
        self.assertEqual(self.bars(shown, "profile")[-1], 30)
        self.assertTrue(re.search(r"\r\x1b\[K(pipit: [^\r]*\r\n)*\Z", shown), repr(shown))  # nothing of it stays

    def test_quiet(self):
        self.assertEqual(self.on_a_terminal("profile", MODEL, "--runs", "3", "--json", "--quiet"), "")

    def test_nothing_elsewhere(self):
        self.pipit("profile", MODEL, "--runs", "3")  # fails when anything is on stderr

    def test_one_bar_for_several_stages_that_never_goes_back(self):
        for i in range(24):
            self.write_bmp(f"images/{('frog', 'ship', 'cat')[i % 3]}/{i}.bmp", (i * 37 % 256, i * 91 % 256, 9 * i))
        for name, arguments, stages in (
                ("tune", ("tune", MODEL, "images", "--judge-by", "model", "--max-drop", 100, "--output", "mixed.json"),
                 ("calibrating", "judging layers", "mixing precisions", "checking")),
                ("diff", ("diff", MODEL, "images", "--plan", "mixed.json"), ("comparing", "layer by layer")),
                ("prune", ("prune", MODEL, "images", "--judge-by", "model", "--keep-ratio", 0.5, "--output", "p.onnx"),
                 ("the dense model", "ordering groups", "fitting weights", "checking")),
                ("prune", ("prune", MODEL, "images", "--judge-by", "model", "--target-speedup", 1.1, "--search-seconds", 0.1, "--output", "p.onnx"),
                 ("ordering groups", "timing candidates", "measuring selections", "fitting weights", "checking")),
                ("profile", ("profile", MODEL, "--threads", "1,2", "--runs", 3), ("1 thread", "2 threads")),
                ("ceilings", ("ceilings", "--threads", 1), ("measuring",))):
            with self.subTest(name), unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder)):
                # Beside other tests a speed-up may be missed; where nothing is faster there is no file to check.
                written = self.folder / "p.onnx"
                written.unlink(missing_ok=True)
                codes = (OK, CHECK_FAILED) if "--target-speedup" in arguments else (OK,)
                shown = self.on_a_terminal(*arguments, codes=codes)
                bars = self.bars(shown, name)
                self.assertEqual(bars, sorted(bars))
                if name != "prune" or written.exists():
                    self.assertGreaterEqual(bars[-1], 29)
                else:
                    stages = [stage for stage in stages if stage in shown]
                    self.assertEqual(stages[0], "ordering groups")
                    self.assertNotIn("checking", stages)
                places = [shown.index(stage) for stage in stages]
                self.assertEqual(places, sorted(places))
                self.assertEqual(len(set(re.findall(r"\x1b\[K(\w+) \[", shown))), 1)

    def test_what_remains(self):
        large = self.write_bmp("images/frog/0.bmp", (40, 150, 90), side=800)
        left, images = [], 1
        while not left and images < 10_000:  # what remains is said after a second: as many images as that takes here
            for i in range(images, 4 * images):
                (large.parent / f"{i}.bmp").symlink_to(large)
            images *= 4
            shown = self.on_a_terminal("evaluate", MODEL, "images", "--threads", 1, "--against", "fp16")
            left = [int(n) for n in re.findall(r", about (\d+) s left", shown)]
        self.assertTrue(left, shown)
        self.assertLessEqual(left[-1], max(left[0], 2))

    def test_what_to_type_next(self):
        for i in range(4):
            self.write_bmp(f"my images/frog/{i}.bmp", (i * 37 % 256, i * 91 % 256, 9 * i))
        calibrate = ("calibrate", MODEL, "my images", "--output", "plan.json")
        shown = self.on_a_terminal(*calibrate)
        said = re.search(r"pipit: next: pipit (diff .*?)   what", shown)[1]
        self.assertEqual(said, f"diff {MODEL} 'my images' --plan plan.json")
        self.assertIn("next: pipit tune", self.on_a_terminal(*shlex.split(said)))
        self.assertNotIn("next:", self.on_a_terminal(*calibrate, "--quiet"))
        self.assertNotIn("next:", self.pipit_with_notes(*calibrate).stderr)
        self.assertIn(f"next: pipit profile {MODEL} ", self.on_a_terminal("inspect", MODEL))


if __name__ == "__main__":
    main()
