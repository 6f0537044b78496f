#include "engine/plan/arena_map.h"

#include <algorithm>

namespace pipit::internal {

namespace {

bool overlap(const ArenaBlock& block, std::size_t offset, std::size_t bytes) {
  return block.offset < offset + bytes && offset < block.offset + block.bytes;
}

// Blocks whose content has not been written over.
class Contents {
 public:
  void read(const Placement& from, int step) {
    if (from.kind != Placement::Kind::arena) return;
    for (const std::size_t i : held_) {
      if (overlap(blocks_[i], from.offset, from.desc.bytes())) blocks_[i].last = step;
    }
  }
  void write(const Placement& to, int step) {
    if (to.kind != Placement::Kind::arena || to.desc.bytes() == 0) return;
    std::erase_if(held_, [&](std::size_t i) { return overlap(blocks_[i], to.offset, to.desc.bytes()); });
    held_.push_back(blocks_.size());
    add({to.offset, to.desc.bytes(), step, step, step, false});
  }
  void add(const ArenaBlock& block) { blocks_.push_back(block); }
  std::vector<ArenaBlock> take() { return std::move(blocks_); }

 private:
  std::vector<ArenaBlock> blocks_;
  std::vector<std::size_t> held_;
};

}  // namespace

std::vector<ArenaBlock> arena_blocks(const ExecutionPlan& plan) {
  Contents contents;
  const int last = static_cast<int>(plan.steps().size()) - 1;
  for (const Step& step : plan.steps()) {
    for (const Placement& input : step.inputs) contents.read(input, step.index);
    // A kernel may write its output while it still reads; what it reads ends with this step in both cases.
    for (const Placement& output : step.outputs) contents.write(output, step.index);
    const std::size_t scratch = step.on_host ? 0 : step.kernel->scratch_bytes();
    if (scratch > 0) contents.add({step.scratch_offset, scratch, step.index, step.index, step.index, true});
  }
  for (const Placement& output : plan.step_outputs()) contents.read(output, last);
  std::vector<ArenaBlock> blocks = contents.take();
  if (!plan.micro_batches().cut()) return blocks;
  std::vector<ArenaBlock> whole;
  for (const Placement& output : plan.outputs()) {
    if (output.kind == Placement::Kind::arena)
      whole.push_back({output.offset, output.desc.bytes(), 0, last, last, false});
  }
  blocks.insert(blocks.begin(), whole.begin(), whole.end());
  return blocks;
}

std::vector<std::size_t> live_bytes(const ExecutionPlan& plan, std::span<const ArenaBlock> blocks) {
  std::vector<std::size_t> bytes;
  for (const Step& step : plan.steps()) {
    std::vector<ArenaBlock> live;
    std::ranges::copy_if(blocks, std::back_inserter(live), [&](const ArenaBlock& block) {
      return block.first <= step.index && step.index <= block.last;
    });
    std::ranges::sort(live, {}, &ArenaBlock::offset);
    std::size_t sum = 0, end = 0;
    for (const ArenaBlock& block : live) {
      const std::size_t until = block.offset + block.bytes;
      if (until <= end) continue;
      sum += until - std::max(end, block.offset);
      end = until;
    }
    bytes.push_back(sum);
  }
  return bytes;
}

}  // namespace pipit::internal
