"""PyTorch: modules as models, tensors in and out. Skipped without torch."""

from __future__ import annotations

import importlib.util
import pickle
import sys
import unittest
from typing import Any

import numpy as np

import pipit
from support import MODEL, PackageTest, onnx_model, random

if importlib.util.find_spec("torch") is None:
    print("SKIP: torch is not installed")
    sys.exit(77)

import torch


class Net(torch.nn.Module):
    """Has what evaluation changes, a buffer, and one output or two."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(8)
        self.drop = torch.nn.Dropout(0.5)
        self.linear = torch.nn.Linear(8, 5)
        self.register_buffer("shift", torch.zeros(5))

    def forward(self, image: torch.Tensor, scale: torch.Tensor | None = None) -> Any:
        mean = torch.relu(self.norm(self.conv(image))).mean((2, 3))
        scores = self.linear(self.drop(mean)) + self.shift
        return scores if scale is None else (scores * scale, scores.argmax(1))


class Modules(PackageTest):
    def setUp(self) -> None:
        super().setUp()
        self.net = Net()
        self.images = torch.from_numpy(random(2, 3, 16, 16))
        self.net(self.images)  # so that the statistics of the norm are of something
        self.net.eval()
        with torch.no_grad():
            self.scores = self.net(self.images).numpy()

    def test_a_module_is_a_model(self) -> None:
        model = pipit.load(self.net, example=self.images, threads=1)
        [given], [found] = model.inputs, model.outputs
        self.assertEqual((model.name, given.name, given.shape), ("Net", "image", (2, 3, 16, 16)))
        self.assertEqual((found.name, found.shape), ("output", (2, 5)))
        np.testing.assert_allclose(model(self.images), self.scores, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model))(self.images), model(self.images))

    def test_computes_as_in_evaluation_and_leaves_the_mode(self) -> None:
        self.net.train()
        self.net.norm.eval()
        before = {name: value.clone() for name, value in self.net.state_dict().items()}
        model = pipit.load(self.net, example=self.images)
        np.testing.assert_allclose(model(self.images), self.scores, rtol=1e-4, atol=1e-5)
        self.assertEqual([self.net.training, self.net.norm.training, self.net.drop.training], [True, False, True])
        for name, value in self.net.state_dict().items():
            self.assertTrue(torch.equal(value, before[name]), name)

    def test_buffers_are_as_they_are_now(self) -> None:
        model = pipit.load(self.net, example=self.images)
        self.net.shift += 3
        np.testing.assert_allclose(model(self.images), self.scores, rtol=1e-4, atol=1e-5)
        changed = pipit.load(self.net, example=self.images)
        np.testing.assert_allclose(changed(self.images), self.scores + 3, rtol=1e-4, atol=1e-4)

    def test_several_arguments(self) -> None:
        scale = torch.tensor(2.0)
        for example in ((self.images, scale), {"image": self.images, "scale": scale}, [self.images.numpy(), 2.0]):
            model = pipit.load(self.net, example=example)
            self.assertEqual([info.name for info in model.inputs], ["image", "scale"])
            scores, best = model(image=self.images, scale=scale)
            np.testing.assert_allclose(scores, 2 * self.scores, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(best, self.scores.argmax(1))

    def test_batch(self) -> None:
        model = pipit.load(self.net, example=(self.images, torch.tensor(1.0)), batch=3)
        self.assertEqual([info.shape for info in model.inputs], [(3, 3, 16, 16), ()])
        images = torch.cat([self.images, self.images[:1]])
        found = model(images, torch.tensor(1.0))[0]
        np.testing.assert_allclose(found, self.scores[[0, 1, 0]], rtol=1e-4, atol=1e-5)

    def test_refuses_what_cannot_be(self) -> None:
        with self.assertRaisesRegex(pipit.ArgumentError, "no example for the module Net"):
            pipit.load(self.net)
        with self.assertRaisesRegex(pipit.ArgumentError, "example has a str, which is no tensor"):
            pipit.load(self.net, example="image")
        with self.assertRaisesRegex(pipit.ArgumentError, "batch=0: expected 1 or more"):
            pipit.load(self.net, example=self.images, batch=0)
        with self.assertRaisesRegex(pipit.ArgumentError, "example is for a torch.nn.Module; the model is of type str"):
            pipit.load(MODEL, example=self.images)


class Tensors(PackageTest):
    def test_tensors_in_and_out_without_copies(self) -> None:
        session = pipit.load(MODEL, threads=1).session()
        pixels = torch.from_numpy(random(1, 3, 32, 32))
        out = torch.empty(1, 10)
        self.assertIs(session.run(pixels, out=out)[0], out)
        [logits] = session.run(pixels.requires_grad_())
        np.testing.assert_array_equal(out.numpy(), logits)
        shared = torch.from_dlpack(logits)
        logits[0, 0] = 7
        self.assertEqual(shared[0, 0], 7)

    def test_refuses_tensors_that_do_not_fit(self) -> None:
        model = pipit.load(onnx_model.model((2, 3), [onnx_model.node("Flatten", ["x"], "y")]))
        good = torch.zeros(2, 3)
        for given, message in (
            (good.double(), "input 'x': its type is float64; expected float32"),
            (good[None], r"input 'x': its shape is \(1, 2, 3\); expected \(2, 3\)"),
        ):
            with self.assertRaisesRegex(pipit.ArgumentError, message):
                model(given)
        with self.assertRaisesRegex(pipit.ArgumentError, "output 'y': expected a writable array in row-major order"):
            model.session().run(good, out=torch.zeros(3, 2).T)
        with self.assertRaisesRegex(pipit.ArgumentError, "stream=3: the model runs on the CPU"):
            model(good, stream=3)


if __name__ == "__main__":
    unittest.main()
