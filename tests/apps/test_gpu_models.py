"""Published models on a GPU against the CPU, on the photographs of test_real_models.py."""

import json
import os
import pathlib
import subprocess
import unittest

from command import PIPIT, CommandTest, main

DATA = pathlib.Path(os.environ.get("PIPIT_TEST_DATA", ""))


def gpu_problem():
    """Why there is no GPU to test; empty where there is one. pipit names its libraries only where there is."""
    version = subprocess.run([PIPIT, "--version"], capture_output=True, text=True, check=True).stdout
    if "\ncublaslt" in version:
        return ""
    return version.partition("\ncuda")[2].strip() or "this pipit has no CUDA"


PROBLEM = gpu_problem()


@unittest.skipIf(PROBLEM, PROBLEM)
@unittest.skipUnless("PIPIT_TEST_DATA" in os.environ, "PIPIT_TEST_DATA does not name a folder of models and images")
class GpuModels(CommandTest):
    def assert_devices_agree(self, *arguments):
        """The CPU and the GPU in fp32 and fp16 are right on the same number of images, give or take one."""
        cpu = self.json("evaluate", *arguments)
        for precision in ("fp32", "fp16"):
            gpu = self.json("evaluate", *arguments, "--device", "cuda", "--precision", precision)
            self.assertEqual(gpu["images"], cpu["images"])
            self.assertGreater(gpu["images"], 50)
            self.assertGreater(cpu["top1_correct"], gpu["images"] // 2, "wrong on both devices agrees too easily")
            self.assertAlmostEqual(gpu["top1_correct"], cpu["top1_correct"], delta=1, msg=precision)

    def test_squeezenet(self):
        self.assert_devices_agree(DATA / "models/squeezenet1_1.onnx", DATA / "imagenet-samples", "--resize", 256,
                                  "--crop", 227, "--batch", 8, "--limit", 200)

    def test_resnet20(self):
        self.extract_cifar(DATA / "cifar10-test.tar.gz", 40)
        self.assert_devices_agree("resnet20-cifar10", self.folder / "cifar", "--batch", 25)

    def assert_same_int8(self, model, images, *arguments, limit):
        """INT8 on the GPU: exactly the CPU's answers, probabilities included. Not where layers stay in floating
        point, whose sums the devices round in another order."""
        plan = self.folder / "plan.json"
        self.pipit("calibrate", model, images, *arguments, "--limit", 20, "--quiet", "--output", plan)
        plan.write_text(json.dumps({**json.loads(plan.read_text()), "keep": {}}))
        results = []
        for device in ("cpu", "cuda"):
            common = [*arguments, "--precision", "int8", "--plan", plan, "--device", device]
            counts = self.json("evaluate", model, images, *common, "--batch", 8, "--limit", limit)
            image = sorted(path for path in pathlib.Path(images).rglob("*") if path.is_file())[7]
            predictions = self.json("classify", model, image, *common)
            results.append((counts["top1_correct"], counts["images"], predictions["images"][0]["top"]))
        self.assertEqual(results[0], results[1])
        self.assertGreater(results[0][0], limit // 3)

    def test_squeezenet_in_int8(self):
        self.assert_same_int8(DATA / "models/squeezenet1_1.onnx", DATA / "imagenet-samples", "--resize", 256, "--crop",
                              227, limit=120)

    def test_resnet20_in_int8(self):
        self.extract_cifar(DATA / "cifar10-test.tar.gz", 40)
        self.assert_same_int8("resnet20-cifar10", self.folder / "cifar", limit=400)

    def test_a_resnet20_with_batch_norm_nodes(self):
        self.extract_cifar(DATA / "cifar10-test.tar.gz", 20)
        classes = sorted(path.name for path in (self.folder / "cifar").iterdir())
        self.assert_devices_agree(DATA / "models/resnet20_cifar10_bn.onnx", self.folder / "cifar", "--preset",
                                  "torchvision", "--labels", self.write("classes.txt", "\n".join(classes)))


if __name__ == "__main__":
    main()
