"""Files of measurements that are read again: what sweeps write against its schema, and every field of what
`sweep --resume`, `compare` and `profile --sweep` read, wrong in every way."""

import copy
import json
import unittest

from command import MODEL, OK, RUNTIME, CommandTest, main
from schemas import jsonschema, read_schema, strict, validator

CONV = ("sweep", "conv", "--n", "1", "--in", "4", "--out", "8", "--size", "8", "--kernel", "1", "--stride", "1", "--seconds", "0")
SPARSITY = ("sweep", "sparsity", "--layer", "1x16x9x9:24x3x3", "--keep-ratio", "0.5", "--mode", "k", "--seconds", "0")
SWEEPS = (("sweep-conv", CONV), ("sweep-sparsity", SPARSITY))
GONE = object()
# Text is right where text is expected.
WRONG = (GONE, None, {}, "-1", -1, 1e300, 2**64 - 1, [5, 1], [None])
FEW_WRONG = (GONE, {}, -1, 1e300)
# What is for people, or made again of the rest.
NOT_READ = {"macs", "share_of_limit", "combinations", "sample", "summaries", "floor", "importance", "group", "panel", "block", "refit"}


def fields(value, path=()):
    """The paths of all members and elements, of lists only the first."""
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = list(enumerate(value))[:1]
    else:
        return
    for key, entry in entries:
        yield path + (key,)
        yield from fields(entry, path + (key,))


def changed(document, path, value):
    document = copy.deepcopy(document)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    if value is GONE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return document


class FileTest(CommandTest):
    def sweep(self, arguments):
        """The document, and the lines of --results."""
        (self.folder / "rows.jsonl").unlink(missing_ok=True)
        document = self.json(*arguments, "--results", "rows.jsonl")
        return document, [json.loads(line) for line in (self.folder / "rows.jsonl").read_text().splitlines()]

    def refused(self, done, *words):
        self.assert_one_line_error(done, *words)
        for text in ("json.exception", "type_error", "out_of_range", "922337203685477580"):
            self.assertNotIn(text, done.stderr)

    def lines(self, lines):
        self.write("rows.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


@unittest.skipIf(jsonschema is None, "Python has no jsonschema")
class SweepSchemas(FileTest):
    def test_what_is_written(self):
        self.keep_ceilings(100, 50)
        conv = ("sweep", "conv", "--n", "1,2", "--in", "8", "--out", "8", "--size", "8,12", "--kernel", "1,3", "--stride", "1", "--seconds",
                "0", "--precision", "fp16,int8", "--backend", "auto,depthwise", "--base", "fp32,fp16", "--floor")
        sparsity = ("sweep", "sparsity", "--layer", "1x16x9x9:24x3x3", "--keep-ratio", "1,0.5", "--seconds", "0", "--precision", "fp32,int8")
        for name, arguments in (("sweep-conv", conv), ("sweep-sparsity", sparsity)):
            schema = read_schema(name)
            document, (settings, *rows) = self.sweep(arguments)
            validator(strict(schema)).validate(document)
            validator(strict(schema), "settings").validate(settings)
            self.assertEqual(len(rows), len(document["rows"]))
            for row in rows:
                validator(strict(schema), "row").validate(row)
            self.assertIn("ms", {key for row in rows for key in row})
            if name == "sweep-conv":
                self.assertIn("problem", {key for row in rows for key in row})
                self.assertIn("floor_ms", {key for row in rows for key in row})

    def test_what_a_schema_refuses_is_refused(self):
        """Of a row each field, wrong in each way that the schema refuses, in what --resume reads."""
        for name, arguments in SWEEPS:
            check = validator(read_schema(name), "row")
            _, (settings, *rows) = self.sweep(arguments)
            row = rows[0]
            check.validate(row)
            refused = 0
            for path in fields(row):
                if path[0] in NOT_READ and path[0] in ("macs", "share_of_limit"):
                    continue
                for value in (GONE, -1, "-1", None, 1e300, [-1]):
                    wrong = changed(row, path, value)
                    if check.is_valid(wrong):
                        continue
                    with self.subTest(name, path=path, value=value):
                        self.lines([settings, wrong])
                        done = self.pipit(*arguments, "--results", "rows.jsonl", "--resume", code=RUNTIME)
                        key = next(key for key in reversed(path) if isinstance(key, str))
                        self.refused(done, "rows.jsonl: line 2: no row of a sweep: ", f'"{key}"')
                        refused += 1
            self.assertGreater(refused, 60, name)


class EditedFiles(FileTest):
    def test_intervals_and_medians(self):
        for name, arguments in SWEEPS:
            document, (settings, row) = self.sweep(arguments)
            holder, where = (row["against"][0], ("against", 0)) if "against" in row else (row, ())
            low, high = row["ms_quartiles"]
            least, most = holder["speedup_interval95"]
            for path, value, words in ((("ms_quartiles",), [high + 1, low], ('"ms_quartiles" is [',)),
                                       (("ms",), high + 1, (f'"ms" is {high + 1}, outside of "ms_quartiles"',)),
                                       ((*where, "speedup_interval95"), [most + 1, least], ('"speedup_interval95" is [',)),
                                       ((*where, "speedup"), most + 1, ('"speedup" is', 'outside of "speedup_interval95"')),
                                       (("samples_ms",), [], ('"samples_ms" is []',)), (("samples_ms", 0), 0, ('"samples_ms" has 0',))):
                wrong = changed(row, path, value)
                with self.subTest(name, path=path):
                    self.lines([settings, wrong])
                    done = self.pipit(*arguments, "--results", "rows.jsonl", "--resume", code=RUNTIME)
                    self.refused(done, "rows.jsonl: line 2: ", *words)
                    done = self.pipit("compare", "rows.jsonl", "rows.jsonl", code=RUNTIME)
                    self.refused(done, "rows.jsonl: line 2: ", *words)
                    self.write("sweep.json", json.dumps({**document, "rows": [wrong]}))
                    for command in (("compare", "sweep.json", "sweep.json"),
                                    ("profile", MODEL, "--runs", "1", "--sweep", "sweep.json", "--output", "r.html")):
                        self.refused(self.pipit(*command, code=RUNTIME), 'sweep.json: "rows", number 1: ', *words)

    def test_a_row_twice(self):
        for name, arguments in SWEEPS:
            with self.subTest(name):
                document, (settings, row) = self.sweep(arguments)
                self.lines([settings, row, row])
                words = ("rows.jsonl: line 3: ", "there is a row of ", "already")
                self.refused(self.pipit(*arguments, "--results", "rows.jsonl", "--resume", code=RUNTIME), *words)
                self.refused(self.pipit("compare", "rows.jsonl", "rows.jsonl", code=RUNTIME), *words)
                self.write("sweep.json", json.dumps({**document, "rows": [row, row]}))
                for command in (("compare", "sweep.json", "sweep.json"),
                                ("profile", MODEL, "--runs", "1", "--sweep", "sweep.json", "--output", "r.html")):
                    self.refused(self.pipit(*command, code=RUNTIME), 'sweep.json: "rows", number 2: there is a row of ')
                # From another process, the same row counts as a repetition.
                self.lines([settings, row, settings, row])
                self.assertEqual(self.json("compare", "rows.jsonl", "rows.jsonl", "--quiet")["comparisons"][0]["repeats"], 2)
                self.pipit(*arguments, "--output", "s.csv")
                table = (self.folder / "s.csv").read_text().splitlines()
                self.write("s.csv", "\n".join([*table, table[1]]) + "\n")
                self.refused(self.pipit("compare", "s.csv", "s.csv", code=RUNTIME), "s.csv: row 3: there is a row of ")
        self.write("b.json", self.pipit("bench", MODEL, "--runs", "3", "--quiet", "--json").stdout)
        document = json.loads((self.folder / "b.json").read_text())
        document["results"] *= 2
        self.write("b.json", json.dumps(document))
        self.refused(self.pipit("compare", "b.json", "b.json", code=RUNTIME), 'b.json: "results", number 2: ', "is there twice")

    def check_all(self, document, read, *command, values=WRONG):
        """Every field with every wrong value: read all the same, or refused by the name of the file and the field."""
        refused = set()
        for path in fields(document):
            key = next(key for key in reversed(path) if isinstance(key, str))
            for value in values:
                if path[-1] == 0 and value is GONE:
                    continue
                with self.subTest(path=path, value=value):
                    self.write("edited.json", json.dumps(changed(document, path, value)))
                    done = self.pipit(*command, "--quiet", code=(OK, RUNTIME))
                    if done.returncode == OK:
                        continue
                    # What lacks something is told by that, another command's file by its name.
                    self.refused(done, "edited.json", *((key,) if value not in (GONE, {}) and key in read else ()))
                    refused.add(key)
        self.assertLessEqual(read, refused)

    def test_every_field_of_what_compare_reads(self):
        bench = self.json("bench", MODEL, "--runs", "2", "--quiet")
        profile = self.json("profile", MODEL, "--runs", "2")
        profile["layers"] = profile["layers"][:1]
        read = {"schema", "model", "device", "precision", "machine", "batch", "threads", "samples_ms"}
        row, = bench["results"]
        self.assertLessEqual({"command", "schema", "machine"}, set(bench))
        bench["results"] = [{key: row[key] for key in row if key in read or key == "runs"}]
        for document, keys in ((bench, read | {"results"}), ({key: profile[key] for key in ("command", *read, "layers")},
                                                            read | {"layers", "name", "type", "nodes"})):
            self.check_all(document, keys, "compare", "edited.json", "edited.json")

    def test_every_field_of_sweeps(self):
        for name, arguments in SWEEPS:
            document, _ = self.sweep(arguments)
            for key in NOT_READ & set(document):
                del document[key]
            row = set(document["rows"][0]) - NOT_READ
            with self.subTest(name):
                self.check_all(document, row | {"rows", "device"}, "compare", "edited.json", "edited.json")
            with self.subTest(name, by="profile"):
                self.check_all(document, row | {"rows", "threads"}, "profile", MODEL, "--runs", "1", "--warmup", "0", "--sweep",
                               "edited.json", "--output", "r.html", values=FEW_WRONG)


if __name__ == "__main__":
    main()
