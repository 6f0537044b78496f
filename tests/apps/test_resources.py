"""What commands do with what they are given: no memory is left that nothing points to (LeakSanitizer alone, loaded
before the command's libraries), and where no thread can be started commands say so, or need none.
"""

import os
import pathlib
import resource
import shutil
import subprocess
import unittest
import unittest.mock

from command import MODEL, OK, PIPIT, RUNTIME, CommandTest, main

NOBODY = 54321  # a user without processes, whom limits hold where root is free of them


def leak_sanitizer():
    """The library of the compiler that has it; None where there is none, or it does not start here."""
    compiler = shutil.which("gcc")
    if not compiler or os.environ.get("PIPIT_SANITIZE"):
        return None
    library = pathlib.Path(subprocess.run([compiler, "-print-file-name=liblsan.so"], capture_output=True, text=True,
                                          check=True).stdout.strip())
    if not library.is_file():
        return None
    works = subprocess.run(["true"], env={**os.environ, "LD_PRELOAD": str(library)}, check=False, capture_output=True)
    return str(library) if works.returncode == 0 else None


class Resources(CommandTest):
    def setUp(self):
        super().setUp()
        for i, label in enumerate(("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")):
            self.write_bmp(f"images/{label}/0.bmp", (25 * i, 200 - 20 * i, 90))

    @unittest.skipUnless(leak_sanitizer(), "there is no LeakSanitizer of gcc's that starts")
    def test_nothing_leaks(self):
        self.write("damaged.jpg", b"\xff\xd8\xff\xe0 no more")
        with unittest.mock.patch.dict(os.environ, LD_PRELOAD=leak_sanitizer(), LSAN_OPTIONS="exitcode=99"):
            for code, *command in (
                    (OK, "inspect", MODEL, "--why"), (OK, "calibrate", MODEL, "images", "--quiet", "--output", "plan.json"),
                    (OK, "quantize", MODEL, "--plan", "plan.json", "--quiet", "--output", "int8.onnx"),
                    (OK, "classify", "int8.onnx", "images/cat/0.bmp", "--threads", "3"),
                    (RUNTIME, "classify", MODEL, "damaged.jpg"), (RUNTIME, "inspect", "plan.json"),
                    (OK, "evaluate", MODEL, "images"), (OK, "diff", MODEL, "images", "--plan", "plan.json", "--limit", "2"),
                    (OK, "prune", MODEL, "images", "--keep-ratio", "0.5", "--quiet", "--output", "pruned.onnx"),
                    (OK, "profile", MODEL, "--runs", "2", "--output", "page.html"), (OK, "--help"),
                    # A GPU's driver crashes below a sanitizer that is loaded before it.
                    *(() if self.has_gpu() else ((OK, "doctor"),))):
                with self.subTest(command=command):
                    self.assertNotIn("LeakSanitizer", self.pipit(*command, code=code, silent=False).stderr)

    @unittest.skipIf(os.environ.get("PIPIT_SANITIZE"), "sanitizers start threads of their own")
    def test_no_thread_can_be_started(self):
        own = shutil.copy(PIPIT, self.folder / "pipit")
        for path in (self.folder, *self.folder.rglob("*")):  # whatever the umask is
            path.chmod(0o755)

        def limit():
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))

        for threads, code in ((1, OK), (3, RUNTIME)):
            command = [own, "classify", MODEL, "images/cat/0.bmp", "--threads", str(threads)]
            try:
                done = subprocess.run(command, cwd=self.folder, preexec_fn=limit, capture_output=True, text=True, timeout=300,
                                      check=False)
            except PermissionError:
                self.skipTest("programs in the folder for temporary files cannot be run")
            self.assertEqual(done.returncode, code, done.stderr)
            if code == RUNTIME:
                self.assert_one_line_error(done, "could not start 3 threads", "--threads with a smaller number")


if __name__ == "__main__":
    main()
