"""pipit ceilings: what is measured, kept, and refused."""

import datetime
import json
import os
import re
import subprocess

from command import MODEL, OK, PIPIT, RUNTIME, CommandTest, main


class Ceilings(CommandTest):
    first = None  # what a measurement of one thread kept: measuring takes seconds

    def setUp(self):
        super().setUp()
        self.file = self.folder / "pipit" / "ceilings.json"

    def measure_once(self):
        """Puts the file of a measurement of one thread into place; returns its ceilings."""
        if Ceilings.first is None:
            self.measured()
            Ceilings.first = self.file.read_text()
            self.file.unlink()
        self.write("pipit/ceilings.json", Ceilings.first)
        return next(iter(json.loads(Ceilings.first)["machines"].values()))

    def run_here(self, *arguments, code=OK, **environment):
        """In an empty cache folder of its own."""
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.folder), **environment}
        done = subprocess.run([PIPIT, *arguments], cwd=self.folder, env=environment, capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def measured(self, **environment):
        return json.loads(self.run_here("ceilings", "--threads", "1", "--json", **environment).stdout)

    def floor_note(self, **environment):
        """What profile --floor says about the ceilings that it uses."""
        return self.run_here("profile", MODEL, "--runs", "2", "--threads", "1", "--floor", **environment).stderr

    def check_rate(self, rate):
        order = [rate["p10"], rate["median"], rate["best"]]
        self.assertEqual(order, sorted(order))
        self.assertGreater(order[0], 0)
        self.assertTrue(9 <= rate["rounds"] <= 50, rate)

    def test_measures_and_keeps(self):
        self.write("pipit/ceilings.json", json.dumps({"form": "pipit ceilings 1", "machines": {"another": {"some": "thing"}}}))
        document = self.measured()
        ceilings = document["ceilings"]
        self.assertEqual((document["command"], document["file"], document["days"]), ("ceilings", str(self.file), 0))
        self.assertEqual((ceilings["device"], ceilings["threads"]), ("cpu", 1))
        self.assertIn(", 1 threads, ", ceilings["machine"])
        units = [(a["products"], a["unit"]) for a in ceilings["arithmetic"]]
        self.assertEqual(len(units), len(set(units)))
        self.assertIn(("fp32", "baseline"), units)
        for entry in ceilings["arithmetic"]:
            self.check_rate(entry["gflops"])
            self.check_rate(entry["tile_gflops"])
            self.assertGreaterEqual(entry["gflops"]["best"], entry["tile_gflops"]["best"])
        memory = ceilings["memory"]
        self.assertEqual(memory[-1]["name"], "memory")
        self.assertIsNone(memory[-1]["bytes"])
        sizes = [level["bytes"] for level in memory[:-1]]
        self.assertEqual(sizes, sorted(sizes))
        for level in memory:
            for key in ("read_gb_per_s", "write_gb_per_s", "copy_gb_per_s", "add_gb_per_s"):
                self.check_rate(level[key])
        for nearer, further in zip(memory, memory[1:]):
            self.assertGreaterEqual(nearer["read_gb_per_s"]["best"], further["read_gb_per_s"]["best"])
        kept = json.loads(self.file.read_text())
        self.assertEqual(list(kept["machines"]), ["another", ceilings["machine"]])
        self.assertEqual(kept["machines"]["another"], {"some": "thing"})  # left alone
        del kept["machines"]["another"]
        Ceilings.first = json.dumps(kept)

        again = json.loads(self.run_here("ceilings", "--threads", "1", "--kept", "--json").stdout)
        self.assertLess(again["days"], 1)
        self.assertEqual(again["ceilings"], ceilings)
        text = self.run_here("ceilings", "--threads", "1", "--kept").stdout
        for entry in ceilings["arithmetic"]:
            self.assertRegex(text, rf"(?m)^{entry['products']} +{entry['unit']} +[\d.]")
        for level in memory:
            self.assertRegex(text, rf"(?m)^{level['name']} ")
        self.assertIn(f"kept in {self.file} for 30 days", text)

    def test_a_place_that_cannot_be_written_is_found_out_first(self):
        done = self.run_here("ceilings", "--threads", "1", code=RUNTIME, XDG_CACHE_HOME="/proc")
        self.assertEqual(done.stdout, "")
        self.assertIn("XDG_CACHE_HOME", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_profile_uses_what_is_kept(self):
        self.assertRegex(self.floor_note(XDG_CACHE_HOME="", HOME="", PIPIT_ISA="baseline"),
                         r"no folder to keep ceilings in [^\n]*; measuring them [^\n]* 'pipit ceilings' keeps them")
        ceilings = self.measure_once()
        self.assertNotIn("measuring them", self.floor_note())
        result = json.loads(self.run_here("profile", MODEL, "--runs", "2", "--threads", "1", "--floor", "--json").stdout)
        self.assertEqual(result["ceilings"], ceilings)

    def change(self, **changes):
        """Rewrites members of the ceilings that are kept."""
        kept = json.loads(self.file.read_text())
        for ceilings in kept["machines"].values():
            ceilings.update(changes)
        self.file.write_text(json.dumps(kept))

    def test_what_does_not_fit_is_not_used(self):
        refused = self.run_here("ceilings", "--kept", "--threads", "1", code=RUNTIME)
        self.assertRegex(refused.stderr, r"no ceilings of [^\n]* are kept; 'pipit ceilings' measures them")
        ceilings = self.measure_once()
        machine = ceilings["machine"]
        self.assertIn(f"holds ceilings of {machine}, not of ",
                      self.run_here("ceilings", "--kept", "--threads", "2", code=RUNTIME).stderr)
        if ceilings["arithmetic"][-1]["unit"] != "baseline":
            self.assertIn("1 threads, baseline",
                          self.run_here("ceilings", "--kept", "--threads", "1", code=RUNTIME, PIPIT_ISA="baseline").stderr)
        now = datetime.datetime.now(datetime.timezone.utc)
        for days, words in ((-40, r"measured 40 days ago, more than 30"), (3, "has not come yet")):
            self.change(measured_at=(now + datetime.timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ"))
            self.assertRegex(self.run_here("ceilings", "--kept", "--threads", "1", code=RUNTIME).stderr, words)
        for content in ("{", "[]", '{"form": "pipit ceilings 0", "machines": {}}',
                        '{"form": "pipit ceilings 1", "machines": []}',
                        json.dumps({"form": "pipit ceilings 1", "machines": {machine: {"device": "cpu"}}})):
            self.file.write_text(content)
            stderr = self.run_here("ceilings", "--kept", "--threads", "1", code=RUNTIME).stderr
            self.assertIn("not a file of ceilings: ", stderr)
            self.assertEqual(stderr.count("\n"), 1)
        self.file.unlink()
        self.file.mkdir()
        stderr = self.run_here("ceilings", "--kept", "--threads", "1", code=RUNTIME).stderr
        self.assertEqual(stderr.count(str(self.file)), 1, stderr)

    def test_rates_must_be_positive(self):
        arithmetic = self.measure_once()["arithmetic"]
        for rate in (0, -1, 1e400):
            arithmetic[0]["gflops"]["best"] = rate
            self.change(arithmetic=arithmetic)
            self.assertIn("not a file of ceilings", self.run_here("ceilings", "--kept", "--threads", "1", code=RUNTIME).stderr)

    def test_doctor(self):
        def finding():
            found = json.loads(self.run_here("doctor", "--json").stdout)["findings"]
            return next(f for f in found if f["name"] == "ceilings")

        self.assertIn("pipit ceilings", finding()["advice"])
        machine = re.search(r"no ceilings of (.*) are kept", finding()["value"])[1]
        self.write("pipit/ceilings.json", json.dumps({"form": "pipit ceilings 1", "machines": {machine: self.measure_once()}}))
        self.assertRegex(finding()["value"], re.escape(str(self.file)) + r", 0\.0 days old")
        self.assertIsNone(finding()["advice"])


if __name__ == "__main__":
    main()
