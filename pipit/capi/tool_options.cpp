// Options of what pipit::tools does, by the names that the command gives them.
#include <algorithm>

#include "pipit/capi/option_parsing.h"

namespace pipit::internal::capi {

namespace {

constexpr int kMaxRuns = 1'000'000'000, kMaxImages = 1'000'000'000;

void set_target(pipit_options& o, const std::string& v) {
  using enum tools::QuantizeTarget;
  const Words<tools::QuantizeTarget> words = {
      {"pipit", pipit}, {"tensorrt", tensorrt}, {"onnxruntime", onnxruntime}, {"openvino", openvino}};
  o.target = one_of(words, v);
}

void set_rounding(pipit_options& o, const std::string& v) {
  using enum tools::Rounding;
  o.rounding = one_of(named_by(tools::rounding_name, {nearest, second_order}), v);
}

void set_method(pipit_options& o, const std::string& v) {
  using enum tools::RangeMethod;
  const Words<tools::RangeMethod> words = {
      {"minmax", minmax}, {"percentile", percentile}, {"entropy", entropy}, {"mse", mse}};
  o.calibrate.range.method = one_of(words, v);
}

void set_percentile(pipit_options& o, const std::string& v) {
  const std::optional<double> value = parsed<double>(v);
  if (!value || !(*value > 0 && *value <= 100)) throw Refused{"more than 0 and at most 100"};
  o.calibrate.range.percentile = *value;
}

void set_against(pipit_options& o, const std::string& v) {
  tools::Baseline& base = o.evaluate.against.emplace();
  for (const Precision precision : {Precision::fp32, Precision::fp16, Precision::bf16}) {
    if (v != precision_name(precision)) continue;
    base.precision = precision;
    return;
  }
  base.model = v;
}

void set_max_drop(pipit_options& o, const std::string& v) {
  const std::optional<double> value = parsed<double>(v);
  if (!value || !(*value >= 0)) throw Refused{"a number of 0 or more, points"};
  o.evaluate.max_drop = o.prune.goal.max_drop = o.tune.max_drop = *value;
}

double nonnegative(const std::string& v) {
  const std::optional<double> value = parsed<double>(v);
  if (!value || !(*value >= 0)) throw Refused{"a number of 0 or more"};
  return *value;
}

// The values of "a,b,c", each as `value` reads it.
template <typename Read>
auto list_of(const std::string& text, Read value) {
  std::vector<decltype(value(text))> values;
  for (const std::string& part : parts_of(text, ',')) values.push_back(value(part));
  return values;
}

std::vector<std::int64_t> extents(const std::string& v, std::int64_t most = 65536) {
  return list_of(v, [most](const std::string& part) { return number<std::int64_t>(part, 1, most); });
}

void set_precisions(pipit_options& o, const std::string& v) {
  using enum Precision;
  const Words<Precision> words = named_by(precision_name, {fp32, fp16, bf16, int8});
  o.conv.precisions = o.sparsity.precisions =
      list_of(v, [&](const std::string& part) { return one_of(words, part); });
}

void set_keep_as(pipit_options& o, const std::string& v) {
  using enum Precision;
  o.tune.keep_as = one_of(named_by(precision_name, {fp32, fp16, bf16}), v);
}

void set_modes(pipit_options& o, const std::string& v) {
  using enum tools::SparsityMode;
  const Words<tools::SparsityMode> words = {
      {"k", k},         {"k-panel", k_panel}, {"channel", channel},
      {"block", block}, {"input", input},     {"input-panel", input_panel}};
  o.sparsity.modes = list_of(v, [&](const std::string& part) { return one_of(words, part); });
}

void set_keep_ratios(pipit_options& o, const std::string& v) {
  o.sparsity.keeps = list_of(v, [](const std::string& part) {
    const std::optional<double> value = parsed<double>(part);
    if (!value || !(*value >= 0.05 && *value <= 1)) throw Refused{"numbers from 0.05 to 1, with commas"};
    return *value;
  });
}

void set_importance(pipit_options& o, const std::string& v) {
  using enum tools::Importance;
  const Words<tools::Importance> words = {
      {"l1", l1}, {"l2", l2}, {"activation", activation}, {"second-order", second_order}};
  o.prune.importance = o.sparsity.importance = one_of(words, v);
}

void set_seconds(pipit_options& o, const std::string& v) {
  o.bench.seconds = o.conv.run.seconds = o.sparsity.run.seconds = nonnegative(v);
}

void set_mode(pipit_options& o, const std::string& v) {
  using enum tools::PruneMode;
  const Words<tools::PruneMode> words = {
      {"auto", automatic}, {"k", rows}, {"channel", channels}, {"block", blocks}, {"input", inputs}};
  o.prune.mode = one_of(words, v);
}

void set_judge_by(pipit_options& o, const std::string& v) {
  const Words<tools::JudgeBy> words = {{"labels", tools::JudgeBy::labels}, {"model", tools::JudgeBy::model}};
  o.prune.goal.judge_by = o.tune.judge_by = one_of(words, v);
}

using O = pipit_options;
using V = std::string;

const Option kOptions[] = {
    {"method", "minmax|percentile|entropy|mse", set_method},
    {"percentile", "N", set_percentile},
    {"per-tensor-weights", "true|false",
     [](O& o, const V& v) { o.calibrate.per_channel_weights = !flag(v); }},
    {"equalize", "true|false", [](O& o, const V& v) { o.calibrate.equalize = flag(v); }},
    {"bias-correction", "true|false", [](O& o, const V& v) { o.calibrate.bias_correction = flag(v); }},
    {"strict", "true|false",
     [](O& o, const V& v) {
       o.calibrate.strict = o.evaluate.strict = o.prune.strict = o.tune.strict = o.diff.strict = flag(v);
     }},
    {"skip", "N", [](O& o, const V& v) { o.calibrate.skip = integer(v, 0, kMaxImages); }},
    {"limit", "N",
     [](O& o, const V& v) {
       o.calibrate.limit = o.evaluate.limit = o.prune.limit = o.tune.limit = o.diff.limit =
           integer(v, 0, kMaxImages);
     }},
    {"truth", "FILE", [](O& o, const V& v) { o.evaluate.truth = v; }},
    {"against", "fp32|fp16|bf16|MODEL", set_against},
    {"max-drop", "N", set_max_drop},
    {"keep-ratio", "N", [](O& o, const V& v) { o.prune.goal.keep = nonnegative(v); }},
    {"global", "true|false", [](O& o, const V& v) { o.prune.goal.global = flag(v); }},
    {"target-speedup", "N", [](O& o, const V& v) { o.prune.goal.speedup = nonnegative(v); }},
    {"search-seconds", "N", [](O& o, const V& v) { o.prune.goal.seconds = nonnegative(v); }},
    {"judge-by", "labels|model", set_judge_by},
    {"mode", "auto|k|channel|block|input", set_mode},
    {"no-refit", "true|false", [](O& o, const V& v) { o.prune.refit = o.sparsity.refit = !flag(v); }},
    {"check", "IMAGES", [](O& o, const V& v) { o.prune.check = o.calibrate.check.folder = v; }},
    {"calibrate-limit", "N",
     [](O& o, const V& v) { o.prune.calibrate_limit = o.tune.calibrate_limit = integer(v, 0, kMaxImages); }},
    {"importance", "l1|l2|activation|second-order", set_importance},
    {"group", "N", [](O& o, const V& v) { o.sparsity.group = *(o.prune.group = integer(v, 0, 16)); }},
    {"panel", "N", [](O& o, const V& v) { o.prune.panel = o.sparsity.panel = integer(v, 0, 32); }},
    {"block", "4|8|16|32",
     [](O& o, const V& v) {
       const Words<std::int64_t> words = {{"4", 4}, {"8", 8}, {"16", 16}, {"32", 32}};
       o.prune.block = o.sparsity.block = one_of(words, v);
     }},
    {"confidence", "N", [](O& o, const V& v) { o.tune.confidence = nonnegative(v); }},
    {"keep-as", "fp32|fp16|bf16", set_keep_as},
    {"share-limit", "N", [](O& o, const V& v) { o.diff.share_limit = integer(v, 0, kMaxImages); }},
    {"fast", "true|false", [](O& o, const V& v) { o.diff.shares = !flag(v); }},
    {"rtol", "N", [](O& o, const V& v) { o.verify.rtol = nonnegative(v); }},
    {"atol", "N", [](O& o, const V& v) { o.verify.atol = nonnegative(v); }},
    {"norm", "N", [](O& o, const V& v) { o.verify.norm = nonnegative(v); }},
    {"kept", "true|false", [](O& o, const V& v) { o.kept_ceilings = flag(v); }},
    {"n", "N,...", [](O& o, const V& v) { o.conv.grid.batch = extents(v); }},
    {"in", "N,...", [](O& o, const V& v) { o.conv.grid.in = extents(v); }},
    {"out", "N,...", [](O& o, const V& v) { o.conv.grid.out = extents(v); }},
    {"size", "N,...", [](O& o, const V& v) { o.conv.grid.size = extents(v); }},
    {"kernel-size", "N,...", [](O& o, const V& v) { o.conv.grid.kernel = extents(v, 255); }},
    {"stride", "N,...", [](O& o, const V& v) { o.conv.grid.stride = extents(v, 255); }},
    {"all", "true|false", [](O& o, const V& v) { o.conv.grid.all = flag(v); }},
    {"sample", "N", [](O& o, const V& v) { o.conv.sample = number<std::size_t>(v, 0, kMaxRuns); }},
    {"seed", "N", [](O& o, const V& v) { o.conv.seed = number<unsigned>(v, 0, 4294967295U); }},
    {"precisions", "fp32|fp16|bf16|int8,...", set_precisions},
    {"backend", "auto|KERNEL,...", [](O& o, const V& v) { o.conv.backends = parts_of(v, ','); }},
    {"base", "fp32|fp16|bf16|int8|cudnn|cudnn-best,...",
     [](O& o, const V& v) { o.conv.bases = parts_of(v, ','); }},
    {"results", "FILE", [](O& o, const V& v) { o.conv.run.results = o.sparsity.run.results = v; }},
    {"resume", "true|false", [](O& o, const V& v) { o.conv.run.resume = o.sparsity.run.resume = flag(v); }},
    {"layer", "NxCxHxW:OxRxS", [](O& o, const V& v) { o.sparsity.layers.push_back(v); }},
    {"modes", "k|k-panel|channel|block|input|input-panel,...", set_modes},
    {"keep-ratios", "N,...", set_keep_ratios},
    {"activations", "u8|s8",
     [](O& o, const V& v) {
       o.signed_activations = one_of(Words<bool>{{"u8", false}, {"s8", true}}, v);
     }},
    {"weight-bits", "8|4",
     [](O& o, const V& v) {
       o.weight_bits = one_of(Words<int>{{"8", 8}, {"4", 4}}, v);
     }},
    {"target", "pipit|tensorrt|onnxruntime|openvino", set_target},
    {"rounding", "nearest|second-order", set_rounding},
    {"images", "IMAGES", [](O& o, const V& v) { o.round_images.emplace_back(v); }},
    {"runs", "N", [](O& o, const V& v) { o.bench.runs = o.profile.runs = integer(v, 1, kMaxRuns); }},
    {"warmup", "N",
     [](O& o, const V& v) {
       o.profile.warmup = integer(v, 0, kMaxRuns);
       o.bench.warmup = std::max(o.profile.warmup, 1);
     }},
    {"floor", "true|false", [](O& o, const V& v) { o.profile.floors = o.conv.floor = flag(v); }},
    {"seconds", "N", set_seconds},
    {"streams", "N", [](O& o, const V& v) { o.bench.streams = {integer(v, 1, 1024)}; }},
    {"fail-above", "N", [](O& o, const V& v) { o.bench.max_slowdown = nonnegative(v); }},
};

}  // namespace

std::span<const Option> tool_options() {
  return kOptions;
}

}  // namespace pipit::internal::capi
