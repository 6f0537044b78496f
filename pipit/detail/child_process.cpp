#include "pipit/detail/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "engine/base/error.h"

namespace pipit::internal::detail {

namespace {

struct Descriptor {
  int number = -1;
  ~Descriptor() {
    if (number >= 0) close(number);
  }
};

// While it lives children that end can be waited for, which some supervisors have switched off for what they start.
class ChildrenStay {
 public:
  ChildrenStay() {
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &usual, &before_);
  }
  ~ChildrenStay() { sigaction(SIGCHLD, &before_, nullptr); }
  ChildrenStay(const ChildrenStay&) = delete;
  ChildrenStay& operator=(const ChildrenStay&) = delete;

 private:
  struct sigaction before_ = {};
};

// Spawns the program with stdout going to `output`.
pid_t spawn(const std::vector<std::string>& command, int output) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  // What the parent ignores its children would ignore, and their own children would be gone when they wait for them.
  sigset_t usual;
  sigemptyset(&usual);
  sigaddset(&usual, SIGCHLD);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t child = -1;
  const int problem = posix_spawnp(&child, arguments[0], &actions, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (problem == ENOENT) fail("there is no {} in PATH", command[0]);
  if (problem != 0) fail("{} cannot be run: {}", command[0], std::strerror(problem));
  return child;
}

int wait_for(pid_t child, const std::string& name) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail("{}: {}", name, std::strerror(errno));
  }
  if (WIFSIGNALED(status)) fail("{} was ended by signal {}", name, WTERMSIG(status));
  return WEXITSTATUS(status);
}

bool has_ended(pid_t child) {
  siginfo_t info = {};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// Whether something can be read, or the end, within some milliseconds.
bool is_ready(int descriptor, int milliseconds) {
  pollfd waited = {descriptor, POLLIN, 0};
  return poll(&waited, 1, milliseconds) > 0;
}

// What is written by the time that the child ends: what it has started may keep the pipe open for ever. False where
// that is more than `most_bytes`, or where reading fails.
bool read_all(pid_t child, int descriptor, std::size_t most_bytes, std::string& output) {
  constexpr int kPause = 50;
  std::vector<char> block(std::size_t{1} << 16);
  int left = -1;  // bytes; known when the child has ended
  while (left != 0) {
    if (left < 0 && has_ended(child) && ioctl(descriptor, FIONREAD, &left) != 0) return false;
    if (left == 0) break;
    if (left < 0 && !is_ready(descriptor, kPause)) continue;
    const std::size_t wanted =
        left < 0 ? block.size() : std::min(block.size(), static_cast<std::size_t>(left));
    const ssize_t count = read(descriptor, block.data(), wanted);
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) break;
    if (count < 0 || output.size() + static_cast<std::size_t>(count) > most_bytes) return false;
    output.append(block.data(), static_cast<std::size_t>(count));
    if (left > 0) left -= static_cast<int>(count);
  }
  return true;
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& command, std::size_t most_bytes) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) fail("{}: {}", command[0], std::strerror(errno));
  const Descriptor reading{ends[0]};
  const ChildrenStay stay;
  pid_t child = -1;
  {
    const Descriptor writing{ends[1]};
    child = spawn(command, writing.number);
  }
  ChildResult result;
  if (!read_all(child, reading.number, most_bytes, result.output)) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    fail("{} wrote more than {} bytes, or could not be read", command[0], most_bytes);
  }
  result.exit_code = wait_for(child, command[0]);
  return result;
}

}  // namespace pipit::internal::detail
