"""Every operator of docs/operators.md has a fast kernel wherever it stands: no layer runs on a reference kernel.

One graph holds all operators side by side, so that one inspection shows the kernels of a place, a rank and a precision."""

import pathlib
import re

from command import CommandTest, main
from operator_table import OPERATORS, PLACES, network, operators

# Operators that no layer of its own stands for, or that another test holds to fast kernels.
ELSEWHERE = {
    "Constant": "a constant", "ConstantOfShape": "a constant", "EyeLike": "a constant", "Range": "a constant",
    "Shape": "known while reading", "Size": "known while reading",
    "QuantizeLinear": "every INT8 graph has it", "DequantizeLinear": "every INT8 graph has it",
    "Upsample": "Resize under the name of opsets 7 to 9", "Swish": "opset 24: Sigmoid and Mul",
    "ConvInteger": "test_quantized_models.py", "MatMulInteger": "test_quantized_models.py",
    "DynamicQuantizeLinear": "test_quantized_models.py", "QLinearConv": "test_quantized_models.py",
    "QLinearMatMul": "test_quantized_models.py",
    "Attention": "opset 23: matrix products and a softmax", "RMSNormalization": "opset 23: LayerNorm",
    "GridSample": "test_grid_sample.cpp", "GRU": "test_recurrent.cpp", "LSTM": "test_recurrent.cpp",
    "RNN": "test_recurrent.cpp", "Compress": "a Gather", "NonZero": "a constant",
    "OneHot": "comparisons and Where", "Trilu": "a Where",
    **dict.fromkeys(("SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SequenceAt", "SequenceLength",
                     "SplitToSequence", "ConcatFromSequence"), "Split, Concat, Reshape and Gather: test_onnx_sequences.cpp"),
}

# Operators whose layers have a plain kernel only: they move or compare what is little beside the rest of a network.
PLAIN = {"Col2Im", "CumSum", "GatherElements", "GatherND", "MaxUnpool", "ReverseSequence", "Scatter", "ScatterElements",
         "ScatterND", "TopK"}


def table_of_operators():
    """The operators of ONNX's domain that docs/operators.md lists."""
    text = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "operators.md").read_text(encoding="utf-8")
    table = text.split("| Operator | Opsets from |", 1)[1].split("\n\n", 1)[0]
    rows = re.findall(r"^\| ([A-Z][^|]*) \|", table, re.MULTILINE)
    return {name for row in rows for name in row.split(", ")}


class OperatorPlaces(CommandTest):
    def network(self, place, rank, quantized):
        return self.write(f"{place}-{rank}-{'int8' if quantized else 'float'}.onnx",
                          network(operators(rank), place, rank, quantized))

    def reference_layers(self, model, *options):
        layers = self.json("inspect", model, *options)["layers"]
        self.assertGreater(len(layers), len(OPERATORS))
        return [f"{layer['name']}: {layer['type']} {layer['geometry']} {layer['input']}" for layer in layers
                if "reference" in layer["kernel"]]

    def check(self, rank):
        for place in PLACES:
            models = {quantized: self.network(place, rank, quantized) for quantized in (False, True)}
            for precision, model in (("fp32", models[False]), ("fp16", models[False]), ("int8", models[True])):
                with self.subTest(place=place, rank=rank, precision=precision):
                    options = ["--precision", "fp16"] if precision == "fp16" else []
                    slow = self.reference_layers(model, *options)
                    self.assertEqual(slow, [])

    def test_no_operator_runs_on_a_reference_kernel_in_a_signal(self):
        self.check(1)

    def test_no_operator_runs_on_a_reference_kernel_in_an_image(self):
        self.check(2)

    def test_no_operator_runs_on_a_reference_kernel_in_a_volume(self):
        self.check(3)

    def test_every_documented_operator_is_tried(self):
        tried = {name for name in OPERATORS if "." not in name} | set(ELSEWHERE) | PLAIN
        self.assertEqual(table_of_operators() - tried, set())


if __name__ == "__main__":
    main()
