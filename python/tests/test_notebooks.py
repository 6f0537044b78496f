"""The notebooks of the documents: they run as they stand, and what is stored with them is small and without errors."""

from __future__ import annotations

import json
import os
import pathlib
import sys
import unittest

from support import ROOT, PackageTest

try:
    import matplotlib
    import nbclient
    import nbformat
    import pandas
except ImportError as error:
    nbclient, missing = None, str(error)
else:
    missing = f"{matplotlib.__name__}, {pandas.__name__} are installed"

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))


class Notebooks(PackageTest):
    def test_stored_outputs(self) -> None:
        self.assertEqual(len(NOTEBOOKS), 2)
        for path in NOTEBOOKS:
            text = path.read_text(encoding="utf-8")
            self.assertLessEqual(len(text), 100_000, path.name)
            codes = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
            self.assertTrue(any(cell["outputs"] for cell in codes), path.name)
            for cell in codes:
                self.assertIsNotNone(cell["execution_count"], path.name)
                self.assertNotIn("error", [output["output_type"] for output in cell["outputs"]], path.name)
                self.assertNotIn(str(ROOT), str(cell["outputs"]), path.name)

    @unittest.skipIf(nbclient is None, missing)
    def test_they_run(self) -> None:
        os.environ["IPYTHONDIR"] = os.environ["MPLCONFIGDIR"] = str(self.folder)
        kernels = self.folder / "kernels" / "python3"
        kernels.mkdir(parents=True)
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        (kernels / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "Python 3"}))
        os.environ["JUPYTER_PATH"] = str(self.folder)
        for path in NOTEBOOKS:
            with self.subTest(path.name):
                notebook = nbformat.read(path, as_version=4)
                nbclient.NotebookClient(
                    notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(self.folder)}}
                ).execute()
                if target := os.environ.get("PIPIT_WRITE_NOTEBOOKS"):
                    for cell in notebook.cells:
                        cell.metadata = {}
                    nbformat.write(notebook, pathlib.Path(target) / path.name)


if __name__ == "__main__":
    unittest.main()
