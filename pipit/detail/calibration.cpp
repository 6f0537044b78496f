#include "pipit/detail/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/runtime/session.h"
#include "layers/passes/passes.h"
#include "models/prepared_images.h"
#include "pipit/detail/stages.h"
#include "quant/bias_correction.h"
#include "quant/calibration.h"
#include "quant/equalize.h"
#include "quant/hash.h"
#include "quant/weighted_layer.h"

namespace pipit::internal::detail {

namespace {

// Ranges are extremes: of images that are drawn alike, the next one exceeds that of 31 with a probability of 1 in 32.
constexpr std::size_t kMinImages = 32;

// What is told of images without labels: how alike they are, and how the model answers them.
class ImageObserver {
 public:
  ImageObserver(const Graph& graph, Calibrated& done)
      : graph_(graph), done_(done), answer_(computed_values(graph)[index(graph.outputs().at(0))]) {}

  void begin(std::span<const ConstTensorView> batch, std::int64_t images) {
    images_ = images;
    const TensorDesc& desc = batch[0].desc;
    if (desc.dtype != DType::f32 || desc.layout != Layout::row_major) return;
    if (desc.shape.rank() == 0 || desc.shape[0] < images) return;
    const auto row = static_cast<std::size_t>(desc.elements() / desc.shape[0]);
    const auto channels = static_cast<std::size_t>(desc.shape.rank() > 2 ? desc.shape[1] : 1);
    for (std::size_t i = 0; i < static_cast<std::size_t>(images); ++i)
      done_.likeness.add({batch[0].as<float>() + i * row, row}, channels);
  }
  void after_step(const Step& step, std::span<const TensorView> outputs) {
    const Node& node = graph_.nodes()[static_cast<std::size_t>(step.node)];
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      if (node.outputs[o] == answer_) add_answers(outputs[o]);
    }
  }

 private:
  void add_answers(const TensorView& scores) {
    const TensorDesc& desc = scores.desc;
    if (desc.dtype != DType::f32 || desc.shape.rank() == 0 || desc.shape[0] < images_) return;
    const std::int64_t row = desc.elements() / desc.shape[0];
    for (std::int64_t i = 0; i < images_; ++i) {
      const float* values = scores.as<float>() + i * row;
      done_.best.push_back(std::max_element(values, values + row) - values);
    }
  }

  const Graph& graph_;
  Calibrated& done_;
  ValueId answer_;
  std::int64_t images_ = 1;
};

// What the first batch normalization reads, which is folded in the session that is calibrated.
class StatisticsObserver {
 public:
  StatisticsObserver(const StoredStatistics& stored, const PlanOptions& planning) : stored_(stored) {
    CompileOptions how;
    how.planning = planning;
    session_.emplace(compile(stored.graph, how).plans[0]);
  }
  void begin(std::span<const ConstTensorView> batch, std::int64_t images) {
    const ConstTensorView& values = session_->run(batch)[0];
    moments_.add(values, std::min(images, values.desc.shape[0]));
  }
  std::optional<StatisticsDifference> difference() const { return moments_.difference(stored_); }

 private:
  const StoredStatistics& stored_;
  std::optional<Session> session_;
  ChannelMoments moments_;
};

// Ranges, and where they are needed channel means, what is told of images, and statistics.
class Observers final : public RunObserver {
 public:
  explicit Observers(CalibrationObserver& ranges, ChannelMeans* means = nullptr,
                     ImageObserver* images = nullptr, StatisticsObserver* statistics = nullptr)
      : ranges_(ranges), means_(means), images_(images), statistics_(statistics) {}
  void begin(std::span<const ConstTensorView> batch, std::int64_t images) {
    ranges_.begin(batch, images);
    if (means_ != nullptr) means_->begin(batch, images);
    if (images_ != nullptr) images_->begin(batch, images);
    if (statistics_ != nullptr) statistics_->begin(batch, images);
  }
  void after_step(const Step& step, std::span<const ConstTensorView> inputs,
                  std::span<const TensorView> outputs) override {
    ranges_.after_step(step, inputs, outputs);
    if (means_ != nullptr) means_->after_step(step, inputs, outputs);
    if (images_ != nullptr) images_->after_step(step, outputs);
  }

 private:
  CalibrationObserver& ranges_;
  ChannelMeans* means_;
  ImageObserver* images_;
  StatisticsObserver* statistics_;
};

void observe(Session& session, const std::string& model, Observers observers, PreparedImages& prepared,
             const ImagesDone& progress) {
  session.set_observer(&observers);
  prepared.for_each_batch(
      [&](std::span<const ConstTensorView> batch, std::int64_t first, std::int64_t count) {
        observers.begin(batch, prepared.inputs().rows(count));
        naming(model, [&] { session.run(batch); });
        if (progress) progress(first + count, prepared.size());
      });
  session.set_observer(nullptr);
}

std::vector<CalibrationImage> identify(const std::vector<std::filesystem::path>& images,
                                       const ImageNames& names, ThreadPool& pool) {
  std::vector<CalibrationImage> out(images.size());
  pool.parallel_for(static_cast<std::int64_t>(images.size()), [&](std::int64_t i, int) {
    const std::filesystem::path& path = images[static_cast<std::size_t>(i)];
    out[static_cast<std::size_t>(i)] = {names.of(path), hash_file(path)};
  });
  std::set<std::string_view> seen;
  for (const CalibrationImage& image : out) {
    if (!seen.insert(image.path).second) fail("image {} is given twice", image.path);
  }
  return out;
}

// Empty where all are different.
std::string copies_note(const std::vector<CalibrationImage>& images) {
  std::set<std::string_view> hashes;
  for (const CalibrationImage& image : images) hashes.insert(image.hash);
  const std::size_t copies = images.size() - hashes.size();
  if (copies == 0) return {};
  return fmt::format("{} of the {} images calibrated on {} the same bytes as {}; each counts", copies,
                     images.size(), copies == 1 ? "has" : "have", copies == 1 ? "another" : "others");
}

}  // namespace

ImagesDone stage_report(const tools::StageProgress& progress, const std::string& stage) {
  if (!progress.update) return [](std::int64_t, std::int64_t) {};
  return [&progress, stage](std::int64_t done, std::int64_t total) {
    stopping([&] { progress.update(stage, done, total); });
  };
}

void need_floating_point(const Model& model, std::string_view act) {
  if (is_quantized(model.graph))
    fail_unsupported(
        "{} is quantized already: its scales are in the file; {} the model that it was made from", model.name,
        act);
}

QuantizationPlan empty_plan(const Model& model, const Preprocess& preprocess) {
  QuantizationPlan plan;
  plan.model = model.name;
  plan.model_hash = hash_model(model.graph);
  plan.preprocess = to_json(preprocess);
  return plan;
}

Session calibration_session(const std::string& model, Graph fused, PlanOptions planning,
                            std::vector<std::string>& notes) {
  if (weighted_layers(fused).empty())
    fail_unsupported(
        "{}: nothing to quantize: it has no convolution or fully connected layer with constant weights",
        model);
  planning.device = DeviceKind::cpu;
  planning.precision = Precision::fp32;
  planning.keep_every_value = true;
  planning.tuner.reset();
  CompileOptions how;
  how.planning = std::move(planning);
  how.fused = true;
  return naming(model, [&] {
    Compiled compiled = compile(std::move(fused), how);
    notes.insert(notes.end(), compiled.notes.begin(), compiled.notes.end());
    return Session(compiled.plans[0]);
  });
}

Graph equalized(QuantizationPlan& plan, const Graph& fused, std::vector<std::string>& notes) {
  plan.equalized = equalization(fused);
  if (plan.equalized.empty())
    notes.emplace_back(
        "nothing to equalize: no convolution is read by one other alone, with at most a relu between");
  return equalize(fused, plan.equalized);
}

void set_observed(QuantizationPlan& plan, const CalibrationObserver& observer) {
  plan.tensors.clear();
  for (const CalibrationObserver::Observed& o : observer.observed()) {
    TensorScale tensor;
    tensor.name = o.name;
    tensor.histogram = o.histogram;
    plan.tensors.push_back(std::move(tensor));
  }
}

std::vector<std::string> calibration_notes(const QuantizationPlan& plan) {
  std::vector<std::string> notes;
  const std::size_t used = plan.images.size();
  if (used < kMinImages)
    notes.push_back(fmt::format(
        "{} few to calibrate on: another one exceeds the range of a tensor with a probability of 1 in {}; "
        "{} or more are better",
        used == 1 ? "1 image is" : fmt::format("{} images are", used), used + 1, kMinImages));
  if (std::string note = copies_note(plan.images); !note.empty()) notes.push_back(std::move(note));
  for (std::string& note : scale_notes(plan)) notes.push_back(std::move(note));
  return notes;
}

Calibrated calibrate_on(QuantizationPlan& plan, const std::string& model, Graph fused,
                        const Preprocess& preprocess, const std::vector<std::filesystem::path>& images,
                        const ImageNames& names, PlanOptions planning, const Corrections& corrections,
                        const ImagesDone& progress, bool strict, const ImageChecks& checks) {
  Calibrated done;
  std::vector<std::string>& notes = done.notes;
  if (corrections.equalize) fused = equalized(plan, fused, notes);
  const Graph weights = corrections.bias_correction ? fused : Graph{};
  Session session = calibration_session(model, std::move(fused), std::move(planning), notes);
  CalibrationObserver observer(session.plan(), session.pool());
  std::optional<StatisticsObserver> statistics;
  if (checks.stored) statistics.emplace(*checks.stored, session.plan().options());
  std::optional<ChannelMeans> means;
  if (corrections.bias_correction) means.emplace(session.plan().graph());
  const Graph& graph = session.plan().graph();
  PreparedImages prepared(images, preprocess, SampleInputs(graph),
                          shared_pool(session.plan().options().threads));
  if (!strict) prepared.skip_unreadable();
  ImageObserver image_observer(graph, done);
  observe(
      session, model,
      Observers(observer, means ? &*means : nullptr, &image_observer, statistics ? &*statistics : nullptr),
      prepared, progress);
  if (statistics) done.statistics = statistics->difference();
  done.peaks = observer.peaks();
  if (!checks.later.empty()) {
    CalibrationObserver later_observer(session.plan(), session.pool());
    PreparedImages others(checks.later, preprocess, SampleInputs(graph),
                          shared_pool(session.plan().options().threads));
    others.skip_unreadable();
    observe(session, model, Observers(later_observer), others, {});
    for (std::size_t t = 0; t < done.peaks.size(); ++t) {
      const std::vector<float>& more = later_observer.peaks()[t].peaks;
      done.peaks[t].peaks.insert(done.peaks[t].peaks.end(), more.begin(), more.end());
    }
  }
  done.unreadable = prepared.unreadable();
  plan.images = identify(prepared.paths(), names, session.pool());
  sort_images(plan);
  set_observed(plan, observer);
  set_scales(plan);
  for (std::string& note : calibration_notes(plan)) notes.push_back(std::move(note));
  if (!means) return done;
  plan.corrected = bias_correction(weights, plan, *means);
  const bool changed = std::any_of(plan.corrected.begin(), plan.corrected.end(), [](const auto& node) {
    return std::any_of(node.deltas.begin(), node.deltas.end(), [](float delta) { return delta != 0; });
  });
  if (!changed) notes.emplace_back("no bias was corrected: rounding the weights changes no mean");
  return done;
}

}  // namespace pipit::internal::detail
