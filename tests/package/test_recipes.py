"""The recipes in packaging/ say what CMakeLists.txt says: version, options, folders, libraries, dependencies.

Conan itself reads its recipe where it is installed; otherwise a few stand-ins for its classes run it.
"""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"

# What find_package() and find_path() look for, and its name in each recipe. None: the recipe does without it.
DEPENDENCIES = {  # CMake: (Conan, vcpkg, conda)
    "CLI11": ("cli11", "cli11", "cli11"),
    "Eigen3": ("eigen", "eigen3", "eigen"),
    "JPEG": ("libjpeg-turbo", "libjpeg-turbo", "libjpeg-turbo"),
    "PNG": ("libpng", "libpng", "libpng"),
    "Protobuf": ("protobuf", "protobuf", "libprotobuf"),
    "WebP": ("libwebp", "libwebp", "libwebp-base"),
    "ZLIB": ("zlib", "zlib", "zlib"),
    "fmt": ("fmt", "fmt", "fmt"),
    "nlohmann_json": ("nlohmann_json", "nlohmann-json", "nlohmann_json"),
    "stb_image.h": ("stb", None, None),
    "xxhash.h": ("xxhash", "xxhash", "xxhash"),
}
NOT_PACKAGES = {"Threads", "CUDAToolkit"}


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def cmake_files():
    """Those of the library and the command; tests find packages of their own."""
    folders = [name for name in subfolders() if name != "tests"]
    files = [ROOT / "CMakeLists.txt", *(ROOT / name / "CMakeLists.txt" for name in folders), *(ROOT / "cmake").glob("Pipit*.cmake")]
    return {path: re.sub(r"#.*", "", path.read_text(encoding="utf-8")) for path in files}


def subfolders():
    """All but the Python package, which pyproject.toml builds."""
    return [name for name in re.findall(r"^ *add_subdirectory\((\w+)", read("CMakeLists.txt"), re.M) if name != "python"]


def version():
    return re.search(r"^project\(pipit VERSION (\S+)", read("CMakeLists.txt"), re.M).group(1)


def load_recipe():
    """The module packaging/conan/conanfile.py, with stand-ins for what it imports of Conan."""
    import_of = {"conan": ["ConanFile"], "conan.errors": ["ConanInvalidConfiguration"], "conan.tools": [], "conan.tools.build": ["check_min_cppstd"],
                 "conan.tools.cmake": ["CMake", "CMakeDeps", "CMakeToolchain", "cmake_layout"],
                 "conan.tools.files": ["copy", "load", "rm", "rmdir"]}
    saved = {name: sys.modules.get(name) for name in import_of}
    try:
        for name, members in import_of.items():
            module = types.ModuleType(name)
            for member in members:
                setattr(module, member, type(member, (), {}))
            sys.modules[name] = module
        sys.modules["conan.tools.files"].load = lambda recipe, path: pathlib.Path(path).read_text(encoding="utf-8")
        spec = importlib.util.spec_from_file_location("pipit_conanfile", PACKAGING / "conan/conanfile.py")
        recipe = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(recipe)
        return recipe
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def conan_requirements(module, **options):
    """Names of all that the recipe requires with these options instead of its defaults."""
    recipe = module.PipitConan()
    values = {name: value for name, value in recipe.default_options.items() if "/" not in name}
    recipe.options = types.SimpleNamespace(**{**values, **options})
    required = []
    recipe.requires = lambda reference, **_: required.append(reference.split("/")[0])
    recipe.requirements()
    return required


class Recipes(unittest.TestCase):
    def setUp(self):
        self.module = load_recipe()
        self.port = json.loads(read("packaging/vcpkg/pipit/vcpkg.json"))
        self.portfile = read("packaging/vcpkg/pipit/portfile.cmake")
        self.conda = read("packaging/conda/recipe.yaml")

    def test_the_version_is_that_of_cmake(self):
        recipe = self.module.PipitConan()
        recipe.recipe_folder = str(PACKAGING / "conan")
        recipe.set_version()
        self.assertEqual(recipe.version, version())
        self.assertEqual(self.port["version"], version())
        self.assertRegex(self.conda, rf"(?m)^  version: {re.escape(version())}$")
        soname = version().split(".", maxsplit=1)[0]
        self.assertIn(f"lib/libpipit.so.{soname}", self.conda)

    def test_every_option_exists(self):
        declared = set()
        for text in cmake_files().values():
            declared |= set(re.findall(r"(?:\boption|cmake_dependent_option|\bset)\((PIPIT_\w+)\s", text))
        for name in ("packaging/conan/conanfile.py", "packaging/vcpkg/pipit/portfile.cmake", "packaging/conda/recipe.yaml"):
            used = set(re.findall(r"PIPIT_\w+", read(name)))
            self.assertGreaterEqual(used, {"PIPIT_TESTS", "PIPIT_CUDA", "PIPIT_APPS", "PIPIT_SHARED", "PIPIT_WEBP"}, name)
            self.assertLessEqual(used, declared, name)

    def test_conan_exports_the_folders_that_cmake_builds(self):
        built = [name for name in subfolders() if name != "tests"]
        folders = [name for name in self.module.SOURCES if (ROOT / name).is_dir()]
        self.assertEqual(sorted(folders), sorted([*built, "cmake"]))
        for name in self.module.SOURCES:
            self.assertTrue((ROOT / name).exists(), name)

    def test_conan_links_the_libraries_in_order(self):
        libraries = [name for name in subfolders() if name not in ("apps", "tests")]
        self.assertEqual(list(self.module.LIBRARIES), libraries[::-1])
        for name in libraries:
            self.assertRegex(read(f"{name}/CMakeLists.txt"), rf"pipit_library\({name}\b")

    def test_every_dependency_is_in_every_recipe(self):
        found = set()
        for text in cmake_files().values():
            found |= set(re.findall(r"\bfind_package\((\w+)", text))
            found |= set(re.findall(r"find_path\(\w+ NAMES ([\w./]+)", text))
        found = {"WebP" if name.startswith("webp/") else name for name in found} - NOT_PACKAGES
        self.assertEqual(found, set(DEPENDENCIES))

        conan = {*conan_requirements(self.module, command=True), *conan_requirements(self.module, image_libraries=False)}
        self.assertEqual(conan, {names[0] for names in DEPENDENCIES.values()})
        self.assertNotIn("stb", conan_requirements(self.module))
        self.assertNotIn("eigen", conan_requirements(self.module, minimal=True))
        self.assertNotIn("libwebp", conan_requirements(self.module, webp=False))

        vcpkg = [*self.port["dependencies"], *(d for feature in self.port["features"].values() for d in feature.get("dependencies", []))]
        vcpkg = {d if isinstance(d, str) else d["name"] for d in vcpkg} - {"vcpkg-cmake", "vcpkg-cmake-config"}
        self.assertEqual(vcpkg, {names[1] for names in DEPENDENCIES.values()} - {None})

        host = re.search(r"\n  host:\n((?:    - .*\n)+)", self.conda).group(1)
        conda = {line.split()[1] for line in host.splitlines()}
        self.assertEqual(conda, {names[2] for names in DEPENDENCIES.values()} - {None})

    def test_the_profile_of_debian_has_every_requirement(self):
        profile = read("packaging/conan/debian12").partition("[platform_requires]")[2].partition("[")[0]
        self.assertEqual({line.split("/")[0] for line in profile.split()}, {names[0] for names in DEPENDENCIES.values()})

    def test_vcpkg_runs_the_portfile(self):
        """Stand-ins of the functions print their arguments: the sources are there, and so are all features."""
        stubs = ""
        for name in ("check_linkage", "check_features", "cmake_configure", "cmake_install", "cmake_config_fixup", "fixup_pkgconfig",
                     "copy_tools", "install_copyright"):
            stubs += f'function(vcpkg_{name})\n  message(NOTICE "{name}: ${{ARGV}}")\nendfunction()\n'
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "run.cmake"
            script.write_text(f'cmake_minimum_required(VERSION 3.25)\n{stubs}set(CURRENT_PORT_DIR "{PACKAGING}/vcpkg/pipit")\nset(CURRENT_PACKAGES_DIR "{folder}/packages")\n'
                              f'set(FEATURES core command)\ninclude("{PACKAGING}/vcpkg/pipit/portfile.cmake")\n', encoding="utf-8")
            ran = subprocess.run([os.environ.get("CMAKE", "cmake"), "-P", script], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        calls = dict(line.split(": ", 1) for line in ran.stderr.splitlines())
        self.assertEqual(list(calls), ["check_linkage", "check_features", "cmake_configure", "cmake_install", "cmake_config_fixup",
                                       "fixup_pkgconfig", "copy_tools", "install_copyright"])
        self.assertIn(f"SOURCE_PATH;{ROOT};", calls["cmake_configure"])
        for name in calls["install_copyright"].split(";")[1:]:
            self.assertTrue(pathlib.Path(name).exists(), name)
        features = calls["check_features"].split("FEATURES;", 1)[1].split(";")[::2]
        self.assertEqual(sorted(features), sorted(self.port["features"]))
        self.assertLessEqual(set(self.port["default-features"]), set(features))

    def test_conan_reads_its_recipe(self):
        conan = shutil.which("conan")
        if not conan:
            self.skipTest("Conan is not installed")
        with tempfile.TemporaryDirectory() as home:
            environment = {**os.environ, "CONAN_HOME": home}
            for options in ([], ["-o", "&:shared=True", "-o", "&:command=True", "-o", "&:webp=False"], ["-o", "&:image_libraries=False"]):
                ran = subprocess.run([conan, "graph", "info", PACKAGING / "conan", "--format=json",
                                      f"--profile:all={PACKAGING}/conan/debian12", *options],
                                     capture_output=True, text=True, env=environment, check=False)
                self.assertEqual(ran.returncode, 0, ran.stderr)
                nodes = json.loads(ran.stdout)["graph"]["nodes"].values()
                package = next(node for node in nodes if node["name"] == "pipit")
                self.assertEqual(package["version"], version())
                self.assertEqual({node["recipe"] for node in nodes} - {"Consumer"}, {"Platform"})


if __name__ == "__main__":
    unittest.main()
