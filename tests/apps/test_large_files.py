"""Model files and weights above 2 GB, which are sparse here and take no room."""

from command import OK, RUNTIME, CommandTest, main
from onnx_model import FLOAT, field, model, node, varint


class LargeFiles(CommandTest):
    def sparse(self, name, size, start=b""):
        path = self.write(name, start)
        with open(path, "r+b") as file:
            file.truncate(size)
        return path

    def test_models_that_protocol_buffers_cannot_hold(self):
        graph = field(1, 8) + varint(7 << 3 | 2) + varint(2**31 + 1000)
        for start in (b"", graph, model((1, 4), [node("Relu", ["x"], "y")])):
            self.sparse("large.onnx", 2**31 + 2000, start)
            for command in (("inspect",), ("annotate", "--preset", "cifar", "--output", "o.onnx")):
                done = self.pipit(command[0], "large.onnx", *command[1:], code=RUNTIME)
                self.assert_one_line_error(done, "large.onnx", "at most 2147483647", "external data")

    def external(self, **entries):
        """A product with a matrix of 4 x 2 in w.bin."""
        weights = (field(1, 4) + field(1, 2) + field(2, FLOAT) + field(8, "w") + field(14, 1)
                   + b"".join(field(13, field(1, key) + field(2, str(value))) for key, value in entries.items()))
        return self.write("w.onnx", model((1, 4), [node("MatMul", ["x", "w"], "y")], [weights]))

    def test_external_data_beyond_2_gb(self):
        self.sparse("w.bin", 5 * 2**30)
        self.external(location="w.bin", offset=5 * 2**30 - 32, length=32)
        self.assertIn("MatMul", self.pipit("inspect", "w.onnx", code=OK).stdout)
        for offset, length in ((5 * 2**30 - 31, 32), (2**63, 32), (0, 2**62)):
            self.external(location="w.bin", offset=offset, length=length)
            self.assert_one_line_error(self.pipit("inspect", "w.onnx", code=RUNTIME), "w.onnx", "'w'", "w.bin")


if __name__ == "__main__":
    main()
