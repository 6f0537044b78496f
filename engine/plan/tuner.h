// Tuner: chooses among the kernels of a node by times on the node's own shapes, which it takes or was given.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/registry.h"

namespace pipit::internal {

/// What one kernel took, or why it has no time.
struct TimedKernel {
  std::string name;
  std::string variant;  ///< empty where the candidate has none
  double ms = 0;        ///< of one run; 0 where `problem` says why there is none
  std::string problem;
};

enum class ChosenBy : std::uint8_t {
  order,        ///< the first candidate that accepts
  preference,   ///< PlanOptions asked for it by name
  measurement,  ///< the fastest of those timed by this tuner, here or on an equal node before
  cache,        ///< the fastest of those timed in an earlier process
};
std::string_view chosen_by_name(ChosenBy by);

/// How a node came to its kernel.
struct Choice {
  ChosenBy by = ChosenBy::order;
  std::vector<TimedKernel> timed;  ///< in the order of preference; empty where nothing was timed
  std::string note;                ///< why nothing was timed although it was asked for; else empty
};

/// Runs kernels of one node on operands of its own. Times are of the device, without the host's share where the two
/// overlap.
class KernelTimer {
 public:
  virtual ~KernelTimer() = default;
  /// Allocates operands for the node, instead of the previous node's, and fills the inputs that are no constants
  /// with pseudo-random values (fill_operand). Throws Error when memory is not to be had.
  virtual void load(const NodeSpec& spec) = 0;
  /// Runs a kernel that was made for the loaded node once, before it is timed. Its milliseconds may include what only a
  /// first run needs.
  virtual double warm_up(const Kernel& kernel) = 0;
  /// Milliseconds of one run after that, judged from `runs` runs, or more where the clock is too coarse for so few or
  /// has more at hand. The kernel is the one that was warmed up, not another in its memory.
  virtual double time(const Kernel& kernel, int runs) = 0;
};

/// Each run starts with the second-level caches full of other data, as the layers in between leave them: otherwise
/// kernels with large packed weights would look better than they are. The fastest of the runs counts.
std::unique_ptr<KernelTimer> make_cpu_timer(int threads);
/// Runs are launched back to back from a captured graph, as a session launches its steps, and the mean counts.
/// Operands stay in the second-level cache as far as they fit, as they do from one layer to the next.
std::unique_ptr<KernelTimer> make_cuda_timer(int gpu);

/// Pseudo-random values: floats in [-1, 1) without denormals, 8-bit integers from 1 to 127, wider integers 1.
void fill_operand(const TensorView& host);

struct TunerOptions {
  /// Without: nothing is timed, and nodes that add_decisions() brought nothing for go by order.
  bool measures = true;
  /// Part of the device's name in decisions: what else their validity depends on (version, instruction set).
  std::string build;
  /// For tests; empty: make_cpu_timer or make_cuda_timer.
  std::function<std::unique_ptr<KernelTimer>(DeviceKind, const NodeSpec&)> make_timer;
};

/// May be shared by the plans of one process, also from several threads.
class Tuner {
 public:
  explicit Tuner(TunerOptions options) : options_(std::move(options)) {}

  /// The fastest kernel for one geometry.
  struct Decision {
    std::string kernel;
    std::string variant;
    std::vector<TimedKernel> timed;
    bool cached = false;  ///< came through add_decisions
  };
  /// Per geometry (node_key, and shares that candidates keep), of one device.
  using Decisions = std::map<std::string, Decision, std::less<>>;

  struct Selected {
    const Candidate* candidate = nullptr;
    std::string variant;
    std::unique_ptr<Kernel> kernel;  ///< null: create it with `variant`
    Choice choice;
  };
  /// Chooses among candidates that accept the node, given in order of preference (at least one). Each pair of
  /// candidate and variant runs once to warm up and once for an estimate; those within three times the best so far
  /// are then timed in turns with it, and win only if they are faster by more than 3 % and the interval of the
  /// difference (99 %) says that they are. Equal nodes are timed once, on the first one's constants. A candidate named
  /// kReference is timed only where no other accepts. Nodes with inputs that are neither floating-point nor 8-bit go by
  /// order: made-up indices would not be valid.
  Selected choose(DeviceKind device, const NodeSpec& spec, std::span<const Candidate* const> accepting);

  /// Frees what kernels were timed on; the decisions stay.
  void free_operands();

  /// Decisions of an earlier process about the device with this device_key. One about a kernel or variant that is
  /// not there any more is made anew.
  void add_decisions(const std::string& device, Decisions decisions);
  /// The decisions that this tuner made itself, by device_key.
  std::map<std::string, Decisions> decisions() const;

  /// The device, its driver and libraries or its threads, and TunerOptions::build.
  std::string device_key(DeviceKind device, int gpu, int threads) const;

 private:
  struct Contender;
  static const Candidate* candidate_of(const Decision& decision, const NodeSpec& spec,
                                       std::span<const Candidate* const> accepting);
  static std::vector<Contender> contenders(const NodeSpec& spec, std::span<const Candidate* const> accepting);
  static Decision measure(KernelTimer& timer, const NodeSpec& spec, std::vector<Contender>& contenders,
                          Contender*& winner);
  KernelTimer& timer(DeviceKind device, const NodeSpec& spec);

  TunerOptions options_;
  mutable std::mutex mutex_;
  std::map<std::string, Decisions> decisions_;
  std::map<std::pair<DeviceKind, int>, std::unique_ptr<KernelTimer>> timers_;
};

/// Type and attributes (Layer::identity with Reals::kind: scales do not matter), descs and precision of a node: equal
/// nodes take equally long, but for what Candidate::kept_share() says of their weights.
std::string node_key(const NodeSpec& spec);

}  // namespace pipit::internal
