#include "apps/display/stage_progress.h"

namespace pipit::internal::apps {

tools::StageProgress StageProgress::callbacks() {
  tools::StageProgress calls;
  calls.planned = [this](const std::vector<tools::Stage>& stages) {
    std::vector<Progress::Stage> plan;
    for (const tools::Stage& stage : stages) plan.push_back({stage.name, stage.share, stage.seconds});
    report_ = {};
    bar_.emplace(what_, std::move(plan), quiet_);
  };
  calls.update = [this, name = std::string(), last = std::int64_t{0}](
                     const std::string& stage, std::int64_t done, std::int64_t total) mutable {
    if (!bar_) return;
    if (!report_ || stage != name || done < last)
      report_ = bar_->stage(stage);  // the next one, or one that is repeated
    name = stage;
    last = done;
    report_(done, total);
  };
  return calls;
}

void StageProgress::end() {
  bar_.reset();
}

}  // namespace pipit::internal::apps
