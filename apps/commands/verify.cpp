// pipit verify DIR...: runs test directories in ONNX's layout and compares the outputs.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "apps/commands/commands.h"
#include "apps/display/next_command.h"
#include "apps/display/print_json.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/options/options.h"
#include "apps/options/values.h"
#include "engine/platform/device.h"
#include "pipit/measuring/runner.h"

namespace pipit::internal::apps {

namespace {

namespace fs = std::filesystem;

struct VerifyOptions {
  CommonOptions common;
  std::vector<std::string> directories;
  std::optional<double> rtol;
  double atol = 1e-7;
  double norm = 0;  // > 0: judge floats by the relative norm of the error instead
  bool wide = false;
};

constexpr double kRtol = 1e-3;

enum class Verdict { passed, failed, unsupported };

// The largest over all outputs and data sets.
struct Errors {
  double max = 0;   // |got - expected|
  double norm = 0;  // ||got - expected|| / ||expected||
};

struct VerifiedModel {
  std::string directory;
  Verdict verdict = Verdict::passed;
  Errors errors;
  std::string note;                 // why it failed or is unsupported
  std::vector<std::string> frozen;  // inputs that were taken as constants
};

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
std::vector<Found> find_tests(const std::vector<std::string>& roots) {
  std::map<fs::path, std::string> tests;
  for (const std::string& root : roots) {
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
                           const VerifyOptions& options, Errors& errors) {
  const bool by_norm = options.norm > 0 && std::is_floating_point_v<T>;
  std::string first;
  double error_squares = 0;
  double squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto g = static_cast<double>(got[i]);
    const auto e = static_cast<double>(expected[i]);
    if (std::isfinite(e)) squares += e * e;
    if (g == e || (std::isnan(g) && std::isnan(e))) continue;
    const double error = std::isfinite(g) && std::isfinite(e) ? std::abs(g - e) : HUGE_VAL;
    errors.max = std::max(errors.max, error);
    error_squares += error * error;
    const bool within = std::isfinite(error) && (by_norm || error <= options.atol + rtol * std::abs(e));
    if (!within && first.empty()) first = fmt::format("element {} is {}, expected {}", i, g, e);
  }
  const double relative =
      error_squares == 0 ? 0 : std::sqrt(error_squares) / std::max(std::sqrt(squares), 1e-300);
  errors.norm = std::max(errors.norm, relative);
  if (by_norm && first.empty() && relative > options.norm) {
    first = fmt::format("has a relative error norm of {:.3g}, above {:.3g}", relative, options.norm);
  }
  return first;
}

// Empty when equal within the tolerance.
std::string compare(const ConstTensorView& output, const NamedTensor& stored, const VerifyOptions& options,
                    Errors& errors) {
  const Tensor& expected = stored.tensor;
  if (!(output.desc.shape == expected.shape()) || output.desc.dtype != expected.desc().dtype) {
    return fmt::format("is {}, expected {}", output.desc.str(), expected.desc().str());
  }
  const Tensor got = to_layout(output, Layout::row_major);
  const double rtol = options.rtol.value_or(std::max(kRtol, 2 * stored.stored_step));
  const auto check = [&]<typename T>(T) {
    return compare_values<T>(got.values<T>(), expected.values<T>(), rtol, options, errors);
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
Runner make_runner(const fs::path& file, OnnxOptions onnx, const VerifyOptions& options,
                   std::vector<std::string>& frozen) {
  try {
    return options.common.make_runner(file.string(), read_onnx(file, onnx).graph);
  } catch (const UnsupportedError&) {
    onnx.freeze_operands = true;
    OnnxModel model = read_onnx(file, onnx);
    if (model.frozen.empty() || model.graph.inputs().empty()) throw;
    Runner runner = options.common.make_runner(file.string(), std::move(model.graph));
    frozen = std::move(model.frozen);
    return runner;
  }
}

// One data set; returns why it failed, or nothing.
std::string run_data_set(const fs::path& directory, const fs::path& data, const VerifyOptions& options,
                         VerifiedModel& result) {
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
  Runner runner = make_runner(directory / "model.onnx", std::move(onnx), options, result.frozen);
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
    const std::string difference = compare(outputs[i], expected[i], options, result.errors);
    if (!difference.empty()) return fmt::format("{}: output {} {}", data.filename().string(), i, difference);
  }
  return {};
}

VerifiedModel verify_one(const Found& test, const VerifyOptions& options) {
  const fs::path& directory = test.folder;
  VerifiedModel result;
  result.directory = directory.string();
  try {
    std::string problem = test.problem;
    std::vector<fs::path> sets;
    for (const fs::directory_entry& entry : folders_in(directory, problem)) {
      if (entry.path().filename().string().starts_with("test_data_set_")) sets.push_back(entry.path());
    }
    if (!problem.empty()) throw Error(problem);
    std::sort(sets.begin(), sets.end());
    if (sets.empty()) fail("{}: no test_data_set_* folder", result.directory);
    for (const fs::path& set : sets) {
      result.note = run_data_set(directory, set, options, result);
      if (!result.note.empty()) {
        result.verdict = Verdict::failed;
        break;
      }
    }
  } catch (const UnsupportedError& e) {
    result.verdict = Verdict::unsupported;
    result.note = e.what();
  } catch (const std::exception& e) {  // also std::bad_alloc: the tests after this one may be smaller
    result.verdict = Verdict::failed;
    result.note = e.what();
  }
  result.note = first_lines(result.note);
  if (result.note.empty() && !result.frozen.empty())
    result.note = fmt::format("as constants: {}", fmt::join(result.frozen, ", "));
  return result;
}

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::passed ? "passed" : verdict == Verdict::failed ? "FAILED" : "unsupported";
}

// A table cell holds one line.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

int verify(const VerifyOptions& options) {
  // An error that would hit every test (in the options, say) ends the command instead of failing one test.
  options.common.check_precision();
  options.common.need_plan();
  require_device(options.common.device);
  const std::vector<Found> tests = find_tests(options.directories);
  Table table({{"test", Table::Align::left, 0, true},
               {"max error", Table::Align::right, 1},
               {"relative", Table::Align::right, 2},
               {"verdict"},
               {"note", Table::Align::left, 0, true}});
  nlohmann::ordered_json json = {
      {"command", "verify"}, {"rtol", options.rtol.value_or(kRtol)}, {"atol", options.atol}};
  if (options.norm > 0) json["norm"] = options.norm;
  json["tests"] = nlohmann::ordered_json::array();
  std::array<std::int64_t, 3> counts{};
  {
    Progress progress("verify", static_cast<std::int64_t>(tests.size()), options.common.quiet);
    for (const Found& test : tests) {
      const VerifiedModel r = verify_one(test, options);
      ++counts[static_cast<std::size_t>(r.verdict)];
      const bool ran = r.verdict != Verdict::unsupported;
      table.add({r.directory, ran ? fmt::format("{:.3g}", r.errors.max) : "",
                 ran ? fmt::format("{:.3g}", r.errors.norm) : "", std::string(verdict_name(r.verdict)),
                 one_line(r.note)});
      json["tests"].push_back({{"test", r.directory},
                               {"verdict", r.verdict == Verdict::failed ? "failed" : verdict_name(r.verdict)},
                               {"max_error", r.errors.max},
                               {"relative_error", r.errors.norm},
                               {"note", r.note}});
      if (!r.frozen.empty()) json["tests"].back()["constants"] = r.frozen;
      progress.update(counts[0] + counts[1] + counts[2]);
    }
  }
  const auto [passed, failed, unsupported] = counts;
  json["passed"] = passed;
  json["failed"] = failed;
  json["unsupported"] = unsupported;
  if (options.common.json) {
    print_json(json);
  } else {
    fmt::print("{}\npassed {} failed {} unsupported {}\n", table.str(0, table_width(options.wide)), passed,
               failed, unsupported);
  }
  if (failed > 0 && options.common.prefer_kernels.empty()) {
    print_next(options.common.quiet, {"verify", options.directories[0], "--kernel", "reference"},
               "whether plain loops agree: then a fast kernel is wrong, else the reading of the model");
  } else if (failed == 0 && passed > 0) {
    print_next(options.common.quiet, {"inspect", (tests[0].folder / "model.onnx").string(), "--why"},
               "which kernels ran, and why");
  }
  if (failed > 0) return kExitCheckFailed;
  return passed == 0 ? kExitUnsupported : kExitOk;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* command =
      app.add_subcommand("verify", "Run test directories in ONNX's layout and compare the outputs");
  options->common.add_to(*command);
  command
      ->add_option("DIR", options->directories,
                   "Folders with model.onnx, test_data_set_*/input_*.pb and output_*.pb, or folders that "
                   "contain such folders")
      ->required()
      ->type_name("FOLDER");
  command
      ->add_option("--rtol", options->rtol,
                   "Tolerance relative to the expected value; for values stored in 16 bits, by default two "
                   "units in their last place")
      ->check(nonnegative_number())
      ->default_str(fmt::format("{}", kRtol));
  command->add_option("--atol", options->atol, "Absolute tolerance, added to that of --rtol")
      ->check(nonnegative_number())
      ->capture_default_str();
  command
      ->add_option("--norm", options->norm,
                   "Compare by norms instead of elements: the largest ||got - expected|| / ||expected|| that "
                   "an output may have. For whole models, whose rounding depends on the order of sums")
      ->check(positive_number());
  add_wide_to(*command, options->wide);
  command->footer(
      "Inputs that an operator needs as constants (the shape of a Reshape) are taken from the test's data.\n"
      "So are weights, biases and the like if the kernels of the device need them as constants; a note names "
      "them.\n"
      "Exit code 4 if a test fails, 3 if every test is unsupported.\n"
      "Example: pipit verify /usr/share/libonnx-testdata/data/node/test_relu");
  command->callback([options, &exit_code] { exit_code = verify(*options); });
}

}  // namespace pipit::internal::apps
