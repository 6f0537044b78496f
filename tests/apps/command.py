"""What the tests of the pipit command share: running it, making images, and the documented exit codes."""

import datetime
import fcntl
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import termios
import unittest
import unittest.mock

from onnx_model import field

OK, RUNTIME, USAGE, UNSUPPORTED, CHECK_FAILED = range(5)
PIPIT = os.environ["PIPIT"]
# What is measured until it is known is measured as short as it can be: tests are of what is made of times.
os.environ.setdefault("PIPIT_SHORT_MEASUREMENTS", "1")
for variable in ("PIPIT_CACHE_DIR", "PIPIT_NUM_THREADS"):
    os.environ.pop(variable, None)
MODEL = "resnet20-cifar10"
# With the first operand of each.
SUBCOMMANDS = {"classify": "MODEL", "evaluate": "MODEL", "inspect": "MODEL", "verify": "DIR", "profile": "MODEL",
               "bench": "MODEL", "calibrate": "MODEL", "quantize": "MODEL", "annotate": "MODEL", "diff": "MODEL",
               "tune": "MODEL", "prune": "MODEL"}
# Those that take no model.
OTHER_SUBCOMMANDS = ("compare", "models", "fetch", "doctor", "ceilings", "help")
# Those with subcommands of their own.
NESTED_SUBCOMMANDS = ("sweep",)
# What classify and evaluate had to assume, said on stderr of a run that succeeds (test_annotate.py), and what profile
# says on a busy machine and of ceilings that were not kept, or measured on a busier one; a sweep that took long where
# its time went.
ASSUMPTIONS = re.compile(r"\A(pipit: (?:[\d.]+ s for inputs and references|note: (?:preprocessing guessed|the model holds no labels|labels are from|no output needs the input|the image is grey|all images "
                         r"are grey|resnet\d+ has random weights|the model is quantized already|the model gives one score|scores are independent|a softmax is applied|over [\d.]+ % of the values of|no model is named|\d+ of the \d+ images calibrated|[^\n]*: the times vary by|[^\n]* may run (?:up to )?[\d.]+ times as fast|"
                         r"no ceilings of [^\n]* are kept|\d+ layers? ran in less than))"
                         r"[^\n]*\n)*\Z")


def take_interrupts():
    """preexec_fn of what is to be interrupted: in what a script started in the background, SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def drawn_seed():
    """PIPIT_TEST_SEED: a number, or "random" for a fresh one, which is printed; 1 where it is not set."""
    given = os.environ.get("PIPIT_TEST_SEED", "1")
    seed = random.randrange(2**32) if given == "random" else int(given)
    if seed != 1:
        print(f"PIPIT_TEST_SEED={seed}")
    return seed


class CommandTest(unittest.TestCase):
    """Runs the command in a temporary folder, self.folder, that goes when the test ends."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def pipit_with_notes(self, *arguments):
        """pipit() that succeeds, whatever it says on stderr."""
        return self.pipit(*arguments, silent=False)

    def pipit(self, *arguments, code=OK, stdout=subprocess.PIPE, silent=True):
        """Runs pipit, checks the exit code (one, or a tuple of several) and that success is silent on stderr but for
        ASSUMPTIONS."""
        command = [PIPIT, *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=stdout,
                              stderr=subprocess.PIPE, text=True, timeout=1200, check=False)
        codes = code if isinstance(code, tuple) else (code,)
        self.assertIn(done.returncode, codes, f"{command}\n{done.stdout}\n{done.stderr}")
        if done.returncode == OK and silent:
            self.assertRegex(done.stderr, ASSUMPTIONS, command)
        return done

    def on_a_terminal(self, columns, *arguments, notes=False, code=OK):
        """What pipit writes to a terminal of `columns` columns, with `notes` those on stderr as well. `code` is as in
        pipit()."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with os.fdopen(ours, "rb", buffering=0) as terminal:
            process = subprocess.Popen([PIPIT, *map(str, arguments)], cwd=self.folder, stdout=theirs,
                                       stderr=theirs if notes else subprocess.DEVNULL)
            os.close(theirs)
            written = b""
            try:
                while block := terminal.read(4096):
                    written += block
            except OSError:  # the other end is closed
                pass
            self.assertIn(process.wait(timeout=1200), code if isinstance(code, tuple) else (code,), written)
        # Without the progress that was taken away again.
        return re.sub(r"\r\x1b\[K[^\r\n]*(?=\r)|\r\x1b\[K", "", written.decode().replace("\r\n", "\n"))

    def json(self, *arguments, code=OK, silent=True):
        return json.loads(self.pipit(*arguments, "--json", code=code, silent=silent).stdout)

    def has_gpu(self):
        """Whether pipit finds a GPU that it can use; --version lists its libraries only then."""
        return "\ncublaslt " in self.pipit("--version").stdout

    @staticmethod
    def as_fetched(data):
        """An ONNX file as one that a pipit fetched which kept no hash of it."""
        return data + field(14, field(1, "pipit.description") + field(2, "EfficientNet-Lite0, ImageNet. A stand-in."))

    def keep_default_model(self, data):
        """Lets this test's pipit find `data`, an ONNX file, as the network that classify takes where none is named."""
        data = self.as_fetched(data)
        patch = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        patch.start()
        self.addCleanup(patch.stop)
        return self.write("cache/pipit/efficientnet-lite0.onnx", data)

    def keep_ceilings(self, gflops, gb_per_s, threads=0):
        """Lets this test's pipit find ceilings: so much fp32, whatever the instruction set, and one memory."""
        folder = self.folder / "cache"
        (folder / "pipit" / "ceilings.json").unlink(missing_ok=True)
        patch = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(folder))
        patch.start()
        self.addCleanup(patch.stop)
        missing = self.pipit("ceilings", "--kept", "--threads", threads, code=RUNTIME).stderr
        machine = re.search(r"no ceilings of (.*) are kept", missing)[1]

        def rate(value):
            return {"best": value, "median": value, "p10": value, "rounds": 9}

        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        memory = {"name": "memory", "bytes": None}
        memory.update({f"{loop}_gb_per_s": rate(gb_per_s) for loop in ("read", "write", "copy", "add")})
        ceilings = {"device": "cpu", "machine": machine, "threads": threads or 1, "measured_at": now, "seconds": 1.0,
                    "arithmetic": [{"products": "fp32", "unit": "any", "gflops": rate(gflops), "tile_gflops": rate(gflops)}],
                    "memory": [memory]}
        self.write("cache/pipit/ceilings.json", json.dumps({"form": "pipit ceilings 1", "machines": {machine: ceilings}}))
        return ceilings

    def assert_one_line_error(self, done, *words):
        """stderr is one line that starts with the program's name and has all the words."""
        self.assertRegex(done.stderr, r"\Apipit: [^:\n][^\n]*\n\Z")
        for word in words:
            self.assertIn(str(word), done.stderr)

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def extract_cifar(self, archive, per_class):
        """The first images of every class in the archive, below self.folder/cifar; returns their number."""
        taken = {}
        with tarfile.open(archive) as images:
            for member in sorted(images.getmembers(), key=lambda m: m.name):
                if not member.isfile():
                    continue
                path = pathlib.PurePosixPath(member.name)
                names = taken.setdefault(path.parent.name, [])
                if len(names) < per_class:
                    names.append(path.name)
                    self.write(f"cifar/{path.parent.name}/{path.name}", images.extractfile(member).read())
        self.assertEqual(len(taken), 10)
        return sum(map(len, taken.values()))

    def write_bmp(self, name, colour, side=32, height=None):
        """A 24-bit BMP, square unless given a height, with a gradient around one (red, green, blue) colour."""
        def pixel(x, y):
            return bytes(max(0, min(255, c + 2 * (x - y))) for c in reversed(colour))

        padding = bytes(-3 * side % 4)
        height = height or side
        rows = b"".join(b"".join(pixel(x, y) for x in range(side)) + padding for y in range(height))
        info = struct.pack("<IiiHHIIiiII", 40, side, height, 1, 24, 0, len(rows), 2835, 2835, 0, 0)
        header = struct.pack("<2sIHHI", b"BM", 54 + len(rows), 0, 0, 54)
        return self.write(name, header + info + rows)


def main():
    """unittest.main(), which tells CTest when every test was skipped (exit code 77), and why any was."""
    result = unittest.main(exit=False).result
    for reason in sorted({reason for _, reason in result.skipped}):
        print("SKIP:", reason)
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.skipped and len(result.skipped) >= result.testsRun else 0)
