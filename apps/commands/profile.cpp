// pipit profile MODEL: where the time of a run goes, layer by layer.

#include "apps/commands/commands.h"
#include "apps/display/layer_table.h"
#include "apps/display/progress.h"
#include "apps/display/table.h"
#include "apps/display/terminal.h"
#include "apps/measuring/runner.h"
#include "engine/base/clock.h"
#include "engine/platform/device.h"
#include "engine/platform/host_memory.h"
#include "layers/cpu_peak.h"
#include "layers/gpu_peak.h"

namespace pipit::apps {

namespace {

struct ProfileOptions {
  CommonOptions common;
  ModelOptions model;
  int runs = 50;
  int warmup = 5;
  bool floor = false;
  double peak_tflops = 0;
  double bandwidth_tbs = 0;
};

// What the options say, the rest measured.
MachinePeak machine_peak(const ProfileOptions& options, const ExecutionPlan& plan) {
  MachinePeak peak;
  if (!options.floor) return peak;
  if (options.peak_tflops == 0 || options.bandwidth_tbs == 0) {
    const PlanOptions& made = plan.options();
    peak = made.device == DeviceKind::cuda ? measure_gpu_peak(made.gpu, made.precision)
                                           : measure_cpu_peak(made.threads, computed_precision(plan));
  }
  if (options.peak_tflops > 0) peak.flops_per_second = 1e12 * options.peak_tflops;
  if (options.bandwidth_tbs > 0) peak.bytes_per_second = 1e12 * options.bandwidth_tbs;
  return peak;
}

int profile(const ProfileOptions& options) {
  const auto begin = Clock::now();
  Model model = options.model.load();
  const double read_ms = milliseconds_since(begin);
  Runner runner(model.name, std::move(model.graph), options.common);
  const ExecutionPlan& plan = *runner.plan;
  const std::vector<Tensor> inputs = random_inputs(plan.graph(), model.name);
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());

  const auto first_begin = Clock::now();
  runner.run(views);
  const double first_run_ms = milliseconds_since(first_begin);
  const double first_answer_ms = read_ms + runner.load_ms + first_run_ms;
  Progress progress("profile", options.warmup + options.runs, options.common.quiet);
  const Profile result =
      runner.profile(views, options.warmup, options.runs, [&](int done) { progress.update(done); });
  // The memory first: measuring the peak takes some.
  const bool on_gpu = plan.options().device == DeviceKind::cuda;
  const DeviceMemory memory = on_gpu ? device_memory(plan.options().gpu) : DeviceMemory{};
  const MachinePeak peak = machine_peak(options, plan);

  if (const std::string note = reference_note(plan, result); !note.empty() && !options.common.quiet) {
    print_error(note);
  }
  if (options.common.json) {
    nlohmann::ordered_json json = json_header("profile", model, plan);
    // The file or --dim may have set it as well as --batch.
    const Shape shape = inputs.empty() ? Shape{} : inputs[0].shape();
    json["batch"] = shape.rank() > 0 ? shape[0] : 1;
    json["read_ms"] = read_ms;
    json["load_ms"] = runner.load_ms;
    json["first_run_ms"] = first_run_ms;
    json["first_answer_ms"] = first_answer_ms;
    json["arena_bytes"] = plan.arena_bytes();
    if (on_gpu) {
      json["device_memory_bytes"] = memory.held;
      json["device_memory_peak_bytes"] = memory.peak;
    }
    json.update(layer_json(plan, result, peak));
    print_json(json);
  } else {
    fmt::print("{}: {} on {} with {} threads\n\n{}", printable(model.name),
               precision_name(computed_precision(plan)), device_name(plan.options().device),
               plan.options().threads, layer_table(plan, result, peak));
    fmt::print("first answer   {:9.1f} ms   reading the model {:.1f}, planning {:.1f}, one run {:.1f}\n",
               first_answer_ms, read_ms, runner.load_ms, first_run_ms);
    if (on_gpu) {
      fmt::print("device memory  {:>9}      at worst {}\n", mebibytes(memory.held), mebibytes(memory.peak));
    }
  }
  return kExitOk;
}

}  // namespace

void add_profile(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = app.add_subcommand("profile", "Time every layer of a model on random data");
  options->common.add_to(*command);
  options->model.add_to(*command, true);
  command->add_option("--runs", options->runs, "Timed runs; the table shows medians")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command->add_option("--warmup", options->warmup, "Runs before the first timed one")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  command->add_flag(
      "--floor", options->floor,
      "Also show how far each layer is from its floor: what its arithmetic at the machine's peak, or "
      "its inputs, outputs and weights at the memory's bandwidth, would take, whichever is longer; "
      "and the convolutions' share of the peak, and on a CPU of what their kernel reaches on operands in the "
      "first-level cache. All are measured in this run, for the precision that the model computes in "
      "(on a CPU; with weights in 8 or 4 bits that is fp32). Winograd needs fewer products than are counted "
      "and small layers stay in the caches, so both "
      "may be passed");
  command->add_option("--peak-tflops", options->peak_tflops, "With --floor: TFLOP/s instead of a measurement")
      ->check(positive_number())
      ->needs("--floor");
  command
      ->add_option("--bandwidth-tbs", options->bandwidth_tbs, "With --floor: TB/s instead of a measurement")
      ->check(positive_number())
      ->needs("--floor");
  command->footer(
      "Examples:\n  pipit profile resnet50 --runs 100\n  pipit profile model.onnx --batch 8 --threads 1 "
      "--json");
  command->callback([options, &exit_code] { exit_code = profile(*options); });
}

}  // namespace pipit::apps
