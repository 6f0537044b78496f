"""The reports of `pipit sweep`, alone and as a part of that of `profile`, in a browser."""

import json
import re
import unittest

from command import MODEL, RUNTIME, UNSUPPORTED, USAGE, main
from report_page import BROWSER, BrowserTest, Report


@unittest.skipIf(BROWSER is None, "there is no Chromium")
class SweepReports(BrowserTest):
    def profile(self, *arguments):
        self.pipit("profile", MODEL, "--runs", "3", "--warmup", "1", *arguments)

    def test_sweep(self):
        self.pipit("sweep", "conv", "--n", "1", "--in", "3,8", "--out", "8", "--size", "9,16", "--kernel", "1,3", "--stride", "1",
                   "--precision", "int8,fp16", "--backend", "auto,depthwise", "--seconds", "0", "--output", "s.html", "--output", "s.json")
        rows = [row for row in json.loads((self.folder / "s.json").read_text())["rows"] if "problem" not in row]
        page = (self.folder / "s.html").read_text()
        self.assertNotIn("samples_ms", Report(page).scripts["data"])

        def table_after(script):
            self.write("acted.html", page.replace("\nbegin();\n", "\nbegin();\n" + script + "\n"))
            dom = self.browse(self.folder / "acted.html", "--dump-dom")
            self.assertNotRegex(re.sub(r"(?s)<script.*?</script>", "", dom), r"NaN|undefined|Infinity")
            return dom, re.findall(r'<tr class="swept"><th scope="row">(.*?)</th><td>(.*?)</td>.*?<td class="right">([\d.]+)</td>', dom)

        self.profile("--sweep", "s.json", "--output", "out.html")
        dom = self.browse(self.folder / "out.html", "--dump-dom")
        self.assertIn(f"<title>{MODEL} · pipit profile</title>", dom)
        self.assertEqual(len(re.findall('<tr class="swept">', dom)), len(rows))
        self.assertRegex(dom, r'<tr id="layer-0"')
        self.assert_one_line_error(self.pipit("profile", MODEL, "--sweep", "s.json", code=USAGE), "--sweep", ".html")
        self.profile("--output", "out.json")
        self.assert_one_line_error(
            self.pipit("profile", MODEL, "--sweep", "out.json", "--output", "p.html", code=RUNTIME), "out.json", "profile")
        self.write("s.csv", "device,threads\n")
        self.assert_one_line_error(
            self.pipit("profile", MODEL, "--sweep", "s.csv", "--output", "p.html", code=RUNTIME), "s.csv", "FILE.json")
        dom, table = table_after("")
        self.assertIn("<title>Convolutions · pipit sweep</title>", dom)
        self.assertRegex(dom, '<div id="profile" hidden')
        self.assertEqual(len(table), len(rows))
        speedups = [float(row[2]) for row in table]
        self.assertEqual(speedups, sorted(speedups, reverse=True))
        self.assertEqual(len(re.findall(r'<rect class="cell', dom)), 4)
        self.assertEqual(len(re.findall("<tr>", re.search(r'(?s)id="sweep-best".*?</table>', dom)[0])), 1 + 2 * 2)
        dom, table = table_after("[...document.querySelectorAll('#sweep-table thead button')].find((b) => b.textContent === 'Layer').click();"
                                 "byId('sweep-filter').value = 'fp16 9x9'; byId('sweep-filter').dispatchEvent(new Event('input'));"
                                 "byId('sweep-down').value = 'kernel'; byId('sweep-down').dispatchEvent(new Event('change'));")
        self.assertEqual({row[:2] for row in table}, {(f"1x{c}x9x9:8x{k}x{k}", "fp16") for c in (3, 8) for k in (1, 3)})
        self.assertRegex(dom, 'aria-label="Geometric means of speed-ups by image size and window"')
        self.assertGreater(self.brightness(self.folder / "s.html"), 200)
        self.assertLess(self.brightness(self.folder / "s.html", "--force-dark-mode"), 80)

    def test_sweep_of_pruned_layers(self):
        layers = ("1x16x9x9:24x3x3", "1x16x8x8:16x1x1")
        self.pipit("sweep", "sparsity", *(word for layer in layers for word in ("--layer", layer)), "--mode", "k,channel",
                   "--keep-ratio", "1,0.5,0.25", "--precision", "fp32,int8", "--seconds", "0", "--output", "s.html", "--output", "s.json")
        document = json.loads((self.folder / "s.json").read_text())
        page = (self.folder / "s.html").read_text()
        for row in document["rows"]:
            row.pop("samples_ms")
        self.assertEqual(json.loads(Report(page).scripts["data"])["sweep"], document)
        self.assertEqual(len(document["rows"]), 2 * 2 * (1 + 2 * 2))

        def seen_after(script):
            self.write("acted.html", page.replace("\nbegin();\n", "\nbegin();\n" + script + "\n"))
            dom = self.browse(self.folder / "acted.html", "--dump-dom")
            self.assertNotRegex(re.sub(r"(?s)<script.*?</script>", "", dom), r"NaN|undefined|Infinity")
            trade = re.search(r'(?s)<div id="sweep-trade".*?</svg>', dom)[0]
            return dom, trade, re.findall(r'<tr class="swept"><th scope="row">(.*?)</th><td>(.*?)</td><td>(.*?)</td>', dom)

        dom, trade, table = seen_after("")
        self.assertIn("<title>Pruned layers · pipit sweep</title>", dom)
        self.assertRegex(dom, '<section aria-labelledby="h-sweep-best" id="sweep-best-section" hidden')
        self.assertEqual(len(table), len(document["rows"]))
        # One layer and precision has two modes with two shares each; means over the layers are as many.
        self.assertEqual((len(re.findall("<circle", trade)), len(re.findall(r'<rect class="cell', dom))), (4, 4))
        self.assertIn(f'ways to prune {layers[0]}.', trade)
        self.assertRegex(dom, 'aria-label="Geometric means of speed-ups by share that is kept and what is removed"')
        change = "byId('%s').value = '%s'; byId('%s').dispatchEvent(new Event('%s'));"
        dom, trade, table = seen_after(change % ("sweep-layer", layers[1], "sweep-layer", "change")
                                       + change % ("sweep-across", "layer", "sweep-across", "change")
                                       + change % ("sweep-filter", "int8 channel", "sweep-filter", "input"))
        self.assertIn(f'ways to prune {layers[1]}.', trade)
        self.assertEqual(len(re.findall(r'<rect class="cell', dom)), 2 * 2)
        self.assertEqual(sorted(table), sorted((layer, "int8", "channel") for layer in layers for _ in range(2)))
        self.assertGreater(self.brightness(self.folder / "s.html"), 200)
        self.assertLess(self.brightness(self.folder / "s.html", "--force-dark-mode"), 80)
        self.profile("--sweep", "s.json", "--output", "out.html")
        dom = self.browse(self.folder / "out.html", "--dump-dom")
        self.assertIn('<h2 id="h-sweep">Sweep of pruned layers</h2>', dom)
        self.assertRegex(dom, r'<tr id="layer-0"')

    def test_a_sweep_in_which_nothing_ran(self):
        self.pipit("sweep", "conv", "--n", "1", "--in", "8", "--out", "8", "--size", "12", "--kernel", "3", "--stride", "1", "--seconds", "0",
                   "--backend", "depthwise", "--output", "s.html", code=UNSUPPORTED, silent=False)
        self.assertIn("1 row did not run", self.browse(self.folder / "s.html", "--dump-dom"))


if __name__ == "__main__":
    main()
