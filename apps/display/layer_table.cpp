#include "apps/display/layer_table.h"

#include "apps/display/table.h"

namespace pipit::apps {

void add_choice(nlohmann::ordered_json& layer, const Step& step) {
  if (!step.variant.empty()) layer["variant"] = step.variant;
  layer["chosen"] = chosen_by_name(step.choice.by);
  if (!step.choice.note.empty()) layer["note"] = step.choice.note;
  for (const TimedKernel& timed : step.choice.timed) {
    nlohmann::ordered_json entry = {{"kernel", timed.name}};
    if (!timed.variant.empty()) entry["variant"] = timed.variant;
    if (timed.problem.empty()) {
      entry["ms"] = timed.ms;
    } else {
      entry["problem"] = timed.problem;
    }
    layer["timed"].push_back(std::move(entry));
  }
}

std::string describe(const MicroBatches& batches) {
  if (!batches.cut()) return "none: " + batches.why;
  return fmt::format("{} of {} samples at a time: {}", batches.size, batches.samples, batches.why);
}

void add_micro_batches(nlohmann::ordered_json& json, const MicroBatches& batches) {
  json["micro_batch"] = {
      {"size", batches.cut() ? nlohmann::ordered_json(batches.size) : nlohmann::ordered_json()},
      {"runs", batches.count()},
      {"why", batches.why}};
}

namespace {

double gflops(std::int64_t macs, double ms) {
  return ms > 0 ? 2e-6 * static_cast<double>(macs) / ms : 0;
}

// All convolutions together.
struct Convolutions {
  std::int64_t macs = 0;
  double ms = 0;

  void add(const StepInfo& info, double step_ms) {
    if (info.family != LayerFamily::convolution) return;
    macs += info.macs;
    ms += step_ms;
  }
  double share_of(double flops_per_second) const { return 1e9 * gflops(macs, ms) / flops_per_second; }
};

double floor_ms(const StepInfo& info, const MachinePeak& peak) {
  return peak.floor_ms(2 * static_cast<double>(info.macs), static_cast<double>(info.bytes));
}

constexpr double kMostReferenceShare = 0.01;

// "reference", also as a step on the host or between conversions of halves.
bool runs_reference(const Step& step) {
  return step.kernel_name.find(kReference) != std::string::npos;
}

struct ReferenceTime {
  int steps = 0;
  double ms = 0;
  const Step* slowest = nullptr;
  double slowest_ms = 0;
};

ReferenceTime reference_time(const ExecutionPlan& plan, const Profile& profile) {
  ReferenceTime result;
  for (const StepTime& time : profile.steps) {
    const Step& step = plan.steps()[static_cast<std::size_t>(time.step)];
    if (!runs_reference(step)) continue;
    ++result.steps;
    result.ms += time.median_ms;
    if (result.slowest != nullptr && time.median_ms <= result.slowest_ms) continue;
    result.slowest = &step;
    result.slowest_ms = time.median_ms;
  }
  return result;
}

}  // namespace

std::string reference_note(const ExecutionPlan& plan, const Profile& profile) {
  const ReferenceTime time = reference_time(plan, profile);
  if (time.ms <= kMostReferenceShare * profile.layers_ms) return {};
  const StepInfo info = step_info(plan, *time.slowest);
  return fmt::format(
      "note: {} on reference kernels, plain loops, {} {:.4f} of {:.4f} ms ({:.0f}%), most of it '{}' "
      "({}{}{}); "
      "'pipit inspect --why' says why no faster kernel takes it",
      time.steps == 1 ? "1 layer" : fmt::format("{} layers", time.steps), time.steps == 1 ? "takes" : "take",
      time.ms, profile.layers_ms, 100 * time.ms / profile.layers_ms, info.name, info.type,
      info.geometry.empty() ? "" : " ", info.geometry);
}

std::string layer_table(const ExecutionPlan& plan, const Profile& profile, const MachinePeak& peak) {
  using enum Table::Align;
  std::vector<Table::Column> columns{{"#", right},  {"layer"},        {"type"},          {"kernel"},
                                     {"input"},     {"output"},       {"geometry"},      {"MACs", right},
                                     {"ms", right}, {"share", right}, {"GFLOP/s", right}};
  if (peak.known()) columns.insert(columns.end(), {{"floor us", right}, {"x floor", right}});
  Table table(std::move(columns));
  std::int64_t total_macs = 0;
  Convolutions convolutions;
  double floors = 0;
  for (const StepTime& time : profile.steps) {
    const StepInfo info = step_info(plan, plan.steps()[static_cast<std::size_t>(time.step)]);
    total_macs += info.macs;
    convolutions.add(info, time.median_ms);
    std::vector<std::string> row{
        fmt::format("{}", info.index),
        info.name,
        info.type,
        info.kernel,
        info.input.str(),
        info.output.str(),
        info.geometry,
        info.macs > 0 ? with_prefix(static_cast<double>(info.macs)) : "",
        fmt::format("{:.4f}", time.median_ms),
        fmt::format("{:.1f}%", 100 * time.median_ms / profile.layers_ms),
        info.macs > 0 ? fmt::format("{:.1f}", gflops(info.macs, time.median_ms)) : ""};
    if (peak.known()) {
      const double floor = floor_ms(info, peak);
      floors += floor;
      row.push_back(fmt::format("{:.2f}", 1e3 * floor));
      row.push_back(floor > 0 ? fmt::format("{:.1f}", time.median_ms / floor) : "");
    }
    table.add(std::move(row));
  }
  std::string text = table.str();
  text += fmt::format("sum of layers  {:9.4f} ms   {} MACs, {:.1f} GFLOP/s   (median of {} runs)\n",
                      profile.layers_ms, with_prefix(static_cast<double>(total_macs)),
                      gflops(total_macs, profile.layers_ms), profile.runs);
  if (const MicroBatches& batches = plan.micro_batches(); batches.cut()) {
    text += fmt::format("micro-batches  {:9} runs   {}; a layer's time is the sum of them\n", batches.count(),
                        describe(batches));
  }
  const bool on_gpu = profile.graph_ms > 0;
  if (on_gpu)
    text += fmt::format("graph          {:9.4f} ms   device time of one replay\n", profile.graph_ms);
  text += fmt::format("end to end     {:9.4f} ms{}\n", profile.end_to_end_ms,
                      on_gpu ? "   with copies in and out" : "");
  if (!on_gpu) {
    text += fmt::format(
        "unexplained    {:9.4f} ms   {:.2f}% (of it about {:.4f} ms are the profiler's clock reads)\n",
        profile.residual_ms, 100 * profile.residual_ms / profile.end_to_end_ms, profile.overhead_ms);
  }
  if (peak.known()) {
    const double ms = on_gpu ? profile.graph_ms : profile.layers_ms;
    text += fmt::format(
        "floor          {:9.4f} ms   at {:.4g} TFLOP/s and {:.4g} TB/s; {} {:.1f} times as long\n", floors,
        1e-12 * peak.flops_per_second, 1e-12 * peak.bytes_per_second,
        on_gpu ? "the graph takes" : "the layers take", ms / floors);
    if (convolutions.macs > 0) {
      text += fmt::format("convolutions   {:9.4f} ms   {:.1f} GFLOP/s, {:.1f}% of the peak\n",
                          convolutions.ms, gflops(convolutions.macs, convolutions.ms),
                          100 * convolutions.share_of(peak.flops_per_second));
    }
    if (convolutions.macs > 0 && peak.kernel_flops_per_second > 0) {
      text += fmt::format(
          "their kernel   {:9.1f} GFLOP/s on operands in the first-level cache; the convolutions are at "
          "{:.1f}% "
          "of it\n",
          1e-9 * peak.kernel_flops_per_second, 100 * convolutions.share_of(peak.kernel_flops_per_second));
    }
  }
  return text;
}

nlohmann::ordered_json layer_json(const ExecutionPlan& plan, const Profile& profile,
                                  const MachinePeak& peak) {
  nlohmann::ordered_json json;
  json["runs"] = profile.runs;
  add_micro_batches(json, plan.micro_batches());
  json["layers_ms"] = profile.layers_ms;
  json["end_to_end_ms"] = profile.end_to_end_ms;
  json["residual_ms"] = profile.residual_ms;
  json["profiler_overhead_ms"] = profile.overhead_ms;
  json["reference_share"] = reference_time(plan, profile).ms / profile.layers_ms;
  if (profile.graph_ms > 0) json["graph_ms"] = profile.graph_ms;
  if (peak.known()) {
    json["peak_tflops"] = 1e-12 * peak.flops_per_second;
    json["bandwidth_tbs"] = 1e-12 * peak.bytes_per_second;
    json["floor_ms"] = 0.0;  // its place; the sum of the layers' below
  }
  json["layers"] = nlohmann::ordered_json::array();
  double floors = 0;
  Convolutions convolutions;
  for (const StepTime& time : profile.steps) {
    const StepInfo info = step_info(plan, plan.steps()[static_cast<std::size_t>(time.step)]);
    convolutions.add(info, time.median_ms);
    json["layers"].push_back({{"index", info.index},
                              {"name", info.name},
                              {"type", info.type},
                              {"kernel", info.kernel},
                              {"input", info.input.dims()},
                              {"output", info.output.dims()},
                              {"geometry", info.geometry},
                              {"macs", info.macs},
                              {"median_ms", time.median_ms},
                              {"share", time.median_ms / profile.layers_ms},
                              {"gflops", gflops(info.macs, time.median_ms)},
                              {"bytes", info.bytes}});
    if (info.kept < 1) json["layers"].back()["kept"] = info.kept;
    add_choice(json["layers"].back(), plan.steps()[static_cast<std::size_t>(time.step)]);
    if (!peak.known()) continue;
    const double floor = floor_ms(info, peak);
    floors += floor;
    nlohmann::ordered_json& layer = json["layers"].back();
    layer["floor_us"] = 1e3 * floor;
    layer["x_floor"] = floor > 0 ? time.median_ms / floor : 0;
  }
  if (peak.known()) json["floor_ms"] = floors;
  if (peak.known() && convolutions.macs > 0) {
    json["convolutions_ms"] = convolutions.ms;
    json["convolutions_share_of_peak"] = convolutions.share_of(peak.flops_per_second);
    if (peak.kernel_flops_per_second > 0) {
      json["kernel_tflops"] = 1e-12 * peak.kernel_flops_per_second;
      json["convolutions_share_of_kernel"] = convolutions.share_of(peak.kernel_flops_per_second);
    }
  }
  return json;
}

}  // namespace pipit::apps
