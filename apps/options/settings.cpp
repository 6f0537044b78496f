#include "apps/options/settings.h"

#include <algorithm>

#include "apps/options/list_option.h"
#include "apps/options/values.h"

namespace pipit::internal::apps {

void SettingLists::add_to(CLI::App& command) {
  add_choices(command, "--precision", precisions, precision_names(),
              "Arithmetic of the kernels; bf16 is fast on CPUs with AMX or AVX512-BF16 and on GPUs; "
              "int8 has the scales of --plan, int8-dynamic finds its own at run time; w8 and w4 store "
              "the weights of fully connected layers and 1x1 convolutions in 8 or 4 bits and compute in f32, "
              "on a GPU as in fp16 "
              "[fp32]");
  add_list(command, "--batch", batches, CLI::Range(std::int64_t{1}, std::int64_t{65536}),
           "Images per run (for models that leave the batch open) [1, or what the file fixes]");
  add_list(command, "--threads", threads, thread_count(),
           "CPU threads; 0: all CPUs this process may use [0]");
}

void SettingLists::add_streams_to(CLI::App& command) {
  add_list(
      command, "--streams", streams, CLI::Range(1, 1024),
      "Sessions of one plan that run at once, which share its weights: on the CPU each with its share of "
      "--threads, on a GPU each on a CUDA stream of its own. Rows then show throughput, and the times of "
      "single runs while the other streams run");
}

void SettingLists::check(const CommonOptions& given) const {
  const auto listed = [&](const char* name) {
    return std::ranges::find(precisions, name) != precisions.end();
  };
  for (const std::string& name : precisions) {
    CommonOptions common = given;
    common.precision = apps::precisions().at(name);
    if (common.precision != Precision::int8 && listed("int8")) {
      common.plan.clear();
      common.keep.clear();
    }
    if (common.precision != Precision::w4 && listed("w4")) common.group_size.reset();
    if (common.precision != Precision::int8_dynamic && listed("int8-dynamic")) common.dynamic_scales.clear();
    common.check_precision();
    common.need_plan();
  }
}

void SettingLists::add_to(tools::TimingOptions& options, const CommonOptions& common) const {
  for (const std::string& name : precisions)
    options.precisions.push_back(common.with_options(apps::precisions().at(name)));
  options.batches = batches;
  options.threads = threads;
}

std::size_t SettingLists::count() const {
  return precisions.size() * std::max<std::size_t>(batches.size(), 1) * threads.size();
}

}  // namespace pipit::internal::apps
