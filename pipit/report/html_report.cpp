#include "pipit/report/html_report.h"

#include <string_view>

#include "engine/base/embed.h"
#include "engine/base/printable.h"

// The paths are set by pipit/CMakeLists.txt.
PIPIT_EMBED(pipit_report_html, PIPIT_REPORT_HTML_PATH)
PIPIT_EMBED(pipit_report_css, PIPIT_REPORT_CSS_PATH)
PIPIT_EMBED(pipit_report_format, PIPIT_REPORT_FORMAT_JS_PATH)
PIPIT_EMBED(pipit_report_marks, PIPIT_REPORT_MARKS_JS_PATH)
PIPIT_EMBED(pipit_report_timeline, PIPIT_REPORT_TIMELINE_JS_PATH)
PIPIT_EMBED(pipit_report_memory, PIPIT_REPORT_MEMORY_JS_PATH)
PIPIT_EMBED(pipit_report_bars, PIPIT_REPORT_BARS_JS_PATH)
PIPIT_EMBED(pipit_report_roofline, PIPIT_REPORT_ROOFLINE_JS_PATH)
PIPIT_EMBED(pipit_report_table, PIPIT_REPORT_TABLE_JS_PATH)
PIPIT_EMBED(pipit_report_sweep_conv, PIPIT_REPORT_SWEEP_CONV_JS_PATH)
PIPIT_EMBED(pipit_report_sweep_sparsity, PIPIT_REPORT_SWEEP_SPARSITY_JS_PATH)
PIPIT_EMBED(pipit_report_sweep, PIPIT_REPORT_SWEEP_JS_PATH)
PIPIT_EMBED(pipit_report_main, PIPIT_REPORT_MAIN_JS_PATH)

namespace pipit::internal::detail {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxSamples = 1000;

struct Resource {
  const char* begin;
  const char* end;
  std::string_view text() const { return {begin, static_cast<std::size_t>(end - begin)}; }
};

constexpr Resource kScripts[] = {
    {pipit_report_format_begin, pipit_report_format_end},
    {pipit_report_marks_begin, pipit_report_marks_end},
    {pipit_report_timeline_begin, pipit_report_timeline_end},
    {pipit_report_memory_begin, pipit_report_memory_end},
    {pipit_report_bars_begin, pipit_report_bars_end},
    {pipit_report_roofline_begin, pipit_report_roofline_end},
    {pipit_report_table_begin, pipit_report_table_end},
    {pipit_report_sweep_conv_begin, pipit_report_sweep_conv_end},
    {pipit_report_sweep_sparsity_begin, pipit_report_sweep_sparsity_end},
    {pipit_report_sweep_begin, pipit_report_sweep_end},
    {pipit_report_main_begin, pipit_report_main_end},
};

void thin(Json& result) {
  for (Json& layer : result["layers"]) {
    layer.erase("samples_ms");
    layer.erase("timed");
  }
  Json& all = result["samples_ms"];
  if (all.size() <= kMaxSamples) return;
  Json kept = Json::array();
  for (std::size_t i = 0; i < kMaxSamples; ++i) kept.push_back(all[i * all.size() / kMaxSamples]);
  all = std::move(kept);
}

// JSON that stands inside of an element of HTML: no character of it means anything there.
std::string embedded(const Json& json) {
  const std::string text = printable_json(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '<':
        escaped += "\\u003c";
        break;
      case '>':
        escaped += "\\u003e";
        break;
      case '&':
        escaped += "\\u0026";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace

std::string html_report(const Json& document) {
  Json data = document;
  if (data.contains("results")) {
    for (Json& result : data["results"]) thin(result);
  } else if (data.contains("layers")) {
    thin(data);
  } else {
    data = {{"pipit", document.at("pipit")}, {"sweep", document}};
  }
  if (data.contains("sweep")) {
    Json& sweep = data["sweep"];
    for (Json& row : sweep["rows"]) row.erase("samples_ms");
    if (sweep.contains("summaries")) {
      for (Json& summary : sweep["summaries"]) {
        for (Json& row : summary["best_by_size"]) row.erase("samples_ms");
      }
    }
  }
  std::string scripts;
  for (const Resource& script : kScripts) scripts += script.text();
  const Resource css{pipit_report_css_begin, pipit_report_css_end};
  std::string_view page = Resource{pipit_report_html_begin, pipit_report_html_end}.text();
  std::string html;
  // Each mark stands once in the page.
  const auto replace = [&](std::string_view mark, std::string_view by) {
    const std::size_t at = page.find(mark);
    html += page.substr(0, at);
    html += by;
    page.remove_prefix(at + mark.size());
  };
  replace("/*STYLE*/", css.text());
  replace("/*DATA*/", embedded(data));
  replace("/*SCRIPT*/", scripts);
  html += page;
  return html;
}

}  // namespace pipit::internal::detail
