#include <exception>
#include <mutex>
#include <utility>

#include "engine/plan/described_node.h"
#include "engine/plan/plan_building.h"
#include "engine/platform/device.h"

namespace pipit::internal {

namespace {

class KernelMaker {
 public:
  KernelMaker(const PlanSubject& subject, std::vector<StepDraft> drafts)
      : subject_(subject), graph_(subject.graph), drafts_(std::move(drafts)) {}

  std::vector<Step> run() {
    if (subject_.options.device == DeviceKind::cpu) {
      make_in_parallel();
    } else {
      for (StepDraft& draft : drafts_) make(draft);
    }
    std::vector<Step> steps;
    for (StepDraft& draft : drafts_) steps.push_back(std::move(draft.step));
    return steps;
  }

 private:
  // Making is packing, mostly: several kernels at once, but of large nodes one at a time, whose weights are there twice
  // meanwhile. Whichever fails first, the error reported is that of the earliest node.
  void make_in_parallel() {
    constexpr std::size_t kLargeBytes = std::size_t{4} << 20;
    std::mutex large;
    std::vector<std::exception_ptr> errors(drafts_.size());
    shared_pool(subject_.options.threads)->parallel_for(std::ssize(drafts_), [&](std::int64_t d, int) {
      try {
        StepDraft& draft = drafts_[static_cast<std::size_t>(d)];
        std::unique_lock alone(large, std::defer_lock);
        if (constant_bytes(draft.step) >= kLargeBytes) alone.lock();
        make(draft);
      } catch (...) {
        errors[static_cast<std::size_t>(d)] = std::current_exception();
      }
    });
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
  }

  std::size_t constant_bytes(const Step& step) const {
    std::size_t bytes = 0;
    const auto add = [&](int node) {
      for (const ValueId id : node_at(node).inputs) {
        if (id != kNoValue && graph_.value(id).is_constant()) bytes += graph_.value(id).desc.bytes();
      }
    };
    add(step.node);
    for (const int node : step.fused) add(node);
    return bytes;
  }

  void make(StepDraft& draft) const {
    if (draft.step.kernel) return;  // the tuner made it
    const Node& node = node_at(draft.node);
    try {
      draft.step.kernel = draft.candidate->create(DescribedKernel(subject_, draft).spec());
    } catch (const UnsupportedError& e) {
      fail_unsupported("node '{}' ({}, kernel {}): {}", node.name, node.layer->type(), draft.candidate->name,
                       e.what());
    } catch (const Error& e) {
      fail("node '{}' ({}, kernel {}): {}", node.name, node.layer->type(), draft.candidate->name, e.what());
    }
    subject_.constants.drop_packed(node_at(draft.step.node), *draft.step.kernel);
    for (const int fused : draft.step.fused) subject_.constants.drop_all(node_at(fused));
  }

  const Node& node_at(int n) const { return graph_.nodes()[static_cast<std::size_t>(n)]; }

  const PlanSubject& subject_;
  const Graph& graph_;
  std::vector<StepDraft> drafts_;
};

}  // namespace

std::vector<Step> make_kernels(const PlanSubject& subject, std::vector<StepDraft> drafts) {
  return KernelMaker(subject, std::move(drafts)).run();
}

}  // namespace pipit::internal
