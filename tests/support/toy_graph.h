// Graphs of toy layers, for tests of the planner.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/toy_layers.h"

namespace pipit::internal::test {

/// Values of four elements, and constants whose end can be seen.
class ToyGraphTest : public testing::Test {
 protected:
  ValueId input(const char* name = "x") { return builder_.add_input(name, TensorDesc{Shape({4})}); }
  ValueId add(const char* name, std::vector<ValueId> inputs, bool in_place = false) {
    return builder_.add1(name, std::make_shared<ToyAdd>(in_place), std::move(inputs));
  }
  ValueId constant() {
    auto tensor =
        std::make_shared<const Tensor>(Tensor::from<float>(Shape({4}), std::vector<float>{1, 2, 3, 4}));
    constants_.push_back(tensor);
    return builder_.add_constant("k" + std::to_string(constants_.size()), std::move(tensor));
  }

  GraphBuilder builder_;
  std::vector<std::weak_ptr<const Tensor>> constants_;
};

}  // namespace pipit::internal::test
