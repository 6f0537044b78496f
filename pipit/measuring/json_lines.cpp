#include "pipit/measuring/json_lines.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/file.h"
#include "engine/base/parse_json.h"

namespace pipit::internal::detail {

using Json = nlohmann::ordered_json;

namespace {

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Which settings differ: "bases" is ["fp32"] there, ["int8"] here.
std::string differences(const Json& there, const Json& here) {
  if (!there.is_object() || !there.contains(here.begin().key()))  // not even of this kind
    return fmt::format("it says {}, this is {}", shown(there), shown(here));
  Json keys = here;
  keys.update(there);
  std::string text;
  for (const auto& [key, ignored] : keys.items()) {
    const auto value_in = [&key = key](const Json& of) {
      return of.contains(key) ? shown(of[key]) : "missing";
    };
    if (there.contains(key) && here.contains(key) && there[key] == here[key]) continue;
    text += fmt::format("{}{} is {} there, {} here", text.empty() ? "" : "; ", shown(key), value_in(there),
                        value_in(here));
  }
  return text.empty() ? "its settings are in another order" : text;
}

}  // namespace

JsonLines::JsonLines(std::string path) : path_(std::move(path)) {}

JsonLines::JsonLines(std::string path, const Json& settings, bool resume) : JsonLines(std::move(path)) {
  if (path_.empty()) return;
  std::error_code unknown;
  const std::filesystem::file_status there = std::filesystem::status(path_, unknown);
  if (std::filesystem::exists(there) && !resume) fail("{}: exists already; --resume continues it", path_);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
    fail("{}: is not a regular file", path_);
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("{}: cannot be written: {}", path_, std::strerror(errno));
  // Sweeps that run at the same time disturb each other's times, and would write rows twice.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail("{}: another sweep is writing it; wait until it ends, or name another file", path_);
  if (size() > 0) {
    if (!resume) fail("{}: exists already; --resume continues it", path_);
    read(settings);
  }
  if (size() == 0) append(settings);
}

JsonLines::~JsonLines() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void JsonLines::read(const Json& settings) {
  constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 28;
  constexpr int kMaxLevels = 8;  // settings and rows have three
  const std::string content = read_file(path_, kMaxBytes);
  const std::size_t complete = content.rfind('\n') == std::string::npos ? 0 : content.rfind('\n') + 1;
  // A first line that was cut off is written again; any other content is left alone.
  if (complete == 0 && !line_of(settings).starts_with(content))
    fail("{}: does not hold a sweep: name another file, or remove it", path_);
  std::size_t line = 0;
  for (std::size_t at = 0; at < complete; ++line) {
    const std::size_t end = content.find('\n', at);
    Json json;
    try {
      json = parse_json(std::string_view(content).substr(at, end - at), kMaxLevels);
    } catch (const Error&) {
      if (line == 0) fail("{}: does not hold a sweep: name another file, or remove it", path_);
      fail("{}: line {} is not the JSON of a row; remove the line and --resume measures its row again", path_,
           line + 1);
    }
    at = end + 1;
    if (line == 0 && json != settings)
      fail("{}: is of another sweep: {}; name another file", path_, differences(json, settings));
    if (line > 0) found_.push_back(std::move(json));
  }
  if (complete < content.size() && ::ftruncate(descriptor_, static_cast<off_t>(complete)) != 0)
    fail("{}: {}", path_, std::strerror(errno));
}

std::int64_t JsonLines::size() const {
  struct stat opened = {};
  if (::fstat(descriptor_, &opened) != 0) fail("{}: {}", path_, std::strerror(errno));
  return opened.st_size;
}

void JsonLines::append(const Json& json) {
  if (descriptor_ < 0) return;
  const std::string line = line_of(json);
  for (std::size_t at = 0; at < line.size();) {
    const ssize_t written = ::write(descriptor_, line.data() + at, line.size() - at);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail("{}: {}", path_, std::strerror(errno));
    at += static_cast<std::size_t>(written);
  }
  if (::fsync(descriptor_) != 0 && errno != EINVAL && errno != EROFS)
    fail("{}: {}", path_, std::strerror(errno));
}

}  // namespace pipit::internal::detail
