#include "apps/display/stage_progress.h"

namespace pipit::internal::apps {

tools::StageProgress StageProgress::callbacks() {
  tools::StageProgress calls;
  calls.planned = [this](const std::vector<tools::Stage>& stages) {
    std::vector<Progress::Stage> plan;
    for (const tools::Stage& stage : stages) plan.push_back({stage.name, stage.share});
    bar_.emplace(what_, std::move(plan), quiet_);
    stages_.clear();
    for (const tools::Stage& stage : stages) stages_.emplace(stage.name, bar_->stage(stage.name));
  };
  calls.update = [this](const std::string& stage, std::int64_t done, std::int64_t total) {
    const auto found = stages_.find(stage);
    if (found != stages_.end()) found->second(done, total);
  };
  return calls;
}

void StageProgress::end() {
  bar_.reset();
}

}  // namespace pipit::internal::apps
