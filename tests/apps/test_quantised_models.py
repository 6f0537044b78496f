"""Models that ONNX Runtime's quantize_static makes of the shipped ResNet-20: their answers in pipit and ONNX Runtime.

Skipped where onnxruntime is missing. Both compute sums of INT8 products exactly and round them alike; ONNX Runtime adds
in another order in QLinearAdd and averages, and so may differ by a step where a value lies next to a tie. Such a step is
about 1 % of the scores of this small model; a wrong scale, zero point or range is far more.
"""

import json
import os
import pathlib
import sys
import unittest

from command import CommandTest, main

# onnxruntime imports a module of its own by a name that a file in this folder has too.
sys.path = [folder for folder in sys.path if pathlib.Path(folder).resolve() != pathlib.Path(__file__).resolve().parent]
try:
    import numpy
    import onnx
    import onnxruntime
    from onnxruntime import quantization
except ImportError:
    onnxruntime = None

MODEL = pathlib.Path(__file__).parents[2] / "models/resnet20-cifar10.onnx"
SHARE = 0.05  # of the norm of the scores


@unittest.skipUnless(onnxruntime, "onnxruntime is not installed")
class QuantisedModels(CommandTest):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(int(os.environ.get("PIPIT_TEST_SEED", "1")))

    def images(self, count):
        # Smooth, as photographs are: noise would saturate nothing and excite few channels.
        coarse = self.random.normal(size=(count, 1, 3, 5, 5)).astype(numpy.float32)
        return [numpy.kron(one, numpy.ones((1, 1, 7, 7), numpy.float32))[:, :, :32, :32].copy() for one in coarse]

    def quantise(self, name, **options):
        images = iter([{"input": image} for image in self.images(8)])

        class Reader(quantization.CalibrationDataReader):
            def get_next(self):
                return next(images, None)

        folder = self.folder / name
        folder.mkdir()
        quantization.quantize_static(str(MODEL), str(folder / "model.onnx"), Reader(), **options)
        return folder

    def write_expectations(self, folder):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        for i, image in enumerate(self.images(4)):
            data = folder / f"test_data_set_{i}"
            data.mkdir()
            scores = session.run(None, {"input": image})[0]
            for kind, name, value in (("input", "input", image), ("output", session.get_outputs()[0].name, scores)):
                tensor = onnx.numpy_helper.from_array(value, name)
                (data / f"{kind}_0.pb").write_bytes(tensor.SerializeToString())

    def test_both_forms_and_all_types(self):
        kind = quantization.QuantType
        for form in (quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator):
            for activations, weights, per_channel, int8 in (
                    (kind.QUInt8, kind.QInt8, True, True), (kind.QUInt8, kind.QInt8, False, True),
                    (kind.QInt8, kind.QInt8, True, True), (kind.QUInt8, kind.QUInt8, True, None),
                    (kind.QUInt8, kind.QUInt8, False, False)):  # zero points that take the weights out of i8
                name = f"{form.name}-{activations.name}-{weights.name}-{per_channel}"
                with self.subTest(name):
                    folder = self.quantise(name, quant_format=form, activation_type=activations, weight_type=weights,
                                           per_channel=per_channel)
                    self.write_expectations(folder)
                    shown = json.loads(self.pipit_with_notes("inspect", folder / "model.onnx", "--json").stdout)
                    if int8 is not None:  # with None, the matrix product has one scale and any zero point
                        self.assertEqual((shown["int8"]["macs"] == shown["macs"], shown["notes"] == []), (int8, int8))
                    done = self.pipit_with_notes("verify", folder, "--norm", SHARE)
                    self.assertIn("passed 1 failed 0", done.stdout)

    def test_dynamic(self):
        folder = self.folder / "dynamic"
        folder.mkdir()
        quantization.quantize_dynamic(str(MODEL), str(folder / "model.onnx"))
        self.write_expectations(folder)
        self.assertIn("passed 1 failed 0", self.pipit_with_notes("verify", folder, "--norm", SHARE).stdout)


if __name__ == "__main__":
    main()
