// Options by the names that the command gives them.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "pipit/capi/handles.h"
#include "pipit/option_values.h"

namespace {

using namespace pipit;
using pipit::ArgumentError;

// What a value is not; pipit_options_set() says which option it was given for.
struct Refused {
  std::string why;
};

struct Option {
  const char* name;
  const char* values;
  void (*set)(pipit_options& options, const std::string& value);
};

template <typename Number>
std::optional<Number> parsed(std::string_view text) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || rest != end) return std::nullopt;
  return number;
}

template <typename Number>
Number number(std::string_view text, Number least, Number most) {
  const std::optional<Number> value = parsed<Number>(text);
  if (!value || *value < least || *value > most)
    throw Refused{"a number from " + std::to_string(least) + " to " + std::to_string(most)};
  return *value;
}

int integer(std::string_view text, int least, int most) {
  return number<int>(text, least, most);
}

bool flag(std::string_view text) {
  if (text != "true" && text != "false") throw Refused{"true or false"};
  return text == "true";
}

std::vector<std::string> parts_of(const std::string& text, char between) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = 0; end != text.npos; begin = end + 1) {
    end = text.find(between, begin);
    parts.push_back(text.substr(begin, end == text.npos ? end : end - begin));
  }
  return parts;
}

// NAME=VALUE.
std::pair<std::string, std::string_view> named(const std::string& text, const char* form) {
  auto value = tools::parse_named_value(text);
  if (value.first.empty()) throw Refused{form};
  return value;
}

constexpr const char* kFiniteNumbers = "three finite numbers, a,b,c";

std::array<float, 3> per_channel(const std::string& text, bool positive) {
  const std::vector<std::string> parts = parts_of(text, ',');
  if (parts.size() != 3) throw Refused{kFiniteNumbers};
  std::array<float, 3> values{};
  for (std::size_t c = 0; c < 3; ++c) {
    const std::optional<float> value = parsed<float>(parts[c]);
    if (!value || !std::isfinite(*value)) throw Refused{kFiniteNumbers};
    if (positive && *value <= 0) throw Refused{"three positive numbers, a,b,c"};
    values[c] = *value;
  }
  return values;
}

// The value of `words`, which are pairs of a word and what it means.
template <typename Words>
auto one_of(const Words& words, const std::string& text) {
  std::string all;
  for (const auto& [word, meaning] : words) {
    if (text == word) return meaning;
    all += all.empty() ? "" : ", ";
    all += word;
  }
  throw Refused{"one of " + all};
}

template <typename T>
using Words = std::vector<std::pair<std::string_view, T>>;

template <typename T>
Words<T> named_by(std::string_view (*name)(T), std::initializer_list<T> values) {
  Words<T> words;
  for (const T value : values) words.emplace_back(name(value), value);
  return words;
}

void set_precision(pipit_options& o, const std::string& v) {
  using enum Precision;
  o.precision = one_of(named_by(precision_name, {fp32, fp16, bf16, int8, int8_dynamic, w8, w4}), v);
}

void set_device(pipit_options& o, const std::string& v) {
  o.load.device.kind = one_of(named_by(device_name, {DeviceKind::cpu, DeviceKind::cuda}), v);
}

void set_scores(pipit_options& o, const std::string& v) {
  Words<ScoreKind> words;
  for (const ScoreKind kind : kScoreKinds) words.emplace_back(score_kind_name(kind), kind);
  o.scores = one_of(words, v);
}

void set_target(pipit_options& o, const std::string& v) {
  using enum tools::QuantizeTarget;
  const Words<tools::QuantizeTarget> words = {
      {"pipit", pipit}, {"tensorrt", tensorrt}, {"onnxruntime", onnxruntime}, {"openvino", openvino}};
  o.target = one_of(words, v);
}

void set_method(pipit_options& o, const std::string& v) {
  using enum tools::RangeMethod;
  const Words<tools::RangeMethod> words = {
      {"minmax", minmax}, {"percentile", percentile}, {"entropy", entropy}, {"mse", mse}};
  o.calibrate.range.method = one_of(words, v);
}

void set_preset(pipit_options& o, const std::string& v) {
  Words<std::string> words;
  const std::vector<std::string> names = preprocess_presets();
  for (const std::string& name : names) words.emplace_back(name, name);
  o.preprocess.preset = one_of(words, v);
}

void set_interpolation(pipit_options& o, const std::string& v) {
  const Words<std::string> words = {{"nearest", v}, {"bilinear", v}, {"bicubic", v}};
  o.preprocess.interpolation = one_of(words, v);
}

void add_dimension(pipit_options& o, const std::string& v) {
  constexpr const char* kForm = "NAME=VALUE with a positive integer";
  const auto [name, text] = named(v, kForm);
  const std::optional<std::int64_t> extent = tools::parse_extent(text);
  if (!extent) throw Refused{kForm};
  o.load.shapes.dimensions.insert_or_assign(name, *extent);
}

void add_shape(pipit_options& o, const std::string& v) {
  constexpr const char* kForm = "NAME=1x3x224x224: 1 to 6 positive integers with x between them";
  const auto [name, text] = named(v, kForm);
  try {
    const std::optional<Shape> shape = tools::parse_shape(text);
    if (!shape) throw Refused{kForm};
    o.load.shapes.inputs.insert_or_assign(name, *shape);
  } catch (const Error& e) {
    throw Refused{std::string(kForm) + " (" + e.what() + ")"};
  }
}

void add_value(pipit_options& o, const std::string& v) {
  constexpr const char* kForm = "NAME=NUMBER or NAME=a,b,c";
  const auto [name, text] = named(v, kForm);
  const std::optional<std::vector<double>> values = tools::parse_numbers(text);
  if (!values) throw Refused{kForm};
  o.load.constants.values.insert_or_assign(name, *values);
}

void add_array(pipit_options& o, const std::string& v) {
  constexpr const char* kForm = "NAME=FILE.npy";
  const auto [name, file] = named(v, kForm);
  if (file.empty()) throw Refused{kForm};
  o.load.constants.arrays.insert_or_assign(name, std::string(file));
}

void set_devices(pipit_options& o, const std::string& v) {
  std::vector<int> gpus;
  for (const std::string& part : parts_of(v, ',')) gpus.push_back(integer(part, 0, 1023));
  o.load.device.gpus = gpus;
}

void add_keep(pipit_options& o, const std::string& v) {
  try {
    tools::check_keep(v);
  } catch (const Error& e) {
    throw Refused{std::string("NAME=PRECISION (") + e.what() + ")"};
  }
  o.int8.keep.push_back(v);
}

void add_kernel(pipit_options& o, const std::string& v) {
  const tools::KernelChoice wish = tools::parse_kernel_choice(v);
  if (wish.name.empty() || wish.name.ends_with('=')) throw Refused{"[TYPE=]KERNEL or [TYPE=]no-KERNEL"};
  (wish.exclude ? o.load.kernels.exclude : o.load.kernels.prefer).push_back(wish.name);
}

void set_dynamic_scales(pipit_options& o, const std::string& v) {
  o.int8_dynamic =
      Int8Dynamic{.per_sample_scales = one_of(Words<bool>{{"per-sample", true}, {"per-tensor", false}}, v)};
}

void set_group_size(pipit_options& o, const std::string& v) {
  o.w4 = W4{.group = one_of(Words<std::int64_t>{{"32", 32}, {"64", 64}, {"128", 128}}, v)};
}

void set_percentile(pipit_options& o, const std::string& v) {
  const std::optional<double> value = parsed<double>(v);
  if (!value || !(*value > 0 && *value <= 100)) throw Refused{"more than 0 and at most 100"};
  o.calibrate.range.percentile = *value;
}

void set_threshold(pipit_options& o, const std::string& v) {
  const std::optional<double> value = parsed<double>(v);
  if (!value || !(*value >= 0 && *value <= 1)) throw Refused{"a number from 0 to 1"};
  o.threshold = *value;
}

constexpr int kMaxSide = PreprocessOptions::kMaxSide;
constexpr int kMaxRuns = 1'000'000'000, kMaxImages = 1'000'000'000;

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
    {"batch", "N", [](O& o, const V& v) { o.load.shapes.batch = integer(v, 1, 65536); }},
    {"dim", "NAME=VALUE", add_dimension},
    {"shape", "NAME=1x3x224x224", add_shape},
    {"value", "NAME=VALUE", add_value},
    {"input", "NAME=FILE.npy", add_array},
    {"output", "NAME", [](O& o, const V& v) { o.load.output = v; }},
    {"device", "cpu|cuda", set_device},
    {"devices", "N,...", set_devices},
    {"allow-fallback", "true|false", [](O& o, const V& v) { o.load.device.allow_fallback = flag(v); }},
    {"threads", "N", [](O& o, const V& v) { o.load.device.threads = integer(v, 0, 1024); }},
    {"precision", "fp32|fp16|bf16|int8|int8-dynamic|w8|w4", set_precision},
    {"plan", "FILE", [](O& o, const V& v) { o.int8.plan = v; }},
    {"keep", "NAME=PRECISION", add_keep},
    {"dynamic-scales", "per-sample|per-tensor", set_dynamic_scales},
    {"group-size", "32|64|128", set_group_size},
    {"kernel", "KERNEL|no-KERNEL", add_kernel},
    {"micro-batch", "N", [](O& o, const V& v) { o.load.kernels.micro_batch = integer(v, 0, 65536); }},
    {"autotune", "true|false",
     [](O& o, const V& v) { o.load.kernels.tuning = flag(v) ? Tuning::all : Tuning::by_order; }},
    {"tuning-cache", "FILE", [](O& o, const V& v) { o.load.kernels.cache = v; }},
    {"preset", "torchvision|timm|caffe|cifar", set_preset},
    {"resize", "N", [](O& o, const V& v) { o.preprocess.resize = integer(v, 0, kMaxSide); }},
    {"crop", "N", [](O& o, const V& v) { o.preprocess.crop = integer(v, 1, kMaxSide); }},
    {"interpolation", "nearest|bilinear|bicubic", set_interpolation},
    {"mean", "a,b,c", [](O& o, const V& v) { o.preprocess.mean = per_channel(v, false); }},
    {"std", "a,b,c", [](O& o, const V& v) { o.preprocess.std = per_channel(v, true); }},
    {"bgr", "true|false", [](O& o, const V& v) { o.preprocess.bgr = flag(v); }},
    {"no-exif-transpose", "true|false",
     [](O& o, const V& v) { o.preprocess.ignore_exif_orientation = flag(v); }},
    {"labels", "FILE", [](O& o, const V& v) { o.labels = v; }},
    {"scores", "logits|softmax|log-softmax|sigmoid|sigmoid-logits", set_scores},
    {"threshold", "N", set_threshold},
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
    {"target", "pipit|tensorrt|onnxruntime|openvino", set_target},
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

void set_option(pipit_options& options, const std::string& name, const std::string& value) {
  const Option* option = std::ranges::find(kOptions, name, &Option::name);
  if (option == std::end(kOptions)) {
    std::string all;
    for (const Option& known : kOptions) {
      all += all.empty() ? "" : ", ";
      all += known.name;
    }
    throw ArgumentError("there is no option '" + name + "'; there are " + all);
  }
  try {
    option->set(options, value);
  } catch (const Refused& refused) {
    throw ArgumentError(name + " is '" + value + "'; expected " + refused.why);
  }
}

}  // namespace

namespace pipit::internal::capi {

ModelPrecision model_precision(const pipit_options& all) {
  const auto only_for = [&](Precision other, bool given, const std::string& what) {
    if (given && all.precision != other)
      throw ArgumentError(what + " is for precision " + std::string(precision_name(other)) + ", not " +
                          std::string(precision_name(all.precision)));
  };
  only_for(Precision::int8, !all.int8.plan.empty(), "the plan " + all.int8.plan.string());
  only_for(Precision::int8, !all.int8.keep.empty(), "keep");
  only_for(Precision::int8_dynamic, all.int8_dynamic.has_value(), "dynamic-scales");
  only_for(Precision::w4, all.w4.has_value(), "group-size");
  if (all.precision == Precision::int8) return all.int8;
  if (all.int8_dynamic) return *all.int8_dynamic;
  if (all.w4) return *all.w4;
  return all.precision;
}

LoadOptions load_options(const pipit_options& all) {
  LoadOptions load = all.load;
  load.precision = model_precision(all);
  return load;
}

ClassifierOptions classifier_options(const pipit_options& all) {
  return {load_options(all), all.preprocess, all.labels, all.scores, all.threshold};
}

}  // namespace pipit::internal::capi

using namespace pipit::internal::capi;

pipit_options* pipit_options_new(pipit_status** status) {
  return made(status, [] { return new pipit_options; });
}

pipit_code pipit_options_set(pipit_options* options, const char* name, const char* value,
                             pipit_status** status) {
  return done(status, [&] {
    need(options, "options");
    need(name, "name");
    need(value, "value");
    set_option(*options, name, value);
  });
}

void pipit_options_free(pipit_options* options) {
  delete options;
}

size_t pipit_option_count(void) {
  return std::size(kOptions);
}

const char* pipit_option_name(size_t index) {
  return index < std::size(kOptions) ? kOptions[index].name : nullptr;
}

const char* pipit_option_values(size_t index) {
  return index < std::size(kOptions) ? kOptions[index].values : nullptr;
}
