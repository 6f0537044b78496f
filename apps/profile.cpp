// pipit profile MODEL: where the time of a run goes, layer by layer.
#include "apps/commands.h"
#include "apps/layer_table.h"
#include "apps/progress.h"
#include "apps/runner.h"
#include "apps/terminal.h"

namespace pipit::apps {

namespace {

struct ProfileOptions {
  CommonOptions common;
  ModelOptions model;
  int runs = 50;
  int warmup = 5;
};

int profile(const ProfileOptions& options) {
  Model model = options.model.load();
  Runner runner(model.name, std::move(model.graph), options.common);
  const Plan& plan = *runner.plan;
  const std::vector<Tensor> inputs = random_inputs(plan.graph(), model.name);
  std::vector<ConstTensorView> views;
  for (const Tensor& t : inputs) views.push_back(t.view());

  Progress progress("profile", options.warmup + options.runs, options.common.quiet);
  const Profile result =
      runner.profile(views, options.warmup, options.runs, [&](int done) { progress.update(done); });

  if (options.common.json) {
    nlohmann::ordered_json json = json_header("profile", model, plan);
    // The file or --dim may have set it as well as --batch.
    const Shape shape = inputs.empty() ? Shape{} : inputs[0].shape();
    json["batch"] = shape.rank() > 0 ? shape[0] : 1;
    json["load_ms"] = runner.load_ms;
    json["arena_bytes"] = plan.arena_bytes();
    json.update(layer_json(plan, result));
    print_json(json);
  } else {
    fmt::print("{}: {} on {} with {} threads\n\n{}", printable(model.name),
               precision_name(plan.options().precision), device_name(plan.options().device),
               plan.options().threads, layer_table(plan, result));
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
  command->footer(
      "Examples:\n  pipit profile resnet50 --runs 100\n  pipit profile model.onnx --batch 8 --threads 1 "
      "--json");
  command->callback([options, &exit_code] { exit_code = profile(*options); });
}

}  // namespace pipit::apps
