#include "engine/platform/products.h"

#include <array>

#include "engine/base/error.h"

namespace pipit::internal {

namespace {

constexpr std::array<std::string_view, 5> kProductNames = {"fp32", "fp16", "int8", "int16", "bf16"};

}  // namespace

std::string_view products_name(Products products) {
  return kProductNames.at(static_cast<std::size_t>(products));
}

Products find_products(std::string_view name) {
  for (std::size_t i = 0; i < kProductNames.size(); ++i) {
    if (kProductNames[i] == name) return static_cast<Products>(i);
  }
  fail("no products are called '{}'; there are fp32, fp16, bf16, int8 and int16", name);
}

}  // namespace pipit::internal
