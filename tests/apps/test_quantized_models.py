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

from command import CommandTest, drawn_seed, main

# onnxruntime imports a module of its own by a name that a file in this folder has too, which `command` has imported.
sys.modules.pop("onnx_model", None)
sys.path = [folder for folder in sys.path if pathlib.Path(folder).resolve() != pathlib.Path(__file__).resolve().parent]
try:
    import numpy
    import onnx
    import onnx.reference
    import onnxruntime
    from onnxruntime import quantization
except ImportError:
    onnxruntime = None

MODEL = pathlib.Path(__file__).parents[2] / "models/resnet20-cifar10.onnx"
SHARE = 0.05  # of the norm of the scores


@unittest.skipUnless(onnxruntime, "onnxruntime is not installed")
class QuantizedModels(CommandTest):
    def setUp(self):
        super().setUp()
        self.random = numpy.random.default_rng(drawn_seed())

    def images(self, count):
        # Smooth, as photographs are: noise would saturate nothing and excite few channels.
        coarse = self.random.normal(size=(count, 1, 3, 5, 5)).astype(numpy.float32)
        return [numpy.kron(one, numpy.ones((1, 1, 7, 7), numpy.float32))[:, :, :32, :32].copy() for one in coarse]

    def quantize(self, name, model=MODEL, **options):
        images = iter([{"input": image} for image in self.images(8)])

        class Reader(quantization.CalibrationDataReader):
            def get_next(self):
                return next(images, None)

        folder = self.folder / name
        folder.mkdir()
        # Weights of 7 bits: with 8, ONNX Runtime's products saturate on a CPU without VNNI. But unsigned ones of a
        # whole tensor keep the zero points that i8 does not hold.
        whole = options.get("weight_type") == quantization.QuantType.QUInt8 and not options.get("per_channel")
        quantization.quantize_static(str(model), str(folder / "model.onnx"), Reader(), reduce_range=not whole, **options)
        return folder

    def write_expectations(self, folder, as_bytes=False):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
        for i, image in enumerate(self.images(4)):
            data = folder / f"test_data_set_{i}"
            data.mkdir()
            if as_bytes:
                image = numpy.clip(numpy.round(image * 40), -128, 127).astype(numpy.int8)
            scores = session.run(None, {"input": image})[0]
            for kind, name, value in (("input", "input", image), ("output", session.get_outputs()[0].name, scores)):
                tensor = onnx.numpy_helper.from_array(value, name)
                (data / f"{kind}_0.pb").write_bytes(tensor.SerializeToString())

    def write_mobile_network(self, name):
        """What mobile networks are made of: inverted residuals, a Concat of two scales, HardSwish, a gate."""
        nodes, weights = [], []

        def add(op, inputs, output, **attributes):
            nodes.append(onnx.helper.make_node(op, inputs, [output], name=output, **attributes))
            return output

        def conv(x, name, inputs, outputs, kernel=1, stride=1, depthwise=False):
            shape = (outputs, 1 if depthwise else inputs, kernel, kernel)
            values = self.random.normal(size=shape, scale=1.5 / (shape[1] * kernel * kernel) ** 0.5)
            for part, value in ((".w", values), (".b", self.random.normal(size=outputs, scale=0.2))):
                weights.append(onnx.numpy_helper.from_array(value.astype(numpy.float32), name + part))
            return add("Conv", [x, name + ".w", name + ".b"], name, pads=[kernel // 2] * 4, strides=[stride] * 2,
                       group=outputs if depthwise else 1)

        def relu6(x):
            return add("Clip", [x, "zero", "six"], x + ".relu6")

        for limit, value in (("zero", 0), ("six", 6)):
            weights.append(onnx.numpy_helper.from_array(numpy.array(value, numpy.float32), limit))
        x = relu6(conv("input", "stem", 3, 24, 3, 2))
        for block, stride in (("a", 1), ("b", 2)):
            inner = relu6(conv(x, block + ".expand", 24, 72))
            inner = relu6(conv(inner, block + ".depthwise", 72, 72, 3 if block == "a" else 5, stride, True))
            inner = conv(inner, block + ".project", 72, 24)
            x = add("Add", [inner, x], block + ".add") if stride == 1 else inner
        pool = add("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
        x = add("Concat", [conv(x, "narrow", 24, 24, 3, 1, True), pool], "concat", axis=1)
        x = add("HardSwish", [x], "swish")
        gate = add("Sigmoid", [conv(add("GlobalAveragePool", [x], "mean"), "gate", 48, 48)], "gate.sigmoid")
        x = add("Mul", [x, gate], "gated")
        x = add("Flatten", [add("GlobalAveragePool", [x], "last")], "flat")
        weights.append(onnx.numpy_helper.from_array(self.random.normal(size=(10, 48)).astype(numpy.float32), "fc.w"))
        add("Gemm", [x, "fc.w"], "scores", transB=1)
        value = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(nodes, "mobile", [value("input", onnx.TensorProto.FLOAT, (1, 3, 32, 32))],
                                       [value("scores", onnx.TensorProto.FLOAT, (1, 10))], weights)
        onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
                  self.folder / name)
        return self.folder / name

    def take_off_conversions(self, path):
        """The model with the integers themselves as input and output, as TensorFlow Lite's are."""
        model = onnx.load(path)
        graph = model.graph
        (first,) = [node for node in graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "input"]
        (last,) = [node for node in graph.node if node.output[0] == graph.output[0].name]
        self.assertEqual(last.op_type, "DequantizeLinear")
        graph.node.remove(first)
        graph.node.remove(last)
        for node in graph.node:
            node.input[:] = ["input" if name == first.output[0] else name for name in node.input]
        graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
        graph.output[0].name = last.input[0]
        graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT8
        onnx.save(model, path)

    def kernels(self, model):
        """Type and kernel of every layer that runs."""
        layers = self.json("inspect", model)["layers"]
        self.assertNotIn("reference", {layer["kernel"] for layer in layers})
        return sorted((layer["type"], layer["kernel"]) for layer in layers)

    @staticmethod
    def depthwise(kernels):
        """How many layers run on a kernel made for depthwise convolutions; which one the instruction set decides."""
        return sum(kernel.startswith("depthwise") for _, kernel in kernels)

    def test_signed_activations_run_on_the_kernels_of_unsigned_ones(self):
        kind = quantization.QuantType
        mobile = self.write_mobile_network("mobile.onnx")
        for form in (quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator):
            for per_channel in (True, False):
                found = {}
                for activations in (kind.QUInt8, kind.QInt8):
                    name = f"{form.name}-{activations.name}-{per_channel}"
                    with self.subTest(name):
                        folder = self.quantize(name, mobile, quant_format=form, activation_type=activations,
                                               weight_type=kind.QInt8, per_channel=per_channel)
                        found[activations] = self.kernels(folder / "model.onnx")
                        self.write_expectations(folder)
                        done = self.pipit_with_notes("verify", folder, "--norm", SHARE)
                        self.assertIn("passed 1 failed 0", done.stdout)
                self.assertEqual(found[kind.QInt8], found[kind.QUInt8])
                self.assertEqual(self.depthwise(found[kind.QInt8]), 3)

    def test_signed_inputs_and_outputs(self):
        folder = self.quantize("bytes", self.write_mobile_network("mobile.onnx"))  # signed by default
        self.take_off_conversions(folder / "model.onnx")
        self.write_expectations(folder, as_bytes=True)
        self.assertEqual(self.depthwise(self.kernels(folder / "model.onnx")), 3)
        shown = self.json("inspect", folder / "model.onnx")
        self.assertEqual([one["dtype"] for one in (shown["inputs"][0], shown["outputs"][0])], ["i8", "i8"])
        self.assertIn("passed 1 failed 0", self.pipit_with_notes("verify", folder, "--norm", SHARE).stdout)

    def test_both_forms_and_all_types(self):
        kind = quantization.QuantType
        for form in (quantization.QuantFormat.QDQ, quantization.QuantFormat.QOperator):
            for activations, weights, per_channel, int8 in (
                    (kind.QUInt8, kind.QInt8, True, True), (kind.QUInt8, kind.QInt8, False, True),
                    (kind.QInt8, kind.QInt8, True, True), (kind.QUInt8, kind.QUInt8, True, None),
                    (kind.QUInt8, kind.QUInt8, False, False)):  # zero points that take the weights out of i8
                name = f"{form.name}-{activations.name}-{weights.name}-{per_channel}"
                with self.subTest(name):
                    folder = self.quantize(name, quant_format=form, activation_type=activations, weight_type=weights,
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

    def verify_node(self, name, node, weights, inputs, *options):
        """What `pipit verify` says of one node against ONNX Runtime."""
        helper = onnx.helper
        graph = helper.make_graph(
            [node], name,
            [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
             for key, value in inputs.items()],
            [helper.make_empty_tensor_value_info(output) for output in node.output],
            [onnx.numpy_helper.from_array(value, key) for key, value in weights.items()])
        opsets = [helper.make_opsetid("", 14), helper.make_opsetid("com.microsoft", 1)]
        folder = self.folder / name
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(folder / "model.onnx"))
        session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
        results = dict(zip(node.output, session.run(None, inputs)))
        for kind, values in (("input", inputs), ("output", results)):
            for i, (key, value) in enumerate(values.items()):
                (data / f"{kind}_{i}.pb").write_bytes(onnx.numpy_helper.from_array(value, key).SerializeToString())
        return self.pipit_with_notes("verify", folder, *options).stdout

    def test_sums_of_integers_are_whole_numbers(self):
        # 24 channels and 3x3 filters: Winograd computes in fractions. Weights of 7 bits, see above.
        x = self.random.integers(0, 256, (1, 24, 12, 13)).astype(numpy.uint8)
        w = self.random.integers(-64, 64, (24, 24, 3, 3)).astype(numpy.int8)
        node = onnx.helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], pads=[1, 1, 1, 1])
        out = self.verify_node("integers", node, {"w": w}, {"x": x, "zero": numpy.array(117, numpy.uint8)},
                               "--rtol", "0", "--atol", "0")
        self.assertIn("passed 1 failed 0", out)

    def scaled_sums(self, name, op, x, w, zero, scale, bias=None, sum_bias=None, **attributes):
        """DynamicQuantizeLinear, an integer product, and what ONNX Runtime's quantization writes after it."""
        make, consts = onnx.helper.make_node, {"w": w, "wz": zero, "ws": scale}
        nodes = [make("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                 make(op, ["q", "w", "z", "wz"], ["sums"], **attributes)]
        last = "sums"
        if sum_bias is not None:
            consts["sb"] = sum_bias
            nodes.append(make("Add", [last, "sb"], ["biased"]))
            last = "biased"
        nodes += [make("Cast", [last], ["real"], to=1), make("Mul", ["s", "ws"], ["both"]),
                  make("Mul", ["real", "both"], ["y" if bias is None else "scaled"])]
        if bias is not None:
            consts["b"] = bias
            nodes.append(make("Add", ["scaled", "b"], ["y"]))
        graph = onnx.helper.make_graph(
            nodes, name, [onnx.helper.make_tensor_value_info("x", 1, x.shape)],
            [onnx.helper.make_empty_tensor_value_info("y")],
            [onnx.numpy_helper.from_array(value, key) for key, value in consts.items()])
        folder = self.folder / name
        data = folder / "test_data_set_0"
        data.mkdir(parents=True)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, str(folder / "model.onnx"))
        expected = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x})[0]
        (data / "input_0.pb").write_bytes(onnx.numpy_helper.from_array(x, "x").SerializeToString())
        (data / "output_0.pb").write_bytes(onnx.numpy_helper.from_array(expected, "y").SerializeToString())
        # The bits of the reference: integers, and one rounding for each step in f32 that both take.
        out = self.pipit_with_notes("verify", folder, "--rtol", "0", "--atol", "0").stdout
        self.assertIn("passed 1 failed 0", out, name)
        profile = json.loads(self.pipit_with_notes("profile", folder / "model.onnx", "--json").stdout)
        layers = [layer["type"] for layer in profile["layers"]]
        self.assertIn("DynamicQConv", layers, name)
        self.assertTrue(set(layers) <= {"DynamicQConv", "DynamicQuantize", "Reshape", "ToLayout"}, layers)

    def test_scales_of_run_time_stay_in_integers(self):
        normal = lambda *shape: self.random.normal(size=shape).astype(numpy.float32)
        for i, (dtype, low) in enumerate(((numpy.uint8, 0), (numpy.int8, -128))):
            draw = lambda *shape: self.random.integers(low, low + 256, shape).astype(dtype)
            one, scale = numpy.array(low + 117, dtype), numpy.array(0.013, numpy.float32)
            self.scaled_sums(f"image{i}", "ConvInteger", normal(1, 6, 9, 8), draw(10, 6, 3, 3), one, scale,
                             sum_bias=self.random.integers(-900, 900, (1, 10, 1, 1)).astype(numpy.int32),
                             pads=[1, 1, 0, 2], strides=[2, 1])
            self.scaled_sums(f"line{i}", "ConvInteger", normal(2, 6, 30), draw(10, 6, 3), one, scale,
                             bias=normal(10, 1), pads=[1, 1], dilations=[2])
            self.scaled_sums(f"rows{i}", "MatMulInteger", normal(2, 3, 40), draw(40, 21), one, scale, bias=normal(21))
            self.scaled_sums(f"columns{i}", "MatMulInteger", normal(5, 40), draw(40, 21), draw(21),
                             self.random.uniform(0.01, 0.02, 21).astype(numpy.float32), bias=normal(21))

    def test_lstm_with_weights_of_8_bits(self):
        inner, hidden = 9, 20
        for name, dtype, directions, per_column in (("bytes", numpy.uint8, 2, False), ("signed", numpy.int8, 1, True)):
            columns = 4 * hidden
            shape = (directions, columns) if per_column else (directions,)
            middle = 64 if dtype == numpy.uint8 else 0
            weights = {"b": self.random.normal(size=(directions, 8 * hidden)).astype(numpy.float32)}
            for key, rows in (("w", inner), ("r", hidden)):
                weights[key] = (self.random.integers(-64, 64, (directions, rows, columns)) + middle).astype(dtype)
                weights[key + "s"] = self.random.uniform(0.002, 0.005, shape).astype(numpy.float32)
                weights[key + "z"] = numpy.full(shape, middle, dtype)
            node = onnx.helper.make_node(
                "DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"], ["y", "h", "c"],
                domain="com.microsoft", hidden_size=hidden, direction="bidirectional" if directions == 2 else "forward")
            x = self.random.normal(size=(6, 1, inner)).astype(numpy.float32)
            # A number next to a tie may be rounded to the other side: a step of a 255th of one number of 20.
            self.assertIn("passed 1 failed 0", self.verify_node(name, node, weights, {"x": x}, "--norm", "0.003"))


if __name__ == "__main__":
    main()
