"""What is made of the command's declarations: --help, manual pages, the tables of docs/cli.md."""

import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from command import NESTED_SUBCOMMANDS, OTHER_SUBCOMMANDS, RUNTIME, SUBCOMMANDS, USAGE, CommandTest, main

CLI = pathlib.Path(__file__).parents[2] / "docs/cli.md"
BEGIN, END = "<!-- pipit help --format markdown -->\n", "<!-- end -->\n"


def all_commands(declared):
    for command in declared["commands"]:
        yield command
        yield from all_commands(command)


class Help(CommandTest):
    def setUp(self):
        super().setUp()
        self.declared = self.json("help")
        self.commands = {command["name"]: command for command in all_commands(self.declared)}

    def test_every_command_is_declared(self):
        self.assertEqual(set(self.commands), {*SUBCOMMANDS, *OTHER_SUBCOMMANDS, *NESTED_SUBCOMMANDS, "sweep conv",
                                              "sweep sparsity"})
        self.assertEqual(self.json("help", "sweep", "conv")["name"], "sweep conv")
        for name, command in self.commands.items():
            self.assertTrue(command["examples"], name)
            for example in command["examples"]:
                self.assertIn("pipit ", example)

    def test_what_values_are(self):
        kinds = {"COMMAND", "FILE", "FOLDER", "IMAGE", "IMAGES", "KERNEL", "LAYER", "MODEL", "N", "NAME=1x3x224x224",
                 "NAME", "NAME=FILE", "NAME=PRECISION", "NAME=VALUE", "N.N.N", "no-KERNEL"}
        for command in self.commands.values():
            for option in command["options"]:
                value = option["value"].removesuffix(",...")
                for kind in value.split("|") if value else ():
                    self.assertTrue(kind in kinds or re.fullmatch(r"[a-z0-9,-]+", kind), (command["name"], option))
                self.assertTrue(option["text"], (command["name"], option))

    def test_words_that_are_declared_are_taken_and_others_refused(self):
        for name, command in self.commands.items():
            for option in command["options"]:
                words = [word for word in option["value"].removesuffix(",...").split("|") if word.islower()]
                if option["operand"] or "|" not in option["value"] or "MODEL" in option["value"]:
                    continue
                with self.subTest((name, option["name"])):
                    refused = self.pipit(*name.split(), option["name"], "nonsense", code=USAGE)
                    self.assert_one_line_error(refused, option["name"], "nonsense", *words)

    def test_text_is_that_of_the_option(self):
        for name in ("", "evaluate", "sweep", "sweep conv"):
            self.assertEqual(self.pipit("help", *name.split()).stdout, self.pipit(*name.split(), "--help").stdout)
        for line in self.pipit("help", "prune").stdout.splitlines():
            self.assertLessEqual(len(line), 110, line)

    def test_options_that_a_command_does_not_take(self):
        for arguments, words in ((("prune", "m", "i", "--device", "cuda"), ("unknown option --device;", "pipit prune --help")),
                                 (("annotate", "m", "--threads", "2"), ("unknown option --threads",)),
                                 (("inspect", "m", "--whi"), ("unknown option --whi", "--why")),
                                 (("sweep", "conv", "--layer", "x"), ("unknown option --layer", "sweep conv --help")),
                                 (("diff", "m", "i", "j"), ("unexpected argument 'j'",))):
            self.assert_one_line_error(self.pipit(*arguments, code=USAGE), *words)

    def test_usage(self):
        self.assert_one_line_error(self.pipit("help", "evaluat", code=USAGE), "'evaluat'", "'evaluate'")
        self.assert_one_line_error(self.pipit("help", "sweep", "conv", "more", code=USAGE), "'more'")
        self.assert_one_line_error(self.pipit("help", "tune", "--format", "bash", code=USAGE), "--format")
        self.assert_one_line_error(self.pipit("help", "--output", ".", code=USAGE), "--output")
        self.assert_one_line_error(self.pipit("help", "--format", "man", "--output", "nowhere", code=USAGE), "nowhere")


class Documents(CommandTest):
    def test_tables_of_cli_md_are_those_of_the_command(self):
        text = CLI.read_text(encoding="utf-8")
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        self.assertEqual(text[begin:end], self.pipit("help", "--format", "markdown").stdout,
                         "docs/cli.md is not current: python3 tests/apps/test_help.py --write")

    def test_cli_md_begins_with_every_command(self):
        listed = re.findall(r"(?m)^\| `pipit ([^`]*)` \|", CLI.read_text(encoding="utf-8"))
        usages = [command["usage"].removeprefix("pipit ").replace("[OPTIONS] ", "").replace(" [OPTIONS]", "")
                  for command in all_commands(self.json("help")) if not command["commands"]]
        plain = [re.sub(r"[][]", "", usage) for usage in usages]
        self.assertEqual(sorted(re.sub(r"[][]", "", text) for text in listed), sorted(plain))


class ManualPages(CommandTest):
    def setUp(self):
        super().setUp()
        (self.folder / "man1").mkdir()
        self.pipit("help", "--format", "man", "--output", "man1")
        self.pages = {page.stem: page.read_text(encoding="utf-8") for page in (self.folder / "man1").iterdir()}

    def test_every_command_has_a_page_with_all_of_its_options(self):
        declared = self.json("help")
        commands = {"pipit": declared} | {"pipit-" + command["name"].replace(" ", "-"): command
                                          for command in all_commands(declared)}
        self.assertEqual(set(self.pages), set(commands))
        for name, command in commands.items():
            page = self.pages[name].replace("\\-", "-").replace("\\e", "\\")
            self.assertEqual(self.pipit("help", *command["name"].split(), "--format", "man").stdout, self.pages[name])
            for option in command["options"]:
                self.assertIn(f"\\fB{option['name']}\\fR", page)
                self.assertIn(option["text"], page)
            for example in command["examples"]:
                self.assertIn(example, page)

    def test_they_are_typeset_without_a_warning(self):
        groff = shutil.which("groff")
        if groff is None:
            self.skipTest("groff is missing")
        for name in self.pages:
            done = subprocess.run([groff, "-man", "-Tutf8", "-Kutf8", "-ww", "-rLL=100n", f"man1/{name}.1"], cwd=self.folder,
                                  capture_output=True, text=True, check=True)
            self.assertEqual(done.stderr, "", name)
            self.assertIn("EXIT STATUS", re.sub(r".\x08", "", done.stdout))

    def test_a_folder_that_cannot_be_written(self):
        (self.folder / "man1/pipit.1").unlink()
        (self.folder / "man1/pipit.1").mkdir()
        self.assert_one_line_error(self.pipit("help", "--format", "man", "--output", "man1", code=RUNTIME), "pipit.1")


def write():
    class Writer(CommandTest):
        def runTest(self):
            text = CLI.read_text(encoding="utf-8")
            tables = self.pipit("help", "--format", "markdown").stdout
            begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
            CLI.write_text(text[:begin] + tables + text[end:], encoding="utf-8")

    unittest.TextTestRunner().run(Writer())


if __name__ == "__main__":
    write() if sys.argv[1:] == ["--write"] else main()
