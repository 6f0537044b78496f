"""Conan recipe. In the project's folder: conan create packaging/conan --build=missing"""

import os
import re

from conan import ConanFile
from conan.errors import ConanInvalidConfiguration
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout
from conan.tools.files import copy, load, rm, rmdir

required_conan_version = ">=2.0"

# The parts of the library, each before those that it uses.
LIBRARIES = ("pipit", "compile", "sparsity", "quant", "models", "layers", "engine")
SOURCES = ("CMakeLists.txt", "LICENSE", "THIRD_PARTY_NOTICES.md", "cmake", "apps", *LIBRARIES)


class PipitConan(ConanFile):
    name = "pipit"
    description = "An inference engine for convolutional networks"
    license = "Apache-2.0"
    topics = ("cnn", "inference", "onnx", "quantization")
    package_type = "library"
    settings = "os", "arch", "compiler", "build_type"
    options = {
        "shared": [True, False],
        "command": [True, False],
        "minimal": [True, False],
        "image_libraries": [True, False],
        "webp": [True, False],
    }
    default_options = {
        "shared": False,
        "command": False,
        "minimal": False,
        "image_libraries": True,
        "webp": True,
        "protobuf/*:lite": True,
    }

    @property
    def _project(self):
        return os.path.join(self.recipe_folder, "..", "..")

    def set_version(self):
        text = load(self, os.path.join(self._project, "CMakeLists.txt"))
        self.version = re.search(r"project\(pipit VERSION (\S+)", text).group(1)

    def export_sources(self):
        for name in SOURCES:
            whole = os.path.isdir(os.path.join(self._project, name))
            copy(self, f"{name}/*" if whole else name, src=self._project, dst=self.export_sources_folder)

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires("fmt/[>=9.1 <12]")
        self.requires("protobuf/[>=3.21.12 <4]")
        self.requires("zlib/[>=1.2.11 <2]")
        if self.options.image_libraries:
            self.requires("libjpeg-turbo/[>=2.1 <4]")
            self.requires("libpng/[>=1.6 <2]")
        if self.options.webp:
            self.requires("libwebp/[>=1.2 <2]")
        # Headers that are compiled in.
        if not self.options.minimal:
            self.requires("eigen/[>=3.4 <4]", visible=False)
        self.requires("nlohmann_json/[>=3.11 <4]", visible=False)
        self.requires("xxhash/[>=0.8 <1]", visible=False)
        if not self.options.image_libraries:
            self.requires("stb/cci.20230920", visible=False)
        if self.options.command:
            self.requires("cli11/[>=2.1 <3]", visible=False)

    def build_requirements(self):
        self.tool_requires("cmake/[>=3.25]")
        self.tool_requires("protobuf/<host_version>")

    def validate(self):
        check_min_cppstd(self, 20)
        if self.options.minimal and self.options.command:
            raise ConanInvalidConfiguration("a minimal pipit has no command")

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["PIPIT_TESTS"] = "OFF"
        toolchain.cache_variables["PIPIT_CUDA"] = "OFF"
        toolchain.cache_variables["PIPIT_APPS"] = self._on(self.options.command)
        toolchain.cache_variables["PIPIT_MINIMAL"] = self._on(self.options.minimal)
        toolchain.cache_variables["PIPIT_SHARED"] = self._on(self.options.shared)
        toolchain.cache_variables["PIPIT_IMAGE_LIBRARIES"] = self._on(self.options.image_libraries)
        toolchain.cache_variables["PIPIT_WEBP"] = self._on(self.options.webp)
        toolchain.generate()
        CMakeDeps(self).generate()

    @staticmethod
    def _on(option):
        return "ON" if option else "OFF"

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def package(self):
        for name in ("LICENSE", "THIRD_PARTY_NOTICES.md"):
            copy(self, name, src=self.source_folder, dst=os.path.join(self.package_folder, "licenses"))
        CMake(self).install()
        # CMakeDeps and PkgConfigDeps write these for the programs that use the package.
        rmdir(self, os.path.join(self.package_folder, "lib", "cmake"))
        rmdir(self, os.path.join(self.package_folder, "lib", "pkgconfig"))
        rm(self, "libpipit_*.a" if self.options.shared else "libpipit.so*", os.path.join(self.package_folder, "lib"))
        rm(self, "libpipit.a", os.path.join(self.package_folder, "lib"))

    def package_info(self):
        self.cpp_info.set_property("cmake_file_name", "pipit")
        self.cpp_info.set_property("cmake_target_name", "pipit::shared" if self.options.shared else "pipit::pipit")
        self.cpp_info.set_property("pkg_config_name", "pipit")
        parts = [name for name in LIBRARIES if not (self.options.minimal and name == "sparsity")]
        self.cpp_info.libs = ["pipit"] if self.options.shared else [f"pipit_{name}" for name in parts]
        self.cpp_info.requires = ["fmt::fmt", "protobuf::libprotobuf-lite", "zlib::zlib"]
        if self.options.image_libraries:
            self.cpp_info.requires += ["libjpeg-turbo::jpeg", "libpng::libpng"]
        if self.options.webp:
            self.cpp_info.requires.append("libwebp::webp")
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread", "m"]
