// Reading small files, and writing files that are there in full or not at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace pipit::internal {

/// Whether nothing has the name `path`; false where that cannot be found out, and for all that is there.
bool is_missing(const std::filesystem::path& path);

/// Whether `path` is a folder, links followed; false where that cannot be found out.
bool is_folder(const std::filesystem::path& path);

/// The content of a regular file of at most `most_bytes`. Throws Error, beginning with the path: for what is not there,
/// for a folder, a pipe or a device (which could deliver for ever), for a larger file, and when reading fails.
std::string read_file(const std::filesystem::path& path, std::uint64_t most_bytes);

/// Throws the Error that write_file() could be expected to throw: no folder to write in, no permission, a folder of
/// that name. For commands that would otherwise find out after hours. Leaves everything as it is.
void check_writable(const std::filesystem::path& path);

/// Writes a file beside `path` and renames it into place, so that readers see the old content or the new, and an
/// error or interrupt leaves what was there. A file that is replaced keeps its mode, and its owner where this user may
/// say so. A link stays and leads to the new content; a device or pipe is written to, never replaced, and what this
/// process has open, under a name as /dev/stdout, is added to. Throws Error, beginning with the path, when that fails.
void write_file(const std::filesystem::path& path, std::string_view content);

/// The only code that creates pipit's files (.ci/check_writers.py): a file without a name, or with one that cannot be
/// guessed, in the same folder, which gets its name when it is whole. One that is not finished leaves nothing.
class FileWriter {
 public:
  enum class Existing {
    replaced,  ///< as write_file() says
    kept,      ///< an Error where anything, a link included, has the name by then
  };
  /// All throw Error, beginning with the path, where they fail.
  explicit FileWriter(std::filesystem::path path, Existing existing = Existing::replaced);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  void write(std::string_view content);
  /// The last call: all is on the disk, and the file is there.
  void finish();

 private:
  void open_device();
  void open_named();
  void settle();
  void give_name();
  void move_to_named();

  std::filesystem::path path_;
  Existing existing_;
  std::filesystem::path target_;     // empty: a device or pipe, written in place
  std::filesystem::path temporary_;  // empty: without a name
  int descriptor_ = -1;
};

/// Copies a file of any size to a name that nothing has yet. Throws Error where either cannot be.
void copy_as_new(const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether both are files of the same bytes, or one file.
bool same_content(const std::filesystem::path& a, const std::filesystem::path& b);

/// While it lives other threads and processes of this user that make one for the same file wait: for changes of that
/// file that begin with reading it. The lock is on PATH.lock, which exists only while it is held and which only this
/// user may open: anyone who can open a file can keep it locked. Others wait for at most `patience`, and not at all
/// where another user has put something in its place; then they go on, and problem() says so. On file systems without
/// locks there is no lock.
class FileLock {
 public:
  static constexpr std::chrono::milliseconds kPatience{5000};
  explicit FileLock(const std::filesystem::path& path, std::chrono::milliseconds patience = kPatience);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// Why others may change the file at the same time, beginning with the name of the lock; empty: they may not.
  const std::string& problem() const { return problem_; }

 private:
  enum class Try { locked, held, foreign, unlocked };
  Try try_once();

  std::filesystem::path name_;
  int descriptor_ = -1;
  std::string problem_;
};

/// Where pipit keeps what it can make again: $PIPIT_CACHE_DIR, else $XDG_CACHE_HOME/pipit, else ~/.cache/pipit; empty
/// where none of these variables is set (the last two: to an absolute path). May not be there yet. Throws Error where
/// PIPIT_CACHE_DIR is a relative path, which would be another folder after each change of the current one.
std::filesystem::path cache_folder();

}  // namespace pipit::internal
