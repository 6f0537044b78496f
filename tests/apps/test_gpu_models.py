"""Published models on a GPU against the CPU, on the photographs of test_real_models.py."""

import json
import os
import pathlib
import subprocess
import unittest

from command import MODEL, OK, PIPIT, CommandTest, main

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
        """The CPU and the GPU in every precision are right on as many images, give or take one, in bf16 two."""
        cpu = self.json("evaluate", *arguments)
        for precision in ("fp32", "fp16", "bf16"):
            gpu = self.json("evaluate", *arguments, "--device", "cuda", "--precision", precision)
            self.assertEqual(gpu["images"], cpu["images"])
            self.assertGreater(gpu["images"], 50)
            self.assertGreater(cpu["top1_correct"], gpu["images"] // 2, "wrong on both devices agrees too easily")
            delta = 2 if precision == "bf16" else 1
            self.assertAlmostEqual(gpu["top1_correct"], cpu["top1_correct"], delta=delta, msg=precision)

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


@unittest.skipIf(PROBLEM, PROBLEM)
@unittest.skipUnless("PIPIT_TEST_DATA" in os.environ, "PIPIT_TEST_DATA does not name a folder of models and images")
class GpuInt8(CommandTest):
    """diff and tune measure the GPU, and so do precisions without a plan."""

    def setUp(self):
        super().setUp()
        self.extract_cifar(DATA / "cifar10-test.tar.gz", 6)
        self.pipit("calibrate", MODEL, "cifar", "--limit", 20, "--output", "plan.json", "--no-histograms", "--quiet")

    def diff(self, *arguments):
        return self.json("diff", MODEL, "cifar", "--plan", "plan.json", "--quiet", *arguments)

    def test_diff_says_what_it_says_of_the_cpu(self):
        # The devices hold the same integers, and round the sums of fp32 in another order.
        cpu = self.diff("--batch", 4)
        gpu = self.diff("--batch", 4, "--device", "cuda")
        self.assertEqual((cpu["device"], gpu["device"]), ("cpu", "cuda"))
        self.assertAlmostEqual(cpu["output"]["sqnr_db"], gpu["output"]["sqnr_db"], delta=0.5)
        self.assertAlmostEqual(cpu["output_noise"] / gpu["output_noise"], 1, delta=0.1)
        self.assertEqual([layer["name"] for layer in cpu["layers"]], [layer["name"] for layer in gpu["layers"]])
        for on_cpu, on_gpu in zip(cpu["layers"], gpu["layers"]):
            with self.subTest(on_cpu["name"]):
                self.assertEqual(on_cpu["precision"], on_gpu["precision"])
                self.assertAlmostEqual(on_cpu["cosine"], on_gpu["cosine"], delta=1e-3)
                if on_cpu["sqnr_db"] is not None and on_cpu["sqnr_db"] < 60:
                    self.assertAlmostEqual(on_cpu["sqnr_db"], on_gpu["sqnr_db"], delta=0.5)
                if on_cpu["clipped"] is not None:
                    self.assertAlmostEqual(on_cpu["clipped"], on_gpu["clipped"], delta=1e-3)
                if "share_removed" in on_cpu:
                    self.assertAlmostEqual(on_cpu["share_removed"], on_gpu["share_removed"], delta=0.1)

    def test_diff_says_what_is_kept_in_16_bits(self):
        for precision in ("fp32", "fp16", "bf16"):
            layers = self.diff("--fast", "--device", "cuda", "--keep", f"first={precision}")["layers"]
            self.assertEqual(layers[0]["precision"], precision)
            self.assertEqual(layers[1]["precision"], "int8")

    def tune(self, *arguments, code=OK):
        return self.json("tune", MODEL, "cifar", "--output", "mixed.json", "--quiet", "--device", "cuda", "--batch", 4,
                         *arguments, code=code)

    def test_tune_measures_the_gpu(self):
        result = self.tune("--max-drop", 100)
        self.assertEqual((result["device"], result["keep_as"], result["passed"]), ("cuda", "fp16", True))
        for step in result["steps"]:
            self.assertTrue(0 < step["ms"] < 100, step)
        # The device's time of a graph, and not the host's of a run with its copies.
        graph = self.json("profile", MODEL, "--device", "cuda", "--batch", 4, "--precision", "int8", "--plan",
                          "plan.json", "--quiet")["graph_ms"]
        self.assertAlmostEqual(result["steps"][0]["ms"] / graph, 1, delta=0.5)
        plan = json.loads((self.folder / "mixed.json").read_text())
        self.assertEqual(plan["keep"]["/pool/GlobalAveragePool"]["precision"], "fp16")

    def test_tune_keeps_what_it_must(self):
        result = self.tune("--max-drop", 0, "--judge-by", "model", "--confidence", 99, "--keep-as", "fp32")
        # Only fp32 itself is sure to agree with fp32.
        self.assertEqual((result["keep_as"], result["unseen"]["drop_points"]), ("fp32", 0))
        plan = json.loads((self.folder / "mixed.json").read_text())
        self.assertEqual({kept if isinstance(kept, str) else kept["precision"] for kept in plan["keep"].values()}, {"fp32"})
        layers = self.json("inspect", MODEL, "--precision", "int8", "--plan", "mixed.json", "--device", "cuda", "--quiet")
        self.assertEqual([layer["name"] for layer in layers["layers"] if layer["type"] == "QConv"], [])
        self.assertTrue(result["sure"])
        # A drop of 0 is more than few images can be sure of in fp16: all of it is kept, and that is said.
        result = self.tune("--max-drop", 0, "--judge-by", "model", "--confidence", 99)
        self.assertEqual((result["keep_as"], result["sure"]), ("fp16", False))
        plan = json.loads((self.folder / "mixed.json").read_text())
        self.assertEqual({kept if isinstance(kept, str) else kept["precision"] for kept in plan["keep"].values()}, {"fp16"})
        self.assertEqual(max(step["kept"] for step in result["steps"]), len(result["kept"]))

    def test_products_with_stored_weights_run_on_the_gpu(self):
        for precision in ("w8", "w4"):
            layers = self.json("inspect", MODEL, "--device", "cuda", "--precision", precision)["layers"]
            kernels = {layer["kernel"] for layer in layers if layer["type"] in ("WLinear", "WConv")}
            self.assertTrue(kernels and kernels <= {"packed_gemm", "unpacked_gemm"}, (precision, kernels))

    def test_dynamic_scales_stay_on_the_gpu(self):
        layers = self.json("inspect", MODEL, "--device", "cuda", "--precision", "int8-dynamic")["layers"]
        kernels = {(layer["type"], layer["kernel"]) for layer in layers if layer["type"].startswith("Dynamic")}
        self.assertEqual(kernels, {("DynamicQuantize", "samples"), ("DynamicQConv", "implicit_gemm")})


if __name__ == "__main__":
    main()
