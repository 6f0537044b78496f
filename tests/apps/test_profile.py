"""pipit profile."""

from command import MODEL, USAGE, CommandTest, main


class Profile(CommandTest):
    def test_json(self):
        result = self.json("profile", MODEL, "--runs", "5", "--warmup", "1", "--batch", "2", "--threads", "1")
        self.assertEqual((result["runs"], result["batch"], result["threads"]), (5, 2, 1))
        for name in ("read_ms", "load_ms", "first_run_ms", "arena_bytes", "layers_ms", "end_to_end_ms", "profiler_overhead_ms"):
            self.assertGreater(result[name], 0, name)
        self.assertAlmostEqual(result["first_answer_ms"],
                               result["read_ms"] + result["load_ms"] + result["first_run_ms"], delta=1e-9)
        self.assertNotIn("device_memory_bytes", result)  # of a GPU only
        layers = result["layers"]
        self.assertEqual([layer["index"] for layer in layers], list(range(len(layers))))
        self.assertAlmostEqual(result["residual_ms"], result["end_to_end_ms"] - result["layers_ms"], delta=1e-9)
        for layer in layers:
            self.assertEqual(layer["input"][0], 2)
            self.assertAlmostEqual(layer["share"], layer["median_ms"] / result["layers_ms"], delta=1e-9)
            self.assertEqual(layer["gflops"] > 0, layer["macs"] > 0)

    def test_layers_are_those_of_inspect(self):
        # By order: two timings may choose differently.
        profiled = self.json("profile", MODEL, "--runs", "1", "--no-autotune")
        inspected = self.json("inspect", MODEL, "--no-autotune")
        for key in ("name", "type", "kernel", "macs", "geometry", "output"):
            self.assertEqual([layer[key] for layer in profiled["layers"]],
                             [layer[key] for layer in inspected["layers"]])

    def test_text(self):
        text = self.pipit("profile", MODEL, "--runs", "2").stdout
        self.assertRegex(text, r"(?m)^sum of layers +[\d.]+ ms .*\(median of 2 runs\)$")
        self.assertRegex(text, r"(?m)^end to end +[\d.]+ ms$")
        self.assertRegex(text, r"(?m)^unexplained +-?[\d.]+ ms")

    def test_floor(self):
        peak = ("--floor", "--peak-tflops", "0.5", "--bandwidth-tbs", "0.01")
        result = self.json("profile", MODEL, "--runs", "2", *peak)
        self.assertEqual((result["peak_tflops"], result["bandwidth_tbs"]), (0.5, 0.01))
        first = result["layers"][0]  # 3x3, 3 to 24 channels on 32x32
        self.assertEqual(first["bytes"], 4 * (3 * 32 * 32 + 24 * 3 * 9 + 24 + 24 * 32 * 32))
        for layer in result["layers"]:
            floor = max(2 * layer["macs"] / 0.5e12, layer["bytes"] / 0.01e12) * 1e6
            self.assertAlmostEqual(layer["floor_us"], floor, delta=1e-9 * floor)
            self.assertAlmostEqual(layer["x_floor"], 1e3 * layer["median_ms"] / floor, delta=1e-6)
        self.assertAlmostEqual(result["floor_ms"], sum(layer["floor_us"] for layer in result["layers"]) / 1e3, delta=1e-9)
        text = self.pipit("profile", MODEL, "--runs", "2", *peak).stdout
        self.assertRegex(text, r"(?m) floor us +x floor$")
        self.assertRegex(text, r"(?m)^floor +[\d.]+ ms   at 0\.5 TFLOP/s and 0\.01 TB/s; the layers take [\d.]+ times")
        convolutions = [layer for layer in result["layers"] if layer["type"] == "Conv"]
        self.assertAlmostEqual(result["convolutions_ms"], sum(layer["median_ms"] for layer in convolutions), delta=1e-9)
        share = 2 * sum(layer["macs"] for layer in convolutions) / (1e-3 * result["convolutions_ms"]) / 0.5e12
        self.assertAlmostEqual(result["convolutions_share_of_peak"], share, delta=1e-9)
        self.assertRegex(text, r"(?m)^convolutions +[\d.]+ ms   [\d.]+ GFLOP/s, [\d.]+% of the peak$")
        for option in ("--peak-tflops", "--bandwidth-tbs"):
            self.assert_one_line_error(self.pipit("profile", MODEL, option, "1", code=USAGE), "--floor")
            self.assert_one_line_error(self.pipit("profile", MODEL, "--floor", option, "0", code=USAGE), option)

    def test_floor_is_measured(self):
        result = self.json("profile", MODEL, "--runs", "2", "--threads", "1", "--floor")
        self.assertGreater(result["peak_tflops"], 1e-3)
        self.assertGreater(result["bandwidth_tbs"], 1e-4)
        # Beside other load both figures are low, but not by different factors of ten.
        self.assertTrue(0 < result["convolutions_share_of_peak"] < 5, result["convolutions_share_of_peak"])
        convolutions = [layer for layer in result["layers"] if layer["type"] == "Conv"]
        rate = 2 * sum(layer["macs"] for layer in convolutions) / (1e-3 * result["convolutions_ms"])
        self.assertAlmostEqual(result["convolutions_share_of_kernel"], rate / (1e12 * result["kernel_tflops"]), delta=1e-9)
        text = self.pipit("profile", MODEL, "--runs", "2", "--threads", "1", "--floor").stdout
        self.assertRegex(text, r"(?m)^their kernel +[\d.]+ GFLOP/s on operands in the first-level cache; the convolutions")

    def test_integer_convolutions_count(self):
        result = self.json("profile", MODEL, "--precision", "int8-dynamic", "--runs", "2", "--threads", "1", "--floor")
        convolutions = [layer for layer in result["layers"] if layer["type"] in ("Conv", "DynamicQConv")]
        self.assertIn("DynamicQConv", {layer["type"] for layer in convolutions})
        self.assertAlmostEqual(result["convolutions_ms"], sum(layer["median_ms"] for layer in convolutions), delta=1e-9)
        self.assertGreater(result["kernel_tflops"], 1e-3)
        self.assertTrue(0 < result["convolutions_share_of_peak"] < 5, result["convolutions_share_of_peak"])


if __name__ == "__main__":
    main()
