// A file that grows by a line of JSON at a time and survives being cut off.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace pipit::internal::detail {

/// Lines after a first one that says what they are of. A line is there in full or, after a crash, cut off at the end
/// of the file, and then taken away when it is opened again.
class JsonLines {
 public:
  /// `settings`: what two runs must share for their lines to stand side by side. With `resume` the lines of an existing
  /// file are read; otherwise there must be none. Without a path nothing is written. Throws Error for an existing file,
  /// other settings, lines that are no JSON, and while another process has the file open.
  JsonLines(std::string path, const nlohmann::ordered_json& settings, bool resume);
  ~JsonLines();
  JsonLines(const JsonLines&) = delete;
  JsonLines& operator=(const JsonLines&) = delete;

  /// The lines that were there, without the first one. Line i of them is line i + 2 of the file.
  const std::vector<nlohmann::ordered_json>& found() const { return found_; }
  /// Throws Error when it cannot be written; it is on the disk when this returns.
  void append(const nlohmann::ordered_json& line);

 private:
  explicit JsonLines(std::string path);  // so that what the other one opens is closed when it throws
  void read(const nlohmann::ordered_json& settings);
  std::int64_t size() const;

  std::string path_;
  int descriptor_ = -1;
  std::vector<nlohmann::ordered_json> found_;
};

}  // namespace pipit::internal::detail
