/// @file
/// Whether models reproduce recorded test data.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipit/compiled_model.h"
#include "pipit/export.h"

namespace pipit::tools {

/// The result of a test.
enum class TestVerdict : std::uint8_t {
  passed,       ///< all outputs are as expected
  failed,       ///< an output differs, or the test cannot be run
  unsupported,  ///< pipit does not implement something that the model needs
};

/// A folder with a model and data.
struct VerifiedTest {
  std::filesystem::path folder;               ///< with model.onnx
  TestVerdict verdict = TestVerdict::passed;  ///< of all its data sets
  double max_error = 0;                       ///< |got - expected|, the largest of all elements
  double relative_error = 0;           ///< ||got - expected|| / ||expected||, the largest of all outputs
  std::string note;                    ///< why it failed or is unsupported
  std::vector<std::string> constants;  ///< inputs that were read as constants
};

/// How outputs are compared.
struct VerifyOptions {
  LoadOptions load = {};  ///< how models are compiled; names and shapes of inputs come from the data
  /// Tolerance relative to the expected value. Unset: 1e-3; for values stored in 16 bits at least two units in their
  /// last place.
  std::optional<double> rtol = {};
  double atol = 1e-7;  ///< absolute tolerance, added to the relative one
  /// Compare floats by norms instead of elements: the largest relative_error that an output may have. For whole models,
  /// whose rounding depends on the order of sums.
  std::optional<double> norm = {};
  /// Called after each test with the number of tests done and of all tests. May be empty. An exception from it ends the
  /// work.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
  /// Called with each note for the user, one sentence. May be empty.
  std::function<void(const std::string& note)> note = {};
};

/// What verify() found.
struct Verification {
  std::vector<VerifiedTest> tests;  ///< by folder
  std::int64_t passed = 0;          ///< tests
  std::int64_t failed = 0;          ///< tests
  std::int64_t unsupported = 0;     ///< tests
  std::string json;                 ///< all of it, as `pipit verify --json` writes it (docs/json.md)
};

/// Runs tests in ONNX's layout: folders with model.onnx and test_data_set_*/input_*.pb and output_*.pb, at or below
/// `folders`. Inputs that an operator needs as constants are taken from the data. A test that fails has its reason, and
/// the others continue. Throws Error if a folder has no test or the device cannot be used, and ArgumentError for
/// invalid options. May be called from any thread.
PIPIT_API Verification verify(const std::vector<std::filesystem::path>& folders,
                              const VerifyOptions& options = {});

}  // namespace pipit::tools
