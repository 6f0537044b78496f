// Options of models and images, by the names that the command gives them; and of both kinds together.
#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "pipit/capi/option_parsing.h"
#include "pipit/option_values.h"

namespace {

using namespace pipit;
using namespace pipit::internal::capi;

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

void set_precision(pipit_options& o, const std::string& v) {
  using enum Precision;
  o.has_precision = true;
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

void set_threshold(pipit_options& o, const std::string& v) {
  const std::optional<double> value = parsed<double>(v);
  if (!value || !(*value >= 0 && *value <= 1)) throw Refused{"a number from 0 to 1"};
  o.threshold = *value;
}

constexpr int kMaxSide = PreprocessOptions::kMaxSide;

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
};

// Those of models and images, then those of tools.
const Option* option_at(std::size_t index) {
  if (index < std::size(kOptions)) return &kOptions[index];
#ifndef PIPIT_MINIMAL
  index -= std::size(kOptions);
  if (index < tool_options().size()) return &tool_options()[index];
#endif
  return nullptr;
}

[[noreturn]] void refuse(const std::string& name, const std::string& value, const std::string& why) {
  throw ArgumentError(name + " is '" + value + "'; expected " + why);
}

void set_option(pipit_options& options, const std::string& name, const std::string& value) {
  std::string all;
  for (std::size_t i = 0; const Option* option = option_at(i); ++i) {
    if (option->name == name) {
      try {
        option->set(options, value);
        return;
      } catch (const Refused& refused) {
        refuse(name, value, refused.why);
      }
    }
    all += all.empty() ? "" : ", ";
    all += option->name;
  }
  throw ArgumentError("there is no option '" + name + "'; there are " + all);
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

pipit_code pipit_options_set_progress(pipit_options* options, pipit_progress progress, void* user,
                                      pipit_status** status) {
  return done(status, [&] {
    need(options, "options");
    options->progress = {progress, user};
  });
}

void pipit_options_free(pipit_options* options) {
  delete options;
}

size_t pipit_option_count(void) {
  std::size_t count = 0;
  while (option_at(count) != nullptr) ++count;
  return count;
}

const char* pipit_option_name(size_t index) {
  const Option* option = option_at(index);
  return option == nullptr ? nullptr : option->name;
}

const char* pipit_option_values(size_t index) {
  const Option* option = option_at(index);
  return option == nullptr ? nullptr : option->values;
}
