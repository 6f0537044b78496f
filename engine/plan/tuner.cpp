#include "engine/plan/tuner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/platform/device.h"
#include "engine/platform/machine_identity.h"

namespace pipit::internal {

namespace {

// A kernel this many times slower than the best is given up after its estimate.
constexpr double kHopeless = 3;
// One that is slower than the best by this share of it after a turn of both, half of it after two, a third after three,
// is given up too: most of many variants are far slower, and timing them to the end would take most of a choice's time.
constexpr double kBehind = 0.3;
// Smaller differences are not worth it, and those whose interval holds zero may be noise: the earlier candidate keeps
// the node.
constexpr double kTie = 0.03;
// A first run this long needs no second one for its estimate, in milliseconds.
constexpr double kMaxRepeatedMs = 50;
// What may be spent on one node: timed turns of each contender after its estimate, in which short runs are repeated for
// about kSampleMs milliseconds, at most kMaxRuns times; no further turn once all runs together took kNodeMs, and no
// further contender after four times that.
constexpr int kRounds = 5, kMinRounds = 3;
constexpr double kSampleMs = 0.5;
constexpr int kMaxRuns = 20;
constexpr double kNodeMs = 3000;

// Whether the second of two kernels was the faster in turns of both: the 99 % interval of the mean difference of their
// times' logarithms (Student's t) lies below zero, whatever the machine did meanwhile to both.
bool is_faster(std::span<const double> differences) {
  constexpr double kQuantiles[] = {63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355};
  const std::size_t n = differences.size();
  if (n < 2) return false;
  const double count = static_cast<double>(n);
  const double mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  double squares = 0;
  for (const double d : differences) squares += (d - mean) * (d - mean);
  const double quantile = kQuantiles[std::min(n - 2, std::size(kQuantiles) - 1)];
  return mean + quantile * std::sqrt(squares / (count - 1) / count) < 0;
}

bool can_be_made_up(DType type) {
  return type != DType::i32 && type != DType::i64 && type != DType::boolean;
}

std::string describe(const TensorDesc& desc) {
  return desc.str() + (desc.layouts_coincide()                ? ""
                       : desc.layout == Layout::channels_last ? " nhwc"
                                                              : " nchw");
}

}  // namespace

struct Tuner::Contender {
  const Candidate* candidate = nullptr;
  std::string variant;
  std::unique_ptr<Kernel> kernel;
  double ms = std::numeric_limits<double>::infinity();
};

std::string_view chosen_by_name(ChosenBy by) {
  switch (by) {
    case ChosenBy::order:
      return "order";
    case ChosenBy::preference:
      return "preference";
    case ChosenBy::measurement:
      return "measurement";
    case ChosenBy::cache:
      return "cache";
  }
  return "?";
}

std::string node_key(const NodeSpec& spec) {
  std::string key = spec.layer.identity(Reals::kind) + ";";
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    key += !spec.has_input(i) ? " -"
                              : fmt::format(" {}{}", spec.constant(i) != nullptr ? "constant " : "",
                                            describe(*spec.inputs[i]));
    key += i + 1 < spec.inputs.size() ? "," : "";
  }
  key += " ->";
  for (const TensorDesc& output : spec.outputs) key += " " + describe(output);
  return key + "; " + std::string(precision_name(spec.precision));
}

namespace {

// node_key() and what candidates say of the weights, in whole percents: a percent more or less changes no order.
std::string decision_key(const NodeSpec& spec, std::span<const Candidate* const> accepting) {
  std::string key = node_key(spec);
  for (const Candidate* candidate : accepting) {
    const double share = candidate->kept_share ? candidate->kept_share(spec) : 1;
    if (share < 1) key += fmt::format("; {} keeps {:.0f} %", candidate->name, 100 * share);
  }
  return key;
}

}  // namespace

std::string Tuner::device_key(DeviceKind device, int gpu, int threads) const {
  const std::string name = machine_identity(device, gpu, threads);
  return options_.build.empty() ? name : fmt::format("{}; {}", name, options_.build);
}

std::vector<Tuner::Contender> Tuner::contenders(const NodeSpec& spec,
                                                std::span<const Candidate* const> accepting) {
  std::vector<Contender> list;
  for (const Candidate* candidate : accepting) {
    if (candidate->name == kReference && accepting.size() > 1) continue;
    std::vector<std::string> variants;
    if (candidate->variants) variants = candidate->variants(spec);
    if (variants.empty()) variants.emplace_back();
    for (std::string& variant : variants) list.push_back({candidate, std::move(variant), nullptr});
  }
  return list;
}

// The candidate that the decision names, if it still is there and knows the variant; null otherwise.
const Candidate* Tuner::candidate_of(const Decision& decision, const NodeSpec& spec,
                                     std::span<const Candidate* const> accepting) {
  for (const Candidate* candidate : accepting) {
    if (candidate->name != decision.kernel) continue;
    std::vector<std::string> variants;
    if (candidate->variants) variants = candidate->variants(spec);
    if (variants.empty()) variants.emplace_back();
    const bool known = std::find(variants.begin(), variants.end(), decision.variant) != variants.end();
    return known ? candidate : nullptr;
  }
  return nullptr;
}

KernelTimer& Tuner::timer(DeviceKind device, const NodeSpec& spec) {
  std::unique_ptr<KernelTimer>& timer =
      timers_[{device, device == DeviceKind::cuda ? spec.gpu : spec.threads}];
  if (!timer) {
    timer = options_.make_timer          ? options_.make_timer(device, spec)
            : device == DeviceKind::cuda ? make_cuda_timer(spec.gpu)
                                         : make_cpu_timer(spec.threads);
  }
  return *timer;
}

// Keeps two kernels at most: each holds its packed weights.
Tuner::Decision Tuner::measure(KernelTimer& timer, const NodeSpec& spec, std::vector<Contender>& list,
                               Contender*& winner) {
  double spent = 0;
  const auto run = [&](Contender& contender, int runs) {
    const double ms = timer.time(*contender.kernel, runs);
    spent += ms * runs;
    return ms;
  };
  std::vector<std::string> problems(list.size());
  Contender* best = nullptr;
  for (std::size_t i = 0; i < list.size(); ++i) {
    Contender& contender = list[i];
    if (best != nullptr && spent > 4 * kNodeMs) {
      problems[i] = "not timed: the time for this node was used up";
      continue;
    }
    std::vector<double> differences;  // from the best to the contender, turn by turn
    try {
      NodeSpec own = spec;
      own.variant = contender.variant;
      contender.kernel = contender.candidate->create(own);
      contender.ms = timer.warm_up(*contender.kernel);
      spent += contender.ms;
      if (contender.ms < kMaxRepeatedMs) contender.ms = run(contender, 1);
      if (best != nullptr && contender.ms > kHopeless * best->ms) {
        contender.kernel.reset();
        continue;
      }
      // Times of a turn; the least of a kernel's is kept.
      const auto take_turn = [&](Contender& turn) {
        const double repeats =
            std::clamp(kSampleMs / std::max(turn.ms, 1e-6), 1.0, static_cast<double>(kMaxRuns));
        const double ms = run(turn, static_cast<int>(repeats));
        turn.ms = std::min(turn.ms, ms);
        return std::log(std::max(ms, 1e-9));
      };
      // What looks faster gets the turns that an interval needs, also where they take long.
      const auto has_time = [&](int round) {
        return spent <= kNodeMs || (best != nullptr && round < kMinRounds && contender.ms < best->ms);
      };
      for (int round = 0; round < kRounds && has_time(round); ++round) {
        if (best == nullptr) {
          take_turn(contender);
          continue;
        }
        const double before = take_turn(*best);
        differences.push_back(take_turn(contender) - before);
        if (contender.ms > best->ms * (1 + kBehind / (round + 1))) break;
      }
    } catch (const Error& e) {
      contender.kernel.reset();
      problems[i] = e.what();
      continue;
    }
    if (best != nullptr && (contender.ms >= best->ms * (1 - kTie) || !is_faster(differences))) {
      contender.kernel.reset();
      continue;
    }
    if (best != nullptr) best->kernel.reset();
    best = &contender;
  }
  winner = best;
  Decision decision;
  if (best != nullptr) decision = {best->candidate->name, best->variant, {}, false};
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Contender& c = list[i];
    decision.timed.push_back(
        {c.candidate->name, c.variant, problems[i].empty() ? c.ms : 0, std::move(problems[i])});
  }
  return decision;
}

void Tuner::free_operands() {
  const std::lock_guard lock(mutex_);
  timers_.clear();
}

Tuner::Selected Tuner::choose(DeviceKind device, const NodeSpec& spec,
                              std::span<const Candidate* const> accepting) {
  const auto by_order = [&](std::string note, std::vector<TimedKernel> timed = {}) {
    return Selected{accepting[0], {}, nullptr, {ChosenBy::order, std::move(timed), std::move(note)}};
  };
  std::vector<Contender> list = contenders(spec, accepting);
  if (list.size() < 2) return by_order({});

  const std::lock_guard lock(mutex_);
  Decisions& known = decisions_[device_key(device, spec.gpu, spec.threads)];
  const std::string key = decision_key(spec, accepting);
  if (const auto found = known.find(key); found != known.end()) {
    const Decision& decision = found->second;
    const Candidate* candidate = candidate_of(decision, spec, accepting);
    if (candidate != nullptr) {
      const ChosenBy by = decision.cached ? ChosenBy::cache : ChosenBy::measurement;
      return {candidate, decision.variant, nullptr, {by, decision.timed, {}}};
    }
  }
  if (!options_.measures) return by_order({});
  for (std::size_t i = 0; i < spec.inputs.size(); ++i) {
    if (spec.has_input(i) && spec.constant(i) == nullptr && !can_be_made_up(spec.inputs[i]->dtype))
      return by_order(fmt::format("input {} is {}: not timed on made-up values", i, spec.inputs[i]->str()));
  }
  KernelTimer& clock = timer(device, spec);
  try {
    clock.load(spec);
  } catch (const Error& e) {
    return by_order(e.what());
  }
  Contender* winner = nullptr;
  Decision decision = measure(clock, spec, list, winner);
  if (winner == nullptr) return by_order("no kernel could be timed", std::move(decision.timed));
  Choice choice{ChosenBy::measurement, decision.timed, {}};
  known.insert_or_assign(key, std::move(decision));
  return {winner->candidate, winner->variant, std::move(winner->kernel), std::move(choice)};
}

void Tuner::add_decisions(const std::string& device, Decisions decisions) {
  const std::lock_guard lock(mutex_);
  for (auto& entry : decisions) {
    entry.second.cached = true;
    decisions_[device].try_emplace(entry.first, std::move(entry.second));
  }
}

std::map<std::string, Tuner::Decisions> Tuner::decisions() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Decisions> made;
  for (const auto& [device, decisions] : decisions_) {
    for (const auto& [key, decision] : decisions) {
      if (!decision.cached) made[device].emplace(key, decision);
    }
  }
  return made;
}

}  // namespace pipit::internal
