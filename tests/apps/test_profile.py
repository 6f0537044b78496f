"""pipit profile."""

from command import MODEL, CommandTest, main


class Profile(CommandTest):
    def test_json(self):
        result = self.json("profile", MODEL, "--runs", "5", "--warmup", "1", "--batch", "2", "--threads", "1")
        self.assertEqual((result["runs"], result["batch"], result["threads"]), (5, 2, 1))
        for name in ("load_ms", "arena_bytes", "layers_ms", "end_to_end_ms", "profiler_overhead_ms"):
            self.assertGreater(result[name], 0, name)
        layers = result["layers"]
        self.assertEqual([layer["index"] for layer in layers], list(range(len(layers))))
        self.assertAlmostEqual(result["residual_ms"], result["end_to_end_ms"] - result["layers_ms"], delta=1e-9)
        for layer in layers:
            self.assertEqual(layer["input"][0], 2)
            self.assertAlmostEqual(layer["share"], layer["median_ms"] / result["layers_ms"], delta=1e-9)
            self.assertEqual(layer["gflops"] > 0, layer["macs"] > 0)

    def test_layers_are_those_of_inspect(self):
        profiled, inspected = self.json("profile", MODEL, "--runs", "1"), self.json("inspect", MODEL)
        for key in ("name", "type", "kernel", "macs", "geometry", "output"):
            self.assertEqual([layer[key] for layer in profiled["layers"]],
                             [layer[key] for layer in inspected["layers"]])

    def test_text(self):
        text = self.pipit("profile", MODEL, "--runs", "2").stdout
        self.assertRegex(text, r"(?m)^sum of layers +[\d.]+ ms .*\(median of 2 runs\)$")
        self.assertRegex(text, r"(?m)^end to end +[\d.]+ ms$")
        self.assertRegex(text, r"(?m)^unexplained +-?[\d.]+ ms")


if __name__ == "__main__":
    main()
