#include "pipit/report.h"

#include <fmt/format.h>

#include "engine/base/error.h"
#include "engine/base/parse_json.h"
#include "pipit/detail/checked.h"
#include "pipit/report/html_report.h"
#include "pipit/report/profile_files.h"
#include "pipit/report/times_csv.h"
#include "pipit/sweeping/sweep_csv.h"

namespace pipit::tools {

using namespace internal;
using namespace internal::detail;

namespace {

constexpr int kMaxLevels = 16;

[[noreturn]] void refuse(const std::string& command, const char* form) {
  throw ArgumentError(fmt::format("the JSON of {1} has no {0} form", form, command));
}

std::string written(const JsonDocument& document, const std::string& command, ReportForm form,
                    const std::string& sweep) {
  const bool of_profile = command == "profile";
  switch (form) {
    case ReportForm::json:
      break;
    case ReportForm::csv:
      if (of_profile) return profile_csv(document);
      if (command == "bench") return bench_csv(document);
      if (command == "compare") return compare_csv(document);
      if (command.starts_with("sweep")) return sweep_csv(document);
      refuse(command, "CSV");
    case ReportForm::html: {
      if (!of_profile && !command.starts_with("sweep")) refuse(command, "page");
      if (sweep.empty()) return html_report(document);
      JsonDocument both = document;
      both["sweep"] = parse_json(sweep, kMaxLevels);
      return html_report(both);
    }
    case ReportForm::trace:
      if (!of_profile) refuse(command, "trace");
      return chrome_trace(document);
    case ReportForm::trtexec:
      if (!of_profile || document.contains("results")) refuse(command, "trtexec");
      return trtexec_profile(document);
  }
  return {};
}

}  // namespace

std::string report(const std::string& json, ReportForm form, const std::string& sweep) {
  detail::check_enumerator("form", form, ReportForm::trtexec);
  if (form == ReportForm::json) return json;
  const JsonDocument document = parse_json(json, kMaxLevels);
  try {
    return written(document, document.at("command").get<std::string>(), form, sweep);
  } catch (const nlohmann::json::exception& e) {
    fail("not the JSON of a result: {}", e.what());
  }
}

}  // namespace pipit::tools
