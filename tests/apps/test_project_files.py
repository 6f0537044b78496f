"""Files that others read: the version, the issue forms, the workflow, the container, the examples."""

import json
import os
import pathlib
import re
import subprocess
import unittest

from command import PIPIT, main

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


class ProjectFiles(unittest.TestCase):
    def test_the_version_is_one(self):
        version = re.search(r"^project\(pipit VERSION (\d+\.\d+\.\d+) ", read("CMakeLists.txt"), re.M).group(1)
        said = subprocess.run([PIPIT, "--version"], capture_output=True, text=True, check=True).stdout
        self.assertEqual(said.split()[:2], ["pipit", version])
        self.assertIn(f"\nversion: {version}\n", read("CITATION.cff"))
        self.assertIn(f"## [{version}]", read("CHANGELOG.md"))
        self.assertIn(f'"{version}": major, minor and patch', read("pipit/version.h"))

    def test_the_workflow_and_the_container_call_what_there_is(self):
        workflow = read(".github/workflows/ci.yml")
        self.assertIn("- run: .ci/run\n", workflow)
        self.assertTrue(os.access(ROOT / ".ci/run", os.X_OK))
        self.assertNotIn("cache@", workflow)
        dockerfile = read("Dockerfile")
        stages = re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.M)
        container = json.loads(read(".devcontainer/devcontainer.json"))
        self.assertIn(container["build"]["target"], stages)
        self.assertEqual((ROOT / ".devcontainer" / container["build"]["dockerfile"]).resolve(), ROOT / "Dockerfile")
        for stage in re.findall(r"^COPY --from=(\S+) ", dockerfile, re.M):
            self.assertIn(stage, stages)
        for source in re.findall(r"^COPY ([^-.]\S*) ", dockerfile, re.M):
            self.assertTrue((ROOT / source).exists(), source)
        packages = re.search(r"build_packages=\(([^)]*)\)", read("cmake/setup.sh")).group(1).split()
        self.assertIn("g++", packages)
        self.assertIn('"${build_packages[@]}"', dockerfile)

    def test_issue_forms_ask_for_commands_that_exist(self):
        forms = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
        self.assertEqual([form.stem for form in forms], ["bug", "kernel_performance", "model_refused"])
        for form in forms:
            text = form.read_text(encoding="utf-8")
            for key in ("name", "description", "labels", "body"):
                self.assertRegex(text, rf"(?m)^{key}:")
            ids = re.findall(r"^    id: (\S+)$", text, re.M)
            self.assertEqual(len(ids), len(set(ids)))
            for command in re.findall(r"`pipit ([^`]*)`", text):
                options = re.findall(r"--\S+", command)
                name = command.split()[0]
                if not name.startswith("-"):
                    shown = subprocess.run([PIPIT, name, "--help"], capture_output=True, text=True, check=True).stdout
                    for option in options:
                        self.assertIn(option, shown)

    def test_every_example_is_built_run_and_listed(self):
        sources = [path for kind in ("cpp", "c") for path in (ROOT / "examples").glob(f"*.{kind}")]
        built = " ".join(re.findall(r"foreach\(example ([^)]*)\)", read("examples/CMakeLists.txt"))).split()
        self.assertEqual({path.stem for path in sources}, set(built))
        run = read("tests/package/run.sh")
        for path in sources:
            self.assertRegex(run, rf"(?m)^(.* )?example {path.stem} ")
            self.assertIn(f"]({path.name})", read("examples/README.md"))
            self.assertLess(len(path.read_text(encoding="utf-8").splitlines()), 80, path.name)


if __name__ == "__main__":
    main()
