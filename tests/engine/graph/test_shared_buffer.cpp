#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "engine/graph/shared_buffer.h"

namespace pipit::internal {
namespace {

HostBuffer filled(std::size_t bytes, int value) {
  HostBuffer buffer(bytes);
  std::fill_n(buffer.data(), bytes, static_cast<std::byte>(value));
  return buffer;
}

TEST(SharedBuffer, EqualContentIsHeldOnce) {
  constexpr std::size_t kBytes = 100'003;
  const SharedBuffer first(filled(kBytes, 1)), second(filled(kBytes, 1));
  EXPECT_EQ(first.data(), second.data());
  EXPECT_EQ(second.bytes(), kBytes);
  EXPECT_NE(SharedBuffer(filled(kBytes, 2)).data(), first.data());
  EXPECT_NE(SharedBuffer(filled(kBytes + 1, 1)).data(), first.data());
  // One byte that no sample of the content sees.
  for (const std::size_t at : {std::size_t{40}, kBytes / 2, kBytes - 40}) {
    HostBuffer other = filled(kBytes, 1);
    other.data()[at] = std::byte{9};
    const SharedBuffer shared(std::move(other));
    EXPECT_NE(shared.data(), first.data()) << at;
    EXPECT_EQ(shared.data()[at], std::byte{9});
  }
}

TEST(SharedBuffer, IsCountedOnceWhereThatIsAskedFor) {
  constexpr std::size_t kBytes = 50'000;
  const SharedBuffer first(filled(kBytes, 7)), second(filled(kBytes, 7)), other(filled(kBytes, 8));
  const SharedBuffer small(filled(100, 7)), as_small(filled(100, 7));  // not shared
  for (int i = 0; i < 2; ++i) {
    const SharedBuffer::CountedOnce once;
    EXPECT_EQ(first.bytes() + second.bytes() + other.bytes() + SharedBuffer().bytes(), 2 * kBytes);
    EXPECT_EQ(small.bytes() + as_small.bytes(), 200U);
    std::size_t elsewhere = 0;
    std::thread([&] { elsewhere = second.bytes(); }).join();
    EXPECT_EQ(elsewhere, kBytes);
  }
  EXPECT_EQ(second.bytes(), kBytes);
}

TEST(SharedBuffer, WhatIsGoneIsMadeAnew) {
  { const SharedBuffer gone(filled(50'000, 3)); }
  const SharedBuffer again(filled(50'000, 3));
  EXPECT_EQ(again.data()[49'999], std::byte{3});
  EXPECT_EQ(SharedBuffer().bytes(), 0U);
  EXPECT_EQ(SharedBuffer(HostBuffer(0)).bytes(), 0U);
}

TEST(SharedBuffer, ManyThreadsAtOnce) {
  std::vector<SharedBuffer> buffers(8);
  std::vector<std::thread> threads;
  for (SharedBuffer& buffer : buffers) {
    threads.emplace_back([&buffer] {
      for (int i = 0; i < 20; ++i) buffer = SharedBuffer(filled(20'000, 5));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const SharedBuffer& buffer : buffers) EXPECT_EQ(buffer.data(), buffers[0].data());
}

}  // namespace
}  // namespace pipit::internal
