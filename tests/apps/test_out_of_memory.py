"""Address space that ends anywhere is exit code 1 with a line on stderr: no abort, segmentation fault or silence.

Every command runs under a row of limits, from what loads its libraries to what lets it finish.
"""

import os
import resource
import signal
import subprocess
import unittest

from command import MODEL, OK, OTHER_SUBCOMMANDS, PIPIT, RUNTIME, SUBCOMMANDS, CommandTest, main

KIB = 1024
LOADER = 127  # the dynamic loader's exit code


@unittest.skipIf(os.environ.get("PIPIT_SANITIZE"), "sanitizers need address space of their own")
class LimitsTest(CommandTest):

    def limited(self, arguments, kib):
        """Runs pipit in so much address space: the exit code, and stderr."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (kib * KIB, kib * KIB))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        done = subprocess.run([PIPIT, *map(str, arguments)], cwd=self.folder, stdin=subprocess.DEVNULL, preexec_fn=limit,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=300, check=False)
        return done.returncode, done.stderr

    def first_of_ours(self):
        """The least limit, to 64 KiB, under which the system and the loader get as far as the command's own code.

        Not bisected: constructors of libraries once failed under limits above some under which the command was told of.
        """
        first = None
        for kib in range(4 << 10, 1 << 20, 64):
            code, _ = self.limited(["--version"], kib)
            if code == LOADER:
                first = None
            elif first is None and code != -signal.SIGSEGV:  # what the system does where an exec finds no room
                first = kib
            if code == OK:
                return first
        return self.fail("--version needs more than 1 GiB")

    def runs(self):
        """Every command, with a model where it takes one."""
        self.write_images()
        self.pipit("calibrate", MODEL, "images", "--quiet", "--output", "plan.json")
        self.pipit("profile", MODEL, "--runs", "10", "--output", "profile.json", silent=False)
        one = ("--threads", "1")
        yield "inspect", MODEL, "--why", *one
        yield "classify", MODEL, "images/cat/0.bmp", *one
        yield "classify", MODEL, "images/cat/0.bmp", "--precision", "int8", "--plan", "plan.json", "--threads", "3"
        yield "evaluate", MODEL, "images", *one
        yield "calibrate", MODEL, "images", "--output", "other.json", *one
        yield "quantize", MODEL, "--plan", "plan.json", "--output", "int8.onnx"
        yield "annotate", "int8.onnx", "--preset", "cifar", "--output", "annotated.onnx"
        yield "diff", MODEL, "images", "--plan", "plan.json", "--limit", "2", *one
        yield "tune", MODEL, "images", "--calibrate-limit", "4", "--max-drop", "100", "--output", "kept.json", *one
        yield "profile", MODEL, "--runs", "2", "--output", "page.html", *one
        yield "bench", MODEL, "--runs", "2", *one
        yield "compare", "profile.json", "profile.json"
        yield "prune", MODEL, "images", "--keep-ratio", "0.5", "--output", "pruned.onnx", *one
        yield ("sweep", "conv", "--n", "1", "--in", "3", "--out", "8", "--size", "9", "--kernel", "3", "--stride", "1",
               "--seconds", "0", *one)
        yield "sweep", "sparsity", "--layer", "1x16x8x8:16x3x3", "--keep-ratio", "0.5", "--mode", "k", "--seconds", "0", *one
        yield "models", "--json"
        yield "doctor", "--json"
        yield "help", "--format", "man"
        yield ("--version",)
        for name in (*SUBCOMMANDS, *OTHER_SUBCOMMANDS):
            yield name, "--help"

    def write_images(self):
        for i, label in enumerate(("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")):
            self.write_bmp(f"images/{label}/0.bmp", (25 * i, 200 - 20 * i, 90))
            self.write_bmp(f"images/{label}/1.bmp", (200 - 20 * i, 25 * i, 40))

    def test_every_limit_ends_with_a_line(self):
        first = self.first_of_ours()
        tried = failed = 0
        for arguments in self.runs():
            step = 64 if "--help" not in arguments else 256  # these end early: most of what they need is the libraries
            if "--version" in arguments:
                step = 16
            kib = first
            while True:
                code, text = self.limited(arguments, kib)
                tried += 1
                with self.subTest(arguments=" ".join(map(str, arguments)), kib=kib):
                    self.assertIn(code, (OK, RUNTIME), text)
                    if code == RUNTIME:
                        self.assertRegex(text, r"(?m)^pipit: [^\n]+\n")
                if code == OK or kib > 1 << 20:
                    self.assertEqual(code, OK, f"{arguments}: {text}")
                    break
                failed += 1
                kib += step
                if "--version" not in arguments:
                    step += step // 4  # near the first limit most kinds of memory end, later one like the other
        self.assertGreater(failed, 100, "no limit was in anybody's way")
        print(f"{tried} limits")


if __name__ == "__main__":
    main()
