"""ONNX's own tests (Debian's libonnx-testdata: node, simple and converted PyTorch ones) through `pipit verify`.

Every test must pass unless its model uses an operator that pipit does not have or an opset older than 7, or stands
below with a reason.
"""

import collections
import fnmatch
import pathlib
import re
import warnings

from command import CHECK_FAILED, OK, CommandTest, main

NODE_TESTS = pathlib.Path("/usr/share/libonnx-testdata/data")

# What must not be missing: a reason "operator X is not supported" for one of these is a failure.
OPERATORS = set("""
    Abs Add ArgMax AveragePool BatchNormalization Cast Clip Concat Constant Conv ConvInteger ConvTranspose DepthToSpace
    DequantizeLinear Div Dropout DynamicQuantizeLinear Elu Erf Exp Expand Flatten Gather Gelu Gemm GlobalAveragePool GlobalMaxPool HardSigmoid HardSwish Identity
    InstanceNormalization LRN LayerNormalization LeakyRelu LogSoftmax LpPool MatMul MatMulInteger Max MaxPool Mean Min Mish Mul Neg
    PRelu Pad Pow QLinearConv QLinearMatMul QuantizeLinear ReduceMax ReduceMean ReduceSum Relu Reshape Resize Shape Sigmoid Slice Softmax Softplus
    SpaceToDepth Split Sqrt Squeeze Sub Sum Tanh Transpose Unsqueeze Upsample
    """.split())

# Newer operators, whose tests come from the Python package onnx where it is installed.
COMPOSED = set("""
    Acos Acosh Asin Asinh Atan Atanh Attention Col2Im Compress Cosh CumSum Einsum GatherElements GatherND GridSample GRU
    Hardmax IsInf IsNaN LpNormalization LSTM MaxUnpool MeanVarianceNormalization OneHot ReverseSequence RMSNormalization
    RNN Resize ScatterElements ScatterND Shrink Sinh Tan TopK Trilu
    """.split())
OPERATORS |= COMPOSED

# Patterns of tests that do not pass, and why.
EXCLUDED = {
    "test_*cast*FLOAT16*": "float16 and bfloat16 tensors",
    "test_*cast*STRING*": "strings",
    "test_m*_*int16": "16-bit integers",
    "test_m*_uint32": "uint32 tensors",
    "test_m*_uint64": "uint64 tensors",
    "test_mod_uint*": "unsigned integers above 8 bits",
    "test_pow_types_float32_uint*": "unsigned integers above 8 bits",
    "test_bitshift_*": "BitShift, and unsigned integers",
    "test_strnorm*": "strings",
    "test_identity_opt": "optional values",
    "test_optional_*": "optional values",
    "test_*sequence*": "sequences",
    "test_if_*": "optionals and sequences",
    "test_loop*": "sequences",
    "test_batchnorm_*_training_mode": "training",
    "test_training_dropout*": "training",
    "test_ada*": "training operators",
    "test_*momentum*": "training operators",
    "test_resize_*tf_*": "TensorFlow's coordinate modes",
    # The expected values divide by the unrounded length 2.4 - 1; the specification says length_resized, the output's
    # own extent. ONNX Runtime leaves the test out for the same reason.
    "test_resize_downsample_scales_*_align_corners": "expected values contradict the specification",
    "test_*NCd1d2d3d4d5*": "7 dimensions",
    "test_nonmaxsuppression_*": "extents that depend on values",
    "test_unique_*": "extents that depend on values",
    "test_*window*_expanded": "Range with a run-time limit",
}


# Patterns of tests of the package that do not pass, and why.
EXCLUDED_OF_PACKAGE = {
    "test_attention_*_bf16": "values are expected that are rounded to 16 bits",
    "test_attention_*_fp16": "values are expected that are rounded to 16 bits",
    "test_nonmaxsuppression_*": "extents that depend on values",
    "test_resize_*tf_*": "TensorFlow's coordinate modes",
    "test_resize_downsample_scales_*_align_corners": "expected values contradict the specification",
    "test_top_k_uint64": "uint64 tensors",
}


# Of those whose inputs are made constants.
MOST_PER_OPERATOR = 4


def write_test(case, folder):
    """A test of the package in the form of ONNX's files."""
    import onnx
    from onnx import numpy_helper

    folder.mkdir()
    onnx.save(case.model, folder / "model.onnx")
    graph = case.model.graph
    for i, (inputs, outputs) in enumerate(case.data_sets):
        data = folder / f"test_data_set_{i}"
        data.mkdir()
        for kind, values, infos in (("input", inputs, graph.input), ("output", outputs, graph.output)):
            for j, (value, info) in enumerate(zip(values, infos)):
                if not isinstance(value, onnx.TensorProto):
                    value = numpy_helper.from_array(value, info.name)
                (data / f"{kind}_{j}.pb").write_bytes(value.SerializeToString())


def with_known_inputs(case):
    """The test with all inputs as initializers, or None where they are no tensors."""
    import copy

    from onnx import TensorProto, numpy_helper

    known = copy.copy(case)
    known.model = copy.deepcopy(case.model)
    inputs, outputs = case.data_sets[0]
    graph = known.model.graph
    for value, info in zip(inputs, graph.input):
        if not info.type.HasField("tensor_type"):
            return None
        tensor = TensorProto()
        tensor.CopyFrom(value if isinstance(value, TensorProto) else numpy_helper.from_array(value))
        tensor.name = info.name
        graph.initializer.append(tensor)
    del graph.input[:]
    known.data_sets = [([], outputs)]
    return known


class NodeTests(CommandTest):
    def cases_of_package(self):
        """The tests that the package onnx makes."""
        try:
            from onnx.backend.test.case.node import collect_testcases

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of NumPy, about infinities and NaNs that tests are about
                cases = collect_testcases(None)
        except ImportError as error:
            self.skipTest(f"no onnx with its tests: {error}")
        return [case for case in cases if case.model is not None and case.data_sets]

    def test_what_is_known_is_computed_while_reading(self):
        given, known, operators = self.folder / "given", self.folder / "known", {}
        given.mkdir()
        known.mkdir()
        for case in self.cases_of_package():
            names = operators.setdefault(case.model.graph.node[0].op_type, [])
            if len(names) == MOST_PER_OPERATOR or case.name.endswith("_expanded"):
                continue
            tensors = all(value.type.HasField("tensor_type") for value in
                          (*case.model.graph.input, *case.model.graph.output))
            constant = with_known_inputs(case) if tensors else None
            if constant is not None:
                write_test(case, given / case.name)
                write_test(constant, known / case.name)
                names.append(case.name)
        first, second = ({pathlib.Path(test["test"]).name: test for test in
                          self.json("verify", folder, code=(OK, CHECK_FAILED), silent=False)["tests"]} for folder in (given, known))
        passed = {name for name, test in first.items() if test["verdict"] == "passed"}
        self.assertGreater(len(passed), 300)
        self.assertEqual({name: second[name]["note"] for name in passed if second[name]["verdict"] != "passed"}, {})
        # Nothing is left to run: of one test per operator, as each takes a process.
        left = {}
        for name in (next((n for n in names if n in passed), None) for names in operators.values()):
            if name is not None and (layers := self.json("inspect", known / name / "model.onnx")["layers"]):
                left[name] = [layer["type"] for layer in layers]
        self.assertEqual(left, {})

    def test_all(self):
        if not NODE_TESTS.exists():
            self.skipTest(f"no {NODE_TESTS} (Debian's libonnx-testdata)")
        tests = self.json("verify", NODE_TESTS, code=CHECK_FAILED)["tests"]  # one contradicts the specification
        verdicts = collections.Counter(test["verdict"] for test in tests)
        self.assertGreaterEqual(verdicts["passed"], 813)
        unexplained, matched = [], set()
        for test in tests:
            name = pathlib.Path(test["test"]).name
            patterns = [pattern for pattern in EXCLUDED if fnmatch.fnmatch(name, pattern)]
            missing = set(re.findall(r"operator (\S+) is not supported", test["note"]))
            if test["verdict"] == "passed":
                continue
            matched.update(patterns)
            old = re.search(r", opset [1-6]\)", test["note"])
            if not patterns and not old and not (missing and not missing & OPERATORS):
                unexplained.append(f"{name}: {test['note']}")
        self.assertEqual(unexplained, [])
        self.assertEqual(sorted(set(EXCLUDED) - matched), [], "these exclusions exclude nothing")

    def test_newer_ones(self):
        for case in self.cases_of_package():
            operators = {node.op_type for node in case.model.graph.node}
            if operators & COMPOSED and not case.name.endswith("_expanded"):
                write_test(case, self.folder / case.name)
        tests = self.json("verify", self.folder, code=CHECK_FAILED)["tests"]
        self.assertGreater(len(tests), 100)
        failed = {
            pathlib.Path(test["test"]).name: test["note"]
            for test in tests
            if test["verdict"] != "passed"
        }
        unexplained = [
            f"{name}: {note}"
            for name, note in failed.items()
            if not any(fnmatch.fnmatch(name, pattern) for pattern in EXCLUDED_OF_PACKAGE)
        ]
        self.assertEqual(unexplained, [])

    def test_summary_line(self):
        if not NODE_TESTS.exists():
            self.skipTest(f"no {NODE_TESTS} (Debian's libonnx-testdata)")
        done = self.pipit("verify", NODE_TESTS / "node/test_relu", NODE_TESTS / "node/test_nonmaxsuppression_limit_output_size")
        self.assertEqual(done.stdout.splitlines()[-1], "passed 1 failed 0 unsupported 1")

    def test_reference_kernels_pass_what_fast_ones_do(self):
        if not NODE_TESTS.exists():
            self.skipTest(f"no {NODE_TESTS} (Debian's libonnx-testdata)")
        fast, reference = (
            {test["test"]: test["verdict"] for test in self.json("verify", NODE_TESTS, *more, code=CHECK_FAILED)["tests"]}
            for more in ([], ["--kernel", "reference"])
        )
        self.assertEqual(fast, reference)


if __name__ == "__main__":
    main()
