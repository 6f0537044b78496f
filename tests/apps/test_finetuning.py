"""models/training/finetune_pruned.py and finetune_quantized.py: what they read computes what pipit computes, and what
they write runs in pipit, with the zeros and the integers that it had.
"""

import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

import test_targets
from command import MODEL, CommandTest, drawn_seed, main

# test_targets takes this folder off the path: its modules have names that packages use, too.
ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAINING = ROOT / "models" / "training"
sys.path.insert(0, str(TRAINING))
try:
    import numpy
    import onnx
    import onnxruntime
    import torch
    from onnx import helper, numpy_helper
    from PIL import Image

    from finetuning import LARGEST_GRADIENT
    from images import CLASSES, load_archive, normalize
    from quantized_network import LARGEST_CHANGE, QuantizedNetwork, Round, Scaled

    MISSING = ""
except ImportError as error:
    MISSING = f"fine-tuning needs PyTorch, ONNX, ONNX Runtime, NumPy and Pillow: {error}"


@unittest.skipIf(MISSING, MISSING)
class Rounding(unittest.TestCase):
    """The gradients of fake quantization: y = s * round(clip(x / s))."""

    def setUp(self):
        self.x = torch.tensor([0.26, -0.9, 12.72, 12.8, -40.0], requires_grad=True)
        self.scale = torch.tensor(0.1, requires_grad=True)
        self.integers = Round.apply(self.x / self.scale, -127, 127)

    def test_integers(self):
        self.assertEqual(self.integers.tolist(), [3, -9, 127, 127, -127])
        halves = torch.tensor([0.5, 1.5, 2.5, -0.5])
        self.assertEqual(Round.apply(halves, -127, 127).tolist(), [0, 2, 2, 0])

    def test_gradients_of_values_pass_unless_they_are_clipped(self):
        (self.integers * self.scale).sum().backward()
        torch.testing.assert_close(self.x.grad, torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]))

    def test_gradients_of_steps_are_those_of_lsq(self):
        """The rounding error in steps, or the last integer (Esser et al. 2020, equation 3)."""
        (self.integers * self.scale).sum().backward()
        torch.testing.assert_close(self.scale.grad, torch.tensor(0.4 + 0.0 - 0.2 + 127 - 127), rtol=0, atol=1e-4)

    def test_sums_are_rounded_once(self):
        sums, scale = torch.tensor([26634.0]), torch.tensor(0.001)
        value = Scaled(((sums, scale), (torch.tensor([3.0]), torch.tensor(0.1))), positive=True)
        self.assertEqual(value.rounded(torch.tensor(0.5), "s", -127, 127).tolist(), [54])
        self.assertAlmostEqual(value.real().item(), 26.934, places=4)

    def test_scales_are_divided_first(self):
        """In f32 1800 * (0.0038 / 0.24) is rounded to 28, and 1800 * 0.0038 / 0.24 to 29."""
        sums, scale, step = torch.tensor([1800.0, 26400.0]), torch.tensor([0.0038, 0.0023]), torch.tensor([0.24, 0.48])
        self.assertEqual((sums * scale / step).round().tolist(), [29, 127])
        self.assertEqual(Scaled(((sums, scale),)).rounded(step, "s", -127, 127).tolist(), [28, 126])


@unittest.skipIf(MISSING, MISSING)
class LearnedScales(unittest.TestCase):
    """Scales of any size are trained: pruning leaves channels whose weights are almost zero."""

    SCALES = (0.02, 0.01, 3e-8)
    RATE = 0.2

    def setUp(self):
        numbers = numpy.random.default_rng(drawn_seed())
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name) / "linear.onnx"
        onnx.save(self.linear(numbers), path)
        self.network = QuantizedNetwork(path, learn_scales=True)
        self.inputs = torch.from_numpy(numbers.normal(size=(64, 8)).astype(numpy.float32))
        self.targets = torch.from_numpy(numbers.normal(size=(64, len(self.SCALES))).astype(numpy.float32))
        self.before = self.scales()

    def linear(self, numbers):
        """One layer in INT8 with a scale for each output."""
        scales = numpy.array(self.SCALES, numpy.float32)
        tensors = {
            "step": numpy.float32(0.02), "zero": numpy.int8(0), "scales": scales, "zeros": numpy.zeros(3, numpy.int8),
            "weights": numbers.integers(-127, 128, (3, 8), numpy.int8),
            "bias": (numbers.normal(size=3) / (0.02 * scales)).astype(numpy.int32),
            "units": numpy.float32(0.02) * scales,
        }  # fmt: skip
        nodes = [
            helper.make_node("QuantizeLinear", ["x", "step", "zero"], ["integers"]),
            helper.make_node("DequantizeLinear", ["integers", "step", "zero"], ["a"]),
            helper.make_node("DequantizeLinear", ["weights", "scales", "zeros"], ["b"], axis=0),
            helper.make_node("DequantizeLinear", ["bias", "units"], ["c"], axis=0),
            helper.make_node("Gemm", ["a", "b", "c"], ["y"], transB=1),
        ]
        values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, extent])
                  for name, extent in (("x", 8), ("y", 3))]  # fmt: skip
        initializers = [numpy_helper.from_array(numpy.asarray(tensor), name) for name, tensor in tensors.items()]
        return helper.make_model(helper.make_graph(nodes, "linear", values[:1], values[1:], initializers))

    def scales(self):
        return torch.cat([self.network.tensor(name).detach().flatten() for name in ("step", "scales")]).clone()

    def train(self, steps):
        optimizer = torch.optim.SGD(self.network.parameters(), self.RATE, momentum=0.9, nesterov=True)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = (self.network(self.inputs) - self.targets).square().mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
            optimizer.step()
            self.network.hold()
            losses.append(loss.item())
        return losses

    def test_they_begin_as_in_the_file(self):
        self.assertEqual(self.before.tolist(), torch.tensor([0.02, *self.SCALES]).tolist())

    def test_a_step_changes_each_by_a_fraction_of_itself(self):
        self.train(1)
        change = (self.scales() / self.before).log().abs()
        self.assertGreater(change.max(), 0)
        # Nesterov's first step is 1.9 times the gradient.
        self.assertLessEqual(change.max(), 1.9 * self.RATE * LARGEST_GRADIENT)

    def test_the_loss_falls(self):
        losses = self.train(60)
        self.assertTrue(numpy.isfinite(losses).all(), losses)
        self.assertLess(losses[-1], losses[0])
        ratio = self.scales() / self.before
        self.assertTrue(((ratio > 0.99 / LARGEST_CHANGE) & (ratio < 1.01 * LARGEST_CHANGE)).all(), ratio)

    def test_they_are_written(self):
        self.train(3)
        self.assertEqual(self.network.arrays()["scales"].tolist(), self.scales()[1:].tolist())


class TrainingTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.seed = drawn_seed()

    def expect(self, model, inputs, answers, atol=0.0):
        """That pipit computes these answers: with no tolerance, every integer on the way is the same."""
        folder = self.folder / f"verify-{model}"
        folder.mkdir()
        (folder / "model.onnx").write_bytes((self.folder / model).read_bytes())
        graph = onnx.load(folder / "model.onnx").graph
        for i in range(len(inputs)):
            data = folder / f"test_data_set_{i}"
            data.mkdir()
            for kind, values, of in (("input", inputs, graph.input), ("output", answers, graph.output)):
                tensor = numpy_helper.from_array(numpy.asarray(values[i : i + 1], numpy.float32), of[0].name)
                (data / f"{kind}_0.pb").write_bytes(tensor.SerializeToString())
        self.pipit("verify", folder, "--rtol", 0, "--atol", atol, "--quiet")

    def answers_of(self, network, inputs):
        """One by one: Flatten may be written as a Reshape for one image."""
        with torch.no_grad():
            return torch.cat([network(one) for one in torch.as_tensor(inputs).split(1)]).numpy()

    def integers(self, model):
        """The weights in 8 bits of a file."""
        tensors = {t.name: numpy_helper.to_array(t) for t in onnx.load(self.folder / model).graph.initializer}
        return {name: values for name, values in tensors.items() if values.dtype == numpy.int8 and values.ndim > 1}


@unittest.skipIf(MISSING, MISSING)
class ReadNetworks(TrainingTest):
    CASES = ((test_targets.residual, "pipit"), (test_targets.concat, "pipit"), (test_targets.depthwise, "pipit"),
             (test_targets.gemm, "pipit"), (test_targets.grouped, "pipit"), (test_targets.padded, "pipit"),
             *((test_targets.residual, target) for target in test_targets.TARGETS))

    def quantize(self, build, target):
        """Writes the network of `build` in 8 bits; returns the file's name and four inputs, some of whose values are
        clipped."""
        numbers = numpy.random.default_rng(self.seed)
        net = test_targets.Network(test_targets.random.Random(f"{self.seed} {build.__name__}"))
        build(net)
        name = build.__name__
        self.write(f"{name}.onnx", net.model())
        inputs = numbers.normal(size=(16, *test_targets.IMAGE)).astype(numpy.float32)
        for i, values in enumerate(inputs):
            self.write(f"{name}/{i}.npy", test_targets.WRITER.npy(test_targets.IMAGE, values.ravel().tolist()))
        self.pipit("calibrate", f"{name}.onnx", name, "--method", "minmax", "--output", "plan.json", "--quiet")
        self.pipit("quantize", f"{name}.onnx", "--plan", "plan.json", "--target", target, "--output",
                   f"{name}-{target}.onnx", "--quiet")
        return f"{name}-{target}.onnx", 1.5 * inputs[:4]

    def test_pytorch_computes_the_integers_of_pipit(self):
        """As the file is, and with weights, biases and scales moved as training moves them."""
        for build, target in self.CASES:
            with self.subTest(build.__name__, target=target, seed=self.seed):
                model, inputs = self.quantize(build, target)
                network = QuantizedNetwork(self.folder / model, learn_scales=True)
                before = self.answers_of(network, inputs)
                self.expect(model, inputs, before)
                generator = torch.Generator().manual_seed(self.seed)
                with torch.no_grad():
                    for name, parameter in network.named_parameters():
                        factor = 0.9 + 0.2 * torch.rand(parameter.shape, generator=generator)
                        if name in network.changes.values():
                            parameter.add_(factor.log())
                        else:
                            parameter.mul_(factor)
                network.save(self.folder / f"moved-{model}")
                answers = self.answers_of(network, inputs)
                self.assertGreater(abs(answers - before).max(), 0)
                self.expect(f"moved-{model}", inputs, answers)
                self.assertEqual(self.json("inspect", f"moved-{model}")["int8"], self.json("inspect", model)["int8"])


@unittest.skipIf(MISSING, MISSING)
class Scripts(TrainingTest):
    DENSE = ROOT / "models" / "resnet20-cifar10.onnx"

    def setUp(self):
        super().setUp()
        numbers = numpy.random.default_rng(self.seed)
        with tarfile.open(self.folder / "images.tar.gz", "w:gz") as archive:
            for i in range(40):
                self.add_image(archive, f"{CLASSES[i % 10]}/{i}.jpg", numbers)

    def prune(self):
        self.pipit("prune", MODEL, "images", "--keep-ratio", 0.6, "--no-refit", "--output", "pruned.onnx", "--quiet")

    def add_image(self, archive, name, numbers):
        """Colours that vary slowly, in the archive and in the folder `images`."""
        coarse = Image.fromarray(numbers.integers(0, 256, (4, 4, 3), numpy.uint8))
        data = io.BytesIO()
        coarse.resize((32, 32), Image.Resampling.BICUBIC).save(data, "jpeg")
        entry = tarfile.TarInfo(name)
        entry.size = len(data.getvalue())
        archive.addfile(entry, io.BytesIO(data.getvalue()))
        self.write(f"images/{name}", data.getvalue())

    def run_script(self, name, *arguments, code=0):
        command = [sys.executable, "-B", TRAINING / name, "--dense", self.DENSE, "--train", "images.tar.gz",
                   "--batch", "20", "--epochs", "1", "--device", "cpu", *arguments]
        done = subprocess.run([*map(str, command)], cwd=self.folder, capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def test_pruned(self):
        self.prune()
        self.run_script("finetune_pruned.py", "pruned.onnx", "--test", "images.tar.gz", "--out", "tuned.onnx")
        for before, after in zip(*(onnx.load(self.folder / name).graph.initializer
                                   for name in ("pruned.onnx", "tuned.onnx")), strict=True):
            before, after = numpy_helper.to_array(before), numpy_helper.to_array(after)
            if before.ndim > 1:
                self.assertTrue((after[before == 0] == 0).all())
                self.assertTrue((after != before).any())
        self.pipit("classify", "tuned.onnx", "images/cat/3.jpg")

    def test_quantized(self):
        self.prune()
        self.pipit("calibrate", "pruned.onnx", "images", "--method", "minmax", "--keep",
                   "/pool/GlobalAveragePool=int8", "--output", "plan.json", "--quiet")
        self.pipit("quantize", "pruned.onnx", "--plan", "plan.json", "--output", "q.onnx")
        for scales in ("fixed", "learned"):
            with self.subTest(scales, seed=self.seed):
                tuned = f"{scales}.onnx"
                done = self.run_script("finetune_quantized.py", "q.onnx", "--test", "images.tar.gz", "--out", tuned,
                                       "--scales", scales, "--lr", "0.01")
                self.assertRegex(done.stdout, r"fine-tuned: top-1 ")
                before, after = self.integers("q.onnx"), self.integers(tuned)
                self.assertEqual(before.keys(), after.keys())
                for name in before:
                    self.assertTrue((after[name][before[name] == 0] == 0).all(), name)
                self.assertTrue(any((after[name] != before[name]).any() for name in before))
                self.check_answers(tuned)
                self.assertEqual(self.json("inspect", tuned)["int8"], self.json("inspect", "q.onnx")["int8"])

    def check_answers(self, model):
        """Of PyTorch and pipit the same; of ONNX Runtime within a step of the output, for inputs that clip nothing."""
        images = load_archive(self.folder / "images.tar.gz", torch.device("cpu"))
        inputs = 0.9 * normalize(images.pixels[:4]).numpy()
        answers = self.answers_of(QuantizedNetwork(self.folder / model), inputs)
        self.expect(model, inputs, answers)
        options = onnxruntime.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", "1")
        session = onnxruntime.InferenceSession(str(self.folder / model), options, providers=["CPUExecutionProvider"])
        plan = json.loads((self.folder / "plan.json").read_text())
        (step,) = (tensor["scale"] for tensor in plan["tensors"] if tensor["name"] == "logits")
        self.assertLessEqual(abs(session.run(None, {"input": inputs})[0] - answers).max(), 1.001 * step)

    def test_settings_are_tried_without_a_file(self):
        done = self.run_script("finetune_pruned.py", self.DENSE, "--holdout", "10")
        self.assertRegex(done.stdout, r"fine-tuned, held-out: top-1 ")

    def test_what_is_refused(self):
        done = self.run_script("finetune_quantized.py", self.DENSE, "--holdout", "10", code=1)
        self.assertIn("resnet20-cifar10.onnx: it holds no weights in 8 bits; pipit quantize writes", done.stderr)
        done = self.run_script("finetune_pruned.py", self.DENSE, "--holdout", "30", code=1)
        self.assertIn("10 training images are no batch of 20; try a lower --batch", done.stderr)


if __name__ == "__main__":
    main()
