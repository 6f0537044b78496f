#include "pipit/sweeping/sweep_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "pipit/measuring/json_documents.h"
#include "pipit/sweeping/conv_rows.h"
#include "pipit/sweeping/layer_times.h"
#include "pipit/sweeping/sparsity_rows.h"
#include "pipit/text.h"

namespace pipit::internal::detail {

namespace {

constexpr std::uint64_t kMaxSweepBytes = std::uint64_t{256} << 20;
constexpr int kMaxSweepLevels = 12;

// One of the three kinds of sweep. Members of a sweep in JSON and columns of CSV have the same names.
struct Kind {
  const char* sweep;
  const char* settings;  // a member of what describes a sweep in JSON
  int version;
  const char* titles;  // how the first line of CSV begins
};
constexpr Kind kKinds[] = {
    {"sweep conv", "pipit_sweep_conv", kConvSweepVersion, "device,threads,n,in,out,"},
    {"sweep sparsity", "pipit_sweep", kSparsitySweepVersion, "device,threads,layer,precision,"},
};

// What is there of a row, in JSON or in CSV; without times where it did not run.
SweptRow row_of(const Kind& kind, const JsonDocument& json) {
  SweptRow row;
  row.how = text_of(json, "precision");
  if (&kind == &kKinds[0]) {
    const auto extent = [&](const char* key) { return count_of(json, key); };
    row.layer = tools::ConvPoint{extent("n"),    extent("in"),     extent("out"),
                                 extent("size"), extent("kernel"), extent("stride")}
                    .name();
    if (const std::string backend = text_of(json, "backend"); backend != "auto") row.how += ", " + backend;
  } else {
    row.layer = text_of(json, "layer");
    row.how += ", " + text_of(json, "mode");
    if (const double keep = share_of(json, "keep"); keep != 1) row.how += fmt::format(", keep {:g}", keep);
  }
  if (!json.contains("problem")) row.processes.push_back(times_of(json).samples_ms);
  return row;
}

// Nothing of it is used but what row_of() takes; a row that is wrong in something else is no row of a sweep either.
void check_row(const Kind& kind, const JsonDocument& json) {
  if (&kind == &kKinds[0]) {
    conv_row_from(json);
  } else {
    sparsity_row_from(json);
  }
}

class SweepReader {
 public:
  explicit SweepReader(const Kind& kind) : kind_(kind) { found_.sweep = kind.sweep; }

  void add_machine(const JsonDocument& json) {
    const std::string device = text_of(json, "device");
    const auto threads = static_cast<int>(count_of(json, "threads"));
    // CSV has neither, nor has what older versions wrote.
    std::string machine = json.contains("machine") ? text_of(json, "machine") : std::string();
    if (json.contains("pipit")) machine += ", pipit " + text_of(json, "pipit");
    if (found_.threads != 0 &&
        (device != found_.device || threads != found_.threads || machine != machine_)) {
      const bool unlike = machine != machine_ && !machine.empty() && !machine_.empty();
      fail("rows of {} with {} threads and of {} with {}: compare one with the other",
           unlike ? machine_ : found_.device, found_.threads, unlike ? machine : device, threads);
    }
    found_.device = device;
    found_.threads = threads;
    machine_ = std::move(machine);
  }
  void add_row(SweptRow row) {
    const std::string key = row.layer + '\n' + row.how;
    if (!of_process_.insert(key).second) fail_repeated(row.layer + ", " + row.how);
    const auto [at, is_new] = places_.try_emplace(key, found_.rows.size());
    if (is_new) {
      found_.rows.push_back(std::move(row));
    } else if (!row.processes.empty()) {
      found_.rows[at->second].processes.push_back(std::move(row.processes[0]));
    }
  }
  void add_json_row(const JsonDocument& json) {
    check_row(kind_, json);
    add_row(row_of(kind_, json));
  }
  // What describes a sweep, alone or with the rows; or a row.
  void add(const JsonDocument& json) {
    const auto version = json.is_object() ? json.find(kind_.settings) : json.end();
    if (version == json.end()) return add_json_row(json);
    of_process_.clear();
    if (*version != kind_.version)
      fail("its form is {}; this version of pipit reads {}", shown(*version), kind_.version);
    add_machine(json);
    if (!json.contains("rows")) return;
    for_each_entry(json, "rows", [&](const JsonDocument& row) { add_json_row(row); });
  }
  SweptRows take() {
    if (found_.rows.empty()) fail("there is no row in it");
    return std::move(found_);
  }

 private:
  const Kind& kind_;
  SweptRows found_;
  std::string machine_;  // with the version
  std::map<std::string, std::size_t> places_;
  std::set<std::string> of_process_;  // what the present one has
};

// The cells of the first line of `text` (RFC 4180), which is taken away.
std::vector<std::string> csv_cells(std::string_view& text) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  std::size_t at = 0;
  for (; at < text.size() && (quoted || text[at] != '\n'); ++at) {
    const char c = text[at];
    if (c == '"' && quoted && at + 1 < text.size() && text[at + 1] == '"') {
      cells.back() += text[++at];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      cells.emplace_back();
    } else if (c != '\r' || quoted) {
      cells.back() += c;
    }
  }
  text.remove_prefix(std::min(at + 1, text.size()));
  return cells;
}

JsonDocument number_from(const std::string& cell) {
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  return error == std::errc() && end == cell.data() + cell.size() ? JsonDocument(number) : JsonDocument(cell);
}

// A cell as JSON has it. What is empty there is not there.
void add_cell(JsonDocument& row, const std::string& title, const std::string& cell) {
  if (cell.empty()) return;
  if (title == "samples_ms") {
    std::istringstream words(cell);
    for (std::string word; words >> word;) row[title].push_back(number_from(word));
  } else if (title == "layer" || title == "problem") {
    row[title] = cell;
  } else if (title == "ms_low" || title == "ms_high") {
    row["ms_quartiles"].push_back(number_from(cell));
  } else {
    row[title] = number_from(cell);
  }
}

SweptRows read_csv(std::string_view text, const Kind& kind) {
  SweepReader reader(kind);
  const std::vector<std::string> titles = csv_cells(text);
  for (std::size_t line = 2; !text.empty(); ++line) {
    const std::vector<std::string> cells = csv_cells(text);
    if (cells.size() != titles.size())
      fail("row {}: {} cells under {} titles", line, cells.size(), titles.size());
    JsonDocument row = JsonDocument::object();
    for (std::size_t c = 0; c < cells.size(); ++c) add_cell(row, titles[c], cells[c]);
    try {
      reader.add_machine(row);
      reader.add_row(row_of(kind, row));
    } catch (const Error& e) {
      fail("row {}: {}", line, e.what());
    }
  }
  return reader.take();
}

}  // namespace

void fail_repeated(const std::string& key) {
  fail("there is a row of {} already; a file has a row once for each process", printable(key));
}

std::string SweptRows::text() const {
  return fmt::format("{}, {}, {}", sweep, counted(std::ssize(rows), "row"), counted(threads, "thread"));
}

std::optional<SweptRows> read_sweep(const std::string& path) {
  const std::string content = read_file(path, kMaxSweepBytes);
  for (const Kind& kind : kKinds) {
    try {
      if (content.starts_with(kind.titles)) return read_csv(content, kind);
      if (!content.starts_with('{')) continue;
      JsonDocument first;
      try {
        first = first_document(content, kMaxSweepLevels);
      } catch (const Error&) {
        return std::nullopt;  // other readers report what is wrong
      }
      if (!first.contains(kind.settings)) continue;
      SweepReader reader(kind);
      for_each_document(content, kMaxSweepLevels, [&](const JsonDocument& json) { reader.add(json); });
      return reader.take();
    } catch (const Error& e) {
      fail("{}: {}", path, e.what());
    }
  }
  return std::nullopt;
}

}  // namespace pipit::internal::detail
