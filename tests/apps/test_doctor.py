"""pipit doctor: what it finds, in environments of several kinds."""

import json
import os
import subprocess

from command import OK, PIPIT, RUNTIME, CommandTest, main

NAMES = ["pipit", "system", "CPU", "instruction sets", "caches", "memory", "clock", "load", "GPU"]


class Doctor(CommandTest):
    def doctor(self, **environment):
        done = subprocess.run([PIPIT, "doctor", "--json"], cwd=self.folder, env={**os.environ, **environment},
                              capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual((done.returncode, done.stderr), (OK, ""))
        return {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}

    def test_finds(self):
        findings = self.doctor()
        self.assertEqual(list(findings)[:len(NAMES)], NAMES)
        self.assertIn("images", findings)
        self.assertIn("tuning cache", findings)
        usable = len(os.sched_getaffinity(0))
        self.assertRegex(findings["CPU"]["value"], r", \d+ of \d+ usable")
        version = self.pipit("--version").stdout
        self.assertIn(findings["pipit"]["value"], version)
        self.assertLessEqual(int(findings["CPU"]["value"].split(" of ")[0].split()[-1]), usable)
        text = self.pipit("doctor").stdout
        for name, finding in findings.items():
            if name not in ("memory", "load"):
                self.assertIn(f"{name} ", text)
                self.assertIn(finding["value"], text)

    def test_instruction_sets(self):
        self.assertRegex(self.doctor(PIPIT_ISA="")["instruction sets"]["value"], r"\Abaseline.*; \w+ is used")
        forced = self.doctor(PIPIT_ISA="baseline")["instruction sets"]
        self.assertIn("; baseline is used", forced["value"])
        self.assertIn("PIPIT_ISA=baseline", forced["advice"])

    def test_affinity(self):
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("one CPU")
        done = subprocess.run([PIPIT, "doctor", "--json"], capture_output=True, text=True, timeout=300, check=True,
                              preexec_fn=lambda: os.sched_setaffinity(0, cpus[:1]))
        cpu = json.loads(done.stdout)["findings"][2]
        self.assertRegex(cpu["value"], r", 1 of \d+ usable")

    def test_threads_of_the_environment(self):
        def threads(**environment):
            done = subprocess.run([PIPIT, "inspect", "resnet20-cifar10", "--json"], capture_output=True, text=True,
                                  timeout=300, check=False, env={**os.environ, **environment})
            return json.loads(done.stdout)["threads"] if done.returncode == OK else done

        self.assertEqual(threads(PIPIT_NUM_THREADS="1"), 1)
        self.assertEqual(threads(PIPIT_NUM_THREADS="1000"), threads(PIPIT_NUM_THREADS=""))
        wrong = threads(PIPIT_NUM_THREADS="all")
        self.assertEqual(wrong.returncode, RUNTIME)
        self.assertIn("PIPIT_NUM_THREADS is 'all'; expected 1 to 1024", wrong.stderr)

    def test_cache_folder_of_the_environment(self):
        cache = self.doctor(PIPIT_CACHE_DIR=str(self.folder), XDG_CACHE_HOME="/elsewhere")["tuning cache"]
        self.assertTrue(cache["value"].startswith(f"{self.folder}/tuning.json"), cache)

    def test_tuning_cache(self):
        cache = self.folder / "pipit" / "tuning.json"
        self.assertIn("not there yet", self.doctor(XDG_CACHE_HOME=str(self.folder))["tuning cache"]["value"])
        self.write("pipit/tuning.json", '{"format": "pipit tuning cache 3", "devices": {}}')
        self.assertEqual(self.doctor(XDG_CACHE_HOME=str(self.folder))["tuning cache"],
                         {"name": "tuning cache", "value": f"{cache}, 0 layers", "advice": None})
        self.write("pipit/tuning.json", "{")
        broken = self.doctor(XDG_CACHE_HOME=str(self.folder))["tuning cache"]
        self.assertIn(str(cache), broken["value"])
        self.assertIn("delete it", broken["advice"])


if __name__ == "__main__":
    main()
