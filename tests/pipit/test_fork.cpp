// A child of a process that has loaded and run models.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#include "pipit/pipit.h"

namespace {

// The exit code of a child that runs `child`; -1 where it does not end by itself.
int exit_code_of_child(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(300);
    _exit(child());
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class Fork : public testing::Test {
 protected:
  std::vector<float> answer(pipit::ModelSession& session) const {
    const std::vector<float> image(3 * 32 * 32, 0.25F);
    const auto scores = session.run({{image, pipit::Shape{1, 3, 32, 32}}})[0].values<float>();
    return {scores.begin(), scores.end()};
  }

  static pipit::LoadOptions two_threads() {
    pipit::LoadOptions options;
    options.device.threads = 2;
    return options;
  }

  std::unique_ptr<pipit::CompiledModel> model_ =
      std::make_unique<pipit::CompiledModel>("resnet20-cifar10", two_threads());
};

TEST_F(Fork, AChildRunsItsParentsSession) {
  pipit::ModelSession session = model_->session();
  const std::vector<float> expected = answer(session);
  EXPECT_EQ(exit_code_of_child([&] { return answer(session) == expected ? 0 : 1; }), 0);
  EXPECT_EQ(answer(session), expected);
}

TEST_F(Fork, AChildLoadsMakesAndFrees) {
  std::vector<float> expected;
  {
    pipit::ModelSession session = model_->session();
    expected = answer(session);
  }
  EXPECT_EQ(exit_code_of_child([&] {
              pipit::ModelSession of_parents = model_->session();
              const pipit::CompiledModel own("resnet20-cifar10", two_threads());
              pipit::ModelSession of_own = own.session();
              if (answer(of_parents) != expected || answer(of_own) != expected) return 1;
              model_.reset();
              return 0;
            }),
            0);
}

TEST_F(Fork, AChildThatDoesNothingEnds) {
  pipit::ModelSession session = model_->session();
  answer(session);
  EXPECT_EQ(exit_code_of_child([]() -> int { std::exit(0); }), 0);
}

}  // namespace
