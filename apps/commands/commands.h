// The subcommands of `pipit`, NAME.cpp each; those of `sweep` have files of their own. add_*() declares options and
// installs the callback; a callback stores its exit code in `exit_code` and throws on errors.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pipit::internal::apps {

inline constexpr int kExitOk = 0;
inline constexpr int kExitRuntime = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnsupported = 3;
inline constexpr int kExitCheckFailed = 4;

void add_classify(CLI::App& app, int& exit_code);
void add_evaluate(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_profile(CLI::App& app, int& exit_code);
void add_bench(CLI::App& app, int& exit_code);
void add_compare(CLI::App& app, int& exit_code);
void add_calibrate(CLI::App& app, int& exit_code);
void add_annotate(CLI::App& app, int& exit_code);
void add_quantize(CLI::App& app, int& exit_code);
void add_diff(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_prune(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);
void add_ceilings(CLI::App& app, int& exit_code);
void add_help(CLI::App& app, int& exit_code);
/// With the two subcommands that follow.
void add_sweep(CLI::App& app, int& exit_code);
void add_sweep_conv(CLI::App& sweep, int& exit_code);
void add_sweep_sparsity(CLI::App& sweep, int& exit_code);
void add_models(CLI::App& app, int& exit_code);
void add_fetch(CLI::App& app, int& exit_code);

}  // namespace pipit::internal::apps
