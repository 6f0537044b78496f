"""Completion in bash and in zsh themselves."""

import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import subprocess
import time

from command import PIPIT, CommandTest, main


class Completion(CommandTest):
    def setUp(self):
        super().setUp()
        for shell in ("bash", "zsh"):
            (self.folder / f"pipit.{shell}").write_text(self.pipit("help", "--format", shell).stdout)
        self.work = self.folder / "work"
        self.work.mkdir()
        for name in ("model.onnx", "plan one.json"):
            (self.work / name).touch()
        (self.work / "photos").mkdir()


class Bash(Completion):
    def complete(self, *words):
        """What bash offers for the last of the words that follow `pipit`."""
        script = (f"source {shlex.quote(str(self.folder / 'pipit.bash'))}; COMP_WORDS=(pipit {shlex.join(words)}); "
                  'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); set -u; _pipit pipit; printf "%s\\n" ${COMPREPLY[@]+"${COMPREPLY[@]}"}')
        done = subprocess.run([shutil.which("bash"), "--norc", "-c", script], cwd=self.work, capture_output=True, text=True,
                              check=True)
        self.assertEqual(done.stderr, "")
        return done.stdout.splitlines() if done.stdout != "\n" else []

    def test_commands(self):
        self.assertEqual(self.complete("ev"), ["evaluate"])
        self.assertIn("doctor", self.complete(""))
        self.assertEqual(self.complete("--v"), ["--version"])
        self.assertEqual(self.complete("sweep", ""), ["conv", "sparsity"])
        self.assertEqual(self.complete("help", "--format", "ba"), ["bash"])

    def test_options_are_those_of_the_command(self):
        self.assertEqual(self.complete("evaluate", "--ag"), ["--against"])
        self.assertEqual(self.complete("prune", "--dev"), [])
        self.assertEqual(self.complete("sweep", "conv", "--sa"), ["--sample", "--save-svg"])
        for name in ("classify", "prune", "models"):
            declared = [option["name"] for option in self.json("help", name)["options"] if not option["operand"]]
            self.assertEqual(sorted(self.complete(name, "--")), sorted(["--help", *declared]))

    def test_values(self):
        self.assertEqual(self.complete("evaluate", "--precision", "int"), ["int8", "int8-dynamic"])
        self.assertEqual(self.complete("evaluate", "--precision", "=", "w"), ["w8", "w4"])
        self.assertEqual(self.complete("evaluate", "--device", "="), ["cpu", "cuda"])
        self.assertEqual(self.complete("prune", "--precision", ""), ["fp32", "int8"])
        self.assertEqual(self.complete("bench", "--precision", "fp32,fp"), ["fp32,fp32", "fp32,fp16"])
        self.assertEqual(self.complete("profile", "--batch", ""), [])
        self.assertIn("im2col_gemm", self.complete("inspect", "--kernel", "im"))
        self.assertIn("no-im2col_gemm", self.complete("inspect", "--kernel", "no-im"))
        self.assertIn("winograd", self.complete("inspect", "--kernel", ""))
        self.assertIn("auto", self.complete("sweep", "conv", "--backend", ""))
        self.assertEqual(self.complete("evaluate", "--against", "fp"), ["fp32", "fp16"])

    def test_operands(self):
        self.assertEqual(self.complete("inspect", "res"), ["resnet20-cifar10", "resnet18", "resnet50"])
        self.assertEqual(self.complete("inspect", "mo"), ["model.onnx"])
        # The value of an option is no operand.
        self.assertEqual(self.complete("evaluate", "--threads", "2", "mo"), ["model.onnx"])
        self.assertEqual(self.complete("evaluate", "--json", "model.onnx", ""), ["photos"])
        self.assertEqual(self.complete("evaluate", "--threads", "=", "2", "model.onnx", ""), ["photos"])
        self.assertEqual(self.complete("bench", "a.onnx", "b.onnx", "resnet1"), ["resnet18"])
        self.assertEqual(self.complete("evaluate", "--plan", "plan"), ["plan one.json"])
        self.assertEqual(self.complete("fetch", "efficientnet-lite1"), ["efficientnet-lite1"])

    def test_as_bash_itself_calls_it(self):
        script = f"source {shlex.quote(str(self.folder / 'pipit.bash'))}; complete -p pipit"
        done = subprocess.run([shutil.which("bash"), "--norc", "-c", script], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "complete -F _pipit pipit\n")


class Zsh(Completion):
    """A terminal in which someone types, and presses Tab."""

    def setUp(self):
        zsh = shutil.which("zsh")
        if zsh is None:
            self.skipTest("zsh is missing")
        super().setUp()
        functions = self.folder / "functions"
        functions.mkdir()
        (self.folder / "pipit.zsh").rename(functions / "_pipit")
        command = pathlib.Path(self.folder / "bin")
        command.mkdir()
        (command / "pipit").symlink_to(PIPIT)
        child, self.terminal = pty.fork()
        if child == 0:
            os.chdir(self.work)
            os.environ.update(HOME=str(self.folder), TERM="dumb", PS1="> ", PATH=f"{command}:{os.environ['PATH']}")
            os.execv(zsh, [zsh, "-f", "-i"])
        self.addCleanup(os.waitpid, child, 0)
        self.addCleanup(os.close, self.terminal)
        for line in (f"fpath=({shlex.quote(str(functions))} $fpath); autoload -Uz compinit; compinit -u -D",
                     "unsetopt prompt_sp beep; setopt auto_list; LISTMAX=0; zstyle ':completion:*' list-prompt ''",
                     "bindkey '^I' complete-word; stty cols 200; echo rea''dy"):
            os.write(self.terminal, line.encode() + b"\r")
        self.read_until("ready")

    def read_until(self, *words):
        """What arrives until all words have, and a moment longer."""
        read, end = "", time.monotonic() + 240
        while time.monotonic() < end:
            if not select.select([self.terminal], [], [], 0.3)[0]:
                if all(word in read for word in words):
                    return read
                continue
            read += os.read(self.terminal, 65536).decode(errors="replace")
        self.fail(f"not all of {words} in {read!r}")

    def expect(self, typed, *words):
        os.write(self.terminal, f"\x15pipit {typed}\t".encode())  # ^U: an empty line first
        shown = self.read_until(*words)
        os.write(self.terminal, b"\x15")
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)

    def test_commands_options_values_and_operands(self):
        self.expect("ev", "evaluate ")
        self.expect("sweep sp", "sparsity ")
        self.expect("evaluate --ag", "--against=")
        self.expect("evaluate --device cu", "cuda ")
        self.expect("evaluate --device=cu", "--device=cuda")
        self.expect("evaluate --precision int8-", "int8-dynamic ")
        self.expect("bench --precision fp32,int8-", "fp32,int8-dynamic")
        self.expect("inspect --kernel im2col_g", "im2col_gemm ")
        self.expect("inspect resnet2", "resnet20-cifar10 ")
        self.expect("inspect mod", "model.onnx ")
        self.expect("evaluate model.onnx ph", "photos/")
        self.expect("help --format b", "bash ")
        shown = self.expect("sweep ", "conv", "sparsity", "Time convolutions over a grid of sizes")
        self.assertNotIn("_arguments", shown)
        self.assertNotIn("--device", self.expect("prune --d", "--dim"))


if __name__ == "__main__":
    main()
