// Kernels that do one thing only, as fast as the GPU can: what ceilings are measured with.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "engine/platform/products.h"

namespace pipit::internal::cuda {

/// The loops of STREAM (McCalpin 1995).
enum class MemoryLoop : std::uint8_t { read, write, copy, add };

/// Launches `blocks` blocks, each of which does `steps` steps of multiply-accumulates: of halves and bytes on tensor
/// cores (warpgroup products on Hopper), whose operands are random and lie in shared memory or registers, of floats in
/// registers. Nothing else is read, and nothing written. fp32, fp16, bf16 or int8.
void launch_products(Products products, int blocks, int steps, cudaStream_t stream);
/// Multiply-accumulates of a block in a step, and how many blocks a multiprocessor is to have.
double products_of_step(Products products);
int blocks_per_processor(Products products);

/// Goes `passes` times through n floats of a, b and c, of which the loop reads and writes what its name says; through
/// the second-level cache only. n is a multiple of 4, and addresses of 16 bytes.
void launch_memory(MemoryLoop loop, const float* a, const float* b, float* c, std::int64_t n, int passes,
                   int blocks, cudaStream_t stream);

/// A kernel of one block without work; with `overlap` one that may begin while the previous kernel still runs, where
/// the GPU has that.
void launch_nothing(bool overlap, cudaStream_t stream);

}  // namespace pipit::internal::cuda
