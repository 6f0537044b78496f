"""pipit inspect."""

import pathlib
import random
import re
import struct

from command import MODEL, RUNTIME, UNSUPPORTED, CommandTest, main
from onnx_model import FLOAT, model, node, tensor

CONFORMANCE = pathlib.Path("/usr/share/libonnx-testdata/data/node")


class Inspect(CommandTest):
    def test_json(self):
        result = self.json("inspect", "resnet18")
        (graph_input,), (output,) = result["inputs"], result["outputs"]
        self.assertEqual((graph_input["dtype"], graph_input["shape"]), ("f32", [1, 3, 224, 224]))
        self.assertEqual((output["dtype"], output["shape"]), ("f32", [1, 1000]))
        # ResNet-18 at 224x224 (He et al. 2015): 1.814e9 MACs in its convolutions and its last layer.
        self.assertEqual(result["macs"], 1814073344)
        self.assertEqual(sum(layer["macs"] for layer in result["layers"]), result["macs"])
        self.assertEqual(sum(layer["parameters"] for layer in result["layers"]), result["parameters"])
        self.assertEqual([layer["index"] for layer in result["layers"]], list(range(len(result["layers"]))))
        self.assertGreaterEqual(result["activation_bytes"], result["arena_bytes"])
        self.assertGreaterEqual(result["arena_bytes"], result["peak_live_bytes"])
        self.assertGreater(result["peak_live_bytes"], 0)

    def test_batch_scales_the_work(self):
        one, three = (self.json("inspect", MODEL, "--batch", n) for n in (1, 3))
        self.assertEqual(three["inputs"][0]["shape"][0], 3)
        self.assertEqual(three["macs"], 3 * one["macs"])
        self.assertEqual(three["parameters"], one["parameters"])

    def test_micro_batches(self):
        def cut(*options):
            return self.json("inspect", "resnet18", "--batch", "8", *options)

        whole, two = cut("--micro-batch", "0"), cut("--micro-batch", "2")
        self.assertEqual((whole["micro_batch"]["size"], whole["micro_batch"]["runs"]), (None, 1))
        self.assertEqual((two["micro_batch"]["size"], two["micro_batch"]["runs"]), (2, 4))
        self.assertLess(3 * two["arena_bytes"], whole["arena_bytes"])
        for name in ("inputs", "outputs", "macs", "activation_bytes"):
            self.assertEqual(two[name], whole[name])
        self.assertEqual([layer["output"] for layer in two["layers"]], [layer["output"] for layer in whole["layers"]])
        text = self.pipit("inspect", "resnet18", "--batch", "8", "--micro-batch", "3").stdout
        self.assertRegex(text, r"(?m)^micro-batches 3 of 8 samples at a time: as asked for")
        self.assertRegex(self.pipit("inspect", MODEL, "--why").stdout, r"(?m)^micro-batches none: the batch is 1")
        mixed = ("inspect", MODEL, "--batch", "4", "--precision", "int8-dynamic", "--dynamic-scales", "per-tensor")
        self.assertIn("DynamicQuantize", self.json(*mixed)["micro_batch"]["why"])
        self.assertIn("mixes the samples of a batch", self.pipit(*mixed, "--micro-batch", "2", code=RUNTIME).stderr)

    def test_text_has_every_layer(self):
        layers = self.json("inspect", MODEL)["layers"]
        text = self.pipit("inspect", MODEL).stdout
        for layer in layers:
            self.assertRegex(text, rf"(?m)^ *{layer['index']}  .*{layer['kernel']}")

    def test_fits_its_terminal(self):
        lines = self.on_a_terminal(80, "inspect", "resnet50").splitlines()
        self.assertLessEqual(max(map(len, lines)), 80)
        title, = [line.split() for line in lines if line.startswith(" # ")]
        self.assertEqual(title, ["#", "layer", "type", "kernel", "geometry", "MACs"])
        command = ("inspect", "resnet50")  # two runs may time the kernels otherwise
        self.assertEqual(self.on_a_terminal(80, *command, "--wide"), self.pipit(*command).stdout)

    def test_what_refuses_all_layers_is_said_once(self):
        text = self.pipit("inspect", MODEL, "--why").stdout
        everywhere = re.findall(r"(?m)^every (\w+): not (.*?): (.*)$", text)
        self.assertIn(("layer", "for fp16 and bf16 only"), [(who, why) for who, _, why in everywhere])
        self.assertIn(("Conv", "depthwise", "not a depthwise convolution"), everywhere)
        of_layers = set(re.findall(r"(?m)^ +not ([^:]*): (.*?) *$", text))
        self.assertIn(("winograd_f4x4", "not a 3x3 kernel"), of_layers)
        self.assertFalse(any(why == "for fp16 and bf16 only" for _, why in of_layers))
        # Nothing is lost: JSON has all of each layer, and the text has each of them somewhere.
        said = of_layers | {(name, why) for _, names, why in everywhere for name in names.split("; ")}
        self.assertEqual(said, {(r["kernel"], r["why"]) for layer in
                                self.json("inspect", MODEL, "--why")["layers"] for r in layer["refused"]})

    def test_one_layer_of_a_type_says_all_itself(self):
        self.write("flatten.onnx", model(("N", 3, 8, 8), [node("Conv", ("x", "w"), "y", "c")], [
            tensor("w", FLOAT, (4, 3, 3, 3), bytes(4 * 108))]))
        text = self.pipit("inspect", "flatten.onnx", "--why").stdout
        self.assertNotIn("every ", text)
        self.assertIn("not depthwise: not a depthwise convolution", text)

    def test_why(self):
        def preferred(*options):
            return self.json("inspect", MODEL, "--why", *options)["layers"]

        refused = [r for layer in preferred() for r in layer["refused"]]
        self.assertTrue(all(r["kernel"] and r["why"] for r in refused))
        self.assertEqual({layer["kernel"] for layer in preferred("--kernel", "reference")}, {"reference"})
        self.assertNotIn("refused", self.json("inspect", MODEL)["layers"][0])

    def test_winograd_can_be_switched_off(self):
        def layers(*options):
            return self.json("inspect", "resnet18", "--why", *options)["layers"]

        def winograd(layer):
            return layer["kernel"].startswith("winograd")

        self.assertTrue(any(map(winograd, layers())))
        off = layers("--kernel", "no-winograd", "--kernel", "winograd_f4x4")
        self.assertFalse(any(map(winograd, off)))
        reasons = {r["why"] for layer in off for r in layer["refused"] if winograd(r)}
        self.assertEqual(reasons, {"switched off"})

    def test_rows_of_zeros_are_found(self):
        channels, kept = 64, 8
        weights = random.Random(1)

        def conv(name, extent, keeps):
            """Weights of which the rows that are not kept, each an input channel at a tap, are zero."""
            values = [weights.uniform(-0.1, 0.1) if keeps(c, tap) else 0.0
                      for _ in range(channels) for c in range(channels) for tap in range(extent * extent)]
            return tensor(name, FLOAT, (channels, channels, extent, extent), struct.pack(f"<{len(values)}f", *values))

        def first_channels(c, tap):
            return c < kept

        def single_taps(c, tap):
            return (c + tap) % (channels // kept) == 0

        nodes = [node("Conv", ["x", "w0"], "a", kernel_shape=[1, 1])] + [
            node("Conv", [x, w], y, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
            for x, w, y in (("a", "w1", "b"), ("b", "w2", "c"), ("c", "w3", "y"))]
        path = self.write("pruned.onnx", model((1, channels, 28, 28), nodes, [
            conv("w0", 1, first_channels), conv("w1", 3, single_taps), conv("w2", 3, first_channels),
            conv("w3", 3, lambda c, tap: True)]))

        def inspect(*options):
            return {layer["name"]: layer for layer in self.json("inspect", path, "--why", *options)["layers"]}

        layers = inspect()
        one, three, dense = layers["a"], layers["b"], layers["y"]
        self.assertEqual((one["kernel"], one["kept"]), ("tile", kept / channels))
        self.assertEqual(one["macs"], channels * kept * 28 * 28)
        self.assertEqual((three["kernel"], three["kept"]), ("tile", kept / channels))
        self.assertIn("kept 12.5 %", three["geometry"])
        reasons = {r["kernel"]: r["why"] for r in inspect("--kernel", "winograd_f4x4")["b"]["refused"]}
        self.assertRegex(reasons["winograd_f4x4"],
                         r"the direct sums keep 12\.5 % of K; Winograd would take at least [\d.]+ times as long")
        self.assertNotIn("kept", dense)
        # Winograd leaves out whole channels; by order the direct sums of so few come first.
        for order, winner in (((), "tile"), (("--kernel", "winograd_f4x4"), "winograd_f4x4")):
            layers = inspect(*order)
            self.assertEqual([(layers[name]["kernel"], layers[name].get("kept")) for name in "bcy"],
                             [("tile", kept / channels), (winner, kept / channels), ("winograd_f4x4", None)])
        for command in (("profile", path, "--runs", 1), ("inspect", path, "--autotune", "--tuning-cache", "c.json")):
            layers = {layer["name"]: layer for layer in self.json(*command)["layers"]}
            self.assertEqual((layers["b"]["kernel"], layers["b"].get("kept")), ("tile", kept / channels), command)

    def test_unsupported_operators_are_listed(self):
        model = CONFORMANCE / "test_nonmaxsuppression_limit_output_size" / "model.onnx"
        if not model.exists():
            self.skipTest(f"no {CONFORMANCE} (Debian's libonnx-testdata)")
        done = self.pipit("inspect", model, code=UNSUPPORTED)
        self.assertIn("NonMaxSuppression", done.stderr)
        self.assertEqual(done.stdout, "")


if __name__ == "__main__":
    main()
