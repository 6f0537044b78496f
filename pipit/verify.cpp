#include "pipit/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/platform/device.h"
#include "engine/platform/float_mode.h"
#include "models/model.h"
#include "pipit/detail/checked.h"
#include "pipit/measuring/json.h"
#include "pipit/measuring/runner.h"
#include "pipit/text.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kRtol = 1e-3;

// A folder to report on: one with a model.onnx, or one that cannot be read.
struct Found {
  fs::path folder;
  std::string problem;
};

// The subfolders of `folder`; `problem` is set if the list is not complete. Links to folders are listed, but not
// followed.
std::vector<fs::directory_entry> folders_in(const fs::path& folder, std::string& problem) {
  std::vector<fs::directory_entry> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code broken_link;
    if (it->is_directory(broken_link)) found.push_back(*it);
  }
  if (error) problem = fmt::format("{}: the folder cannot be read: {}", folder.string(), error.message());
  return found;
}

void find_below(const fs::path& folder, std::vector<Found>& found) {
  Found here{folder, {}};
  const std::vector<fs::directory_entry> below = folders_in(folder, here.problem);
  std::error_code error;
  // The link's own status: a link to nowhere is a test that fails, not one that is missing.
  const fs::file_status model = fs::symlink_status(folder / "model.onnx", error);
  if (!fs::status_known(model) && here.problem.empty()) {
    here.problem = fmt::format("{}: {}", (folder / "model.onnx").string(), error.message());
  }
  if (fs::exists(model) || !here.problem.empty()) found.push_back(here);
  for (const fs::directory_entry& entry : below) {
    if (!entry.is_symlink(error)) {
      find_below(entry.path(), found);
    } else if (fs::exists(entry.path() / "model.onnx", error)) {
      found.push_back({entry.path(), {}});
    }
  }
}

// Every folder at or below the given ones that holds a model.onnx or cannot be read, sorted.
std::vector<Found> find_tests(const std::vector<fs::path>& roots) {
  std::map<fs::path, std::string> tests;
  for (const fs::path& folder : roots) {
    const std::string root = folder.string();
    std::error_code error;
    const fs::file_status status = fs::status(root, error);
    if (!fs::is_directory(status)) {
      if (fs::exists(status)) fail("{}: is not a folder", root);
      fail("{}: {}", root, status.type() == fs::file_type::not_found ? "no such folder" : error.message());
    }
    std::vector<Found> found;
    find_below(root, found);
    if (found.empty()) fail("{}: no model.onnx in it or below", root);
    for (Found& test : found) tests.emplace(std::move(test.folder), std::move(test.problem));
  }
  std::vector<Found> sorted;
  for (auto& [folder, problem] : tests) sorted.push_back({folder, problem});
  return sorted;
}

// prefix_0.pb, prefix_1.pb, ... of a data set.
std::vector<NamedTensor> read_tensors(const fs::path& folder, const std::string& prefix) {
  std::vector<NamedTensor> tensors;
  for (int i = 0;; ++i) {
    const fs::path file = folder / fmt::format("{}_{}.pb", prefix, i);
    std::error_code error;
    if (!fs::exists(file, error)) {
      if (error) fail("{}: {}", file.string(), error.message());
      return tensors;
    }
    tensors.push_back(read_named_tensor(file));
    const std::string& name = tensors.back().name;
    for (std::size_t other = 0; other + 1 < tensors.size(); ++other) {
      if (!name.empty() && tensors[other].name == name)
        fail("{}: its tensor is named '{}' as that of {}_{}.pb", file.string(), name, prefix, other);
    }
  }
}

// Empty when equal within the tolerance. NaN equals NaN, an infinity only itself.
template <typename T>
std::string compare_values(std::span<const T> got, std::span<const T> expected, double rtol,
                           const VerifyOptions& options, VerifiedTest& test) {
  const bool by_norm = options.norm && std::is_floating_point_v<T>;
  std::string first;
  double error_squares = 0;
  double squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto g = static_cast<double>(got[i]);
    const auto e = static_cast<double>(expected[i]);
    if (std::isfinite(e)) squares += e * e;
    if (g == e || (std::isnan(g) && std::isnan(e))) continue;
    const double error = std::isfinite(g) && std::isfinite(e) ? std::abs(g - e) : HUGE_VAL;
    test.max_error = std::max(test.max_error, error);
    error_squares += error * error;
    const bool within = std::isfinite(error) && (by_norm || error <= options.atol + rtol * std::abs(e));
    if (!within && first.empty()) first = fmt::format("element {} is {}, expected {}", i, g, e);
  }
  const double relative =
      error_squares == 0 ? 0 : std::sqrt(error_squares) / std::max(std::sqrt(squares), 1e-300);
  test.relative_error = std::max(test.relative_error, relative);
  if (by_norm && first.empty() && relative > *options.norm) {
    first = fmt::format("has a relative error norm of {:.3g}, above {:.3g}", relative, *options.norm);
  }
  return first;
}

// Empty when equal within the tolerance.
std::string compare(const ConstTensorView& output, const NamedTensor& stored, const VerifyOptions& options,
                    VerifiedTest& test) {
  const Tensor& expected = stored.tensor;
  if (!(output.desc.shape == expected.shape()) || output.desc.dtype != expected.desc().dtype) {
    return fmt::format("is {}, expected {}", output.desc.str(), expected.desc().str());
  }
  const Tensor got = to_layout(output, Layout::row_major);
  const double rtol = options.rtol.value_or(std::max(kRtol, 2 * stored.stored_step));
  const auto check = [&]<typename T>(T) {
    return compare_values<T>(got.values<T>(), expected.values<T>(), rtol, options, test);
  };
  switch (expected.desc().dtype) {
    case DType::f32:
      return check(float{});
    case DType::f64:
      return check(double{});
    case DType::i8:
      return check(std::int8_t{});
    case DType::u8:
      return check(std::uint8_t{});
    case DType::i32:
      return check(std::int32_t{});
    case DType::i64:
      return check(std::int64_t{});
    case DType::boolean:
      return check(bool{});
    case DType::f16:
    case DType::bf16:
      break;
  }
  return "has an unknown type";
}

// The options, and what all tests share.
struct Verifier {
  const VerifyOptions& options;
  std::shared_ptr<KernelTuning> tuning = kernel_tuning(options.load.kernels);

  std::vector<std::string> notes;  // of the test that runs

  Runner runner(const fs::path& file, Graph graph) {
    Runner made(file.string(), std::move(graph), {options.load, tuning, {}, {}});
    notes.insert(notes.end(), made.notes.begin(), made.notes.end());
    return made;
  }
  void tell_notes() {
    for (const std::string& note : std::exchange(notes, {})) {
      if (options.note) options.note(note);
    }
  }
};

// Reads the inputs. If that fails and the model itself is unsupported (sequences, optionals), reports the latter.
std::vector<NamedTensor> read_inputs(const fs::path& directory, const fs::path& data) {
  try {
    return read_tensors(data, "input");
  } catch (const Error&) {
    read_onnx(directory / "model.onnx", OnnxOptions{});
    throw;
  }
}

// Plans a test's model. Some models are refused because inputs hold values that must be known in advance (weights of
// some GPU kernels, conditions of branches). Then these inputs become constants with the test's values, and `frozen`
// gets their names.
Runner make_runner(const fs::path& file, OnnxOptions onnx, Verifier& verifier,
                   std::vector<std::string>& frozen) {
  try {
    return verifier.runner(file, read_onnx(file, onnx).graph);
  } catch (const UnsupportedError&) {
    onnx.freeze_operands = true;
    OnnxModel model = read_onnx(file, onnx);
    if (model.frozen.empty() || model.graph.inputs().empty()) throw;
    Runner runner = verifier.runner(file, std::move(model.graph));
    frozen = std::move(model.frozen);
    return runner;
  }
}

// One data set; returns why it failed, or nothing.
std::string run_data_set(const fs::path& directory, const fs::path& data, Verifier& verifier,
                         VerifiedTest& result) {
  const std::vector<NamedTensor> inputs = read_inputs(directory, data);
  const std::vector<NamedTensor> expected = read_tensors(data, "output");
  if (expected.empty()) fail("{}: no output_0.pb", data.string());
  const auto find = [&](const std::string& name) -> const Tensor* {
    const auto it =
        std::find_if(inputs.begin(), inputs.end(), [&](const NamedTensor& t) { return t.name == name; });
    return it == inputs.end() ? nullptr : &it->tensor;
  };
  OnnxOptions onnx;
  if (!inputs.empty() && inputs[0].tensor.shape().rank() > 0) {
    onnx.batch = std::max<std::int64_t>(inputs[0].tensor.shape()[0], 1);
  }
  onnx.bind_input = find;
  Runner runner = make_runner(directory / "model.onnx", std::move(onnx), verifier, result.constants);
  const Graph& graph = runner.plan->graph();
  std::vector<ConstTensorView> views;
  for (std::size_t i = 0; i < graph.inputs().size(); ++i) {
    const Value& value = graph.value(graph.inputs()[i]);
    const Tensor* tensor = find(value.name);
    // Tensors of old tests have no names: they are in the order of the inputs.
    if (tensor == nullptr && i < inputs.size() && inputs[i].name.empty()) tensor = &inputs[i].tensor;
    if (tensor == nullptr) fail("{}: no input_*.pb is named '{}'", data.string(), value.name);
    views.push_back(tensor->view());
  }
  const auto outputs = runner.run(views);
  if (outputs.size() != expected.size()) {
    return fmt::format("{} outputs, {} expected", outputs.size(), expected.size());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::string difference = compare(outputs[i], expected[i], verifier.options, result);
    if (!difference.empty()) return fmt::format("{}: output {} {}", data.filename().string(), i, difference);
  }
  return {};
}

VerifiedTest verify_one(const Found& test, Verifier& verifier) {
  const fs::path& directory = test.folder;
  VerifiedTest result;
  result.folder = directory;
  try {
    std::string problem = test.problem;
    std::vector<fs::path> sets;
    for (const fs::directory_entry& entry : folders_in(directory, problem)) {
      if (entry.path().filename().string().starts_with("test_data_set_")) sets.push_back(entry.path());
    }
    if (!problem.empty()) throw Error(problem);
    std::sort(sets.begin(), sets.end());
    if (sets.empty()) fail("{}: no test_data_set_* folder", directory.string());
    for (const fs::path& set : sets) {
      result.note = run_data_set(directory, set, verifier, result);
      if (!result.note.empty()) {
        result.verdict = TestVerdict::failed;
        break;
      }
    }
  } catch (const UnsupportedError& e) {
    result.verdict = TestVerdict::unsupported;
    result.note = e.what();
  } catch (const std::exception& e) {  // also std::bad_alloc: the tests after this one may be smaller
    result.verdict = TestVerdict::failed;
    result.note = e.what();
  }
  result.note = first_lines(result.note);
  if (result.note.empty() && !result.constants.empty())
    result.note = fmt::format("as constants: {}", fmt::join(result.constants, ", "));
  return result;
}

void check(const VerifyOptions& options) {
  const auto refuse = [](const char* what, double value) {
    throw ArgumentError(fmt::format("{} is {}; expected 0 or more", what, value));
  };
  if (options.rtol && !(*options.rtol >= 0)) refuse("rtol", *options.rtol);
  if (!(options.atol >= 0)) refuse("atol", options.atol);
  if (options.norm && !(*options.norm > 0))
    throw ArgumentError(fmt::format("norm is {}; expected more than 0", *options.norm));
  if (options.load.precision.kind() == Precision::int8 && plan_of(options.load).empty())
    throw ArgumentError("precision int8 needs a plan with the scales that calibrate() writes");
}

Json test_json(const VerifiedTest& test) {
  const bool passed = test.verdict == TestVerdict::passed;
  Json json = {{"test", test.folder.string()},
               {"verdict", passed                                ? "passed"
                           : test.verdict == TestVerdict::failed ? "failed"
                                                                 : "unsupported"},
               {"max_error", test.max_error},
               {"relative_error", test.relative_error},
               {"note", test.note}};
  if (!test.constants.empty()) json["constants"] = test.constants;
  return json;
}

}  // namespace

Verification verify(const std::vector<fs::path>& folders, const VerifyOptions& options) {
  // An error that would hit every test ends the work instead of failing one test.
  check(options);
  check_device(options.load.device);
  require_device(options.load.device.kind);
  const ScopedFloatMode mode;
  const std::vector<Found> tests = find_tests(folders);
  Verifier verifier{options};
  Verification result;
  Json json = {{"command", "verify"}, {"rtol", options.rtol.value_or(kRtol)}, {"atol", options.atol}};
  if (options.norm) json["norm"] = *options.norm;
  json["tests"] = Json::array();
  for (const Found& test : tests) {
    const VerifiedTest& verified = result.tests.emplace_back(verify_one(test, verifier));
    verifier.tell_notes();
    ++(verified.verdict == TestVerdict::passed   ? result.passed
       : verified.verdict == TestVerdict::failed ? result.failed
                                                 : result.unsupported);
    json["tests"].push_back(test_json(verified));
    if (options.progress) options.progress(std::ssize(result.tests), std::ssize(tests));
  }
  json["passed"] = result.passed;
  json["failed"] = result.failed;
  json["unsupported"] = result.unsupported;
  result.json = json_text(json);
  return result;
}

}  // namespace pipit::tools
