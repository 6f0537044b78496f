#include "layers/kernel_tuning.h"

#include <fmt/format.h>

#include "engine/base/file.h"
#include "engine/plan/tuning_cache.h"
#include "pipit/version.h"

namespace pipit::internal {

namespace fs = std::filesystem;

fs::path default_tuning_cache() {
  fs::path folder = cache_folder();
  if (!folder.empty()) folder /= "tuning.json";
  return folder;
}

namespace {

// Asks `checkpoint` before everything that takes time.
class CheckedTimer final : public KernelTimer {
 public:
  CheckedTimer(std::unique_ptr<KernelTimer> timer, std::function<void()> checkpoint)
      : timer_(std::move(timer)), checkpoint_(std::move(checkpoint)) {}
  void load(const NodeSpec& spec) override {
    checkpoint_();
    timer_->load(spec);
  }
  double warm_up(const Kernel& kernel) override {
    checkpoint_();
    return timer_->warm_up(kernel);
  }
  double time(const Kernel& kernel, int runs) override {
    checkpoint_();
    return timer_->time(kernel, runs);
  }

 private:
  std::unique_ptr<KernelTimer> timer_;
  std::function<void()> checkpoint_;
};

}  // namespace

KernelTuning::KernelTuning(bool measures, fs::path file, std::function<void()> checkpoint)
    : measures_(measures), named_(!file.empty()), file_(std::move(file)) {
  if (!named_ && measures_) file_ = default_tuning_cache();
  TunerOptions options;
  options.measures = measures_;
  options.build = fmt::format("pipit {}", version());
  if (checkpoint) {
    options.make_timer = [checkpoint = std::move(checkpoint)](DeviceKind device, const NodeSpec& spec) {
      return std::make_unique<CheckedTimer>(
          device == DeviceKind::cpu ? make_cpu_timer(spec.threads) : make_cuda_timer(spec.gpu), checkpoint);
    };
  }
  tuner_ = std::make_shared<Tuner>(std::move(options));
}

std::shared_ptr<Tuner> KernelTuning::tuner(const PlanOptions& plan) {
  const std::lock_guard lock(mutex_);
  if (!read_ && !file_.empty()) read(plan);
  read_ = true;
  return tuner_;
}

void KernelTuning::read(const PlanOptions& plan) {
  if (std::error_code error; !measures_ && fs::status(file_, error).type() == fs::file_type::not_found)
    fail("{}: there is no such tuning cache; autotuning makes one", file_.string());
  TuningCache cache;
  try {
    cache = read_tuning_cache(file_);
  } catch (const Error& e) {
    if (named_) throw;
    notes_.push_back(fmt::format("{}; timing anew", e.what()));
  }
  const std::string device =
      tuner_->device_key(plan.device, plan.gpu, plan.threads == 0 ? default_threads() : plan.threads);
  if (!cache.empty() && cache.find(device) == cache.end()) {
    notes_.push_back(fmt::format("{}: nothing for {}, only for {}{}; {}", file_.string(), device,
                                 cache.begin()->first,
                                 cache.size() > 1 ? fmt::format(" and {} more", cache.size() - 1) : "",
                                 measures_ ? "timing anew" : "kernels go by order"));
  }
  for (auto& [name, decisions] : cache) tuner_->add_decisions(name, std::move(decisions));
}

void KernelTuning::save() {
  const std::lock_guard lock(mutex_);
  if (!measures_ || !read_ || file_.empty()) return;
  const TuningCache made = tuner_->decisions();
  std::size_t count = 0;
  for (const auto& [device, decisions] : made) count += decisions.size();
  if (count == saved_) return;
  saved_ = count;
  try {
    const std::string problem = merge_tuning_cache(file_, made);
    if (!problem.empty() && !std::exchange(told_of_lock_, true))
      notes_.push_back(problem + "; what other processes add to the times at the same moment may be lost");
  } catch (const Error& e) {
    if (named_) throw;
    notes_.push_back(fmt::format("{}; every run times its kernels anew", e.what()));
  }
}

std::vector<std::string> KernelTuning::take_notes() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notes_, {});
}

}  // namespace pipit::internal
