/// @file
/// Whether models compute what recorded test data says.
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

/// What became of a test.
enum class TestVerdict : std::uint8_t {
  passed,       ///< all outputs are as expected
  failed,       ///< they are not, or the test cannot be run
  unsupported,  ///< pipit does not implement what the model asks for
};

/// A folder with a model and data.
struct VerifiedTest {
  std::filesystem::path folder;               ///< with model.onnx
  TestVerdict verdict = TestVerdict::passed;  ///< of all its data sets
  double max_error = 0;                       ///< |got - expected|, the largest of all elements
  double relative_error = 0;           ///< ||got - expected|| / ||expected||, the largest of all outputs
  std::string note;                    ///< why it failed or is unsupported
  std::vector<std::string> constants;  ///< inputs that had to be taken as constants
};

/// How outputs are compared.
struct VerifyOptions {
  LoadOptions load;  ///< how models are compiled; what is about reading them is of the data
  /// Tolerance relative to the expected value. Unset: 1e-3; of values that are stored in 16 bits at least two units in
  /// their last place.
  std::optional<double> rtol;
  double atol = 1e-7;  ///< absolute tolerance, added to that
  /// Compare floats by norms instead of elements: the largest relative_error that an output may have. For whole models,
  /// whose rounding depends on the order of sums.
  std::optional<double> norm;
  /// Called after each test with how many are done. May be empty. What it throws ends the work.
  std::function<void(std::int64_t done, std::int64_t total)> progress;
  /// Called with what a user should know, one sentence each time. May be empty.
  std::function<void(const std::string& note)> note;
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
/// `folders`. Inputs that an operator needs as constants are taken from the data. What is wrong with one test is in it,
/// and the others go on. Throws Error where a folder has no test or the device cannot be used, ArgumentError for
/// options that cannot be. May be called from any thread.
PIPIT_API Verification verify(const std::vector<std::filesystem::path>& folders,
                              const VerifyOptions& options = {});

}  // namespace pipit::tools
