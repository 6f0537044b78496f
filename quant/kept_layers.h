// Which layers stay in floating point: what --keep asks for, resolved against a model.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"
#include "pipit/types.h"
#include "quant/quantization_plan.h"

namespace pipit::internal {

/// Whether it names a precision that layers are kept in: "fp32", "fp16" or "bf16".
bool is_kept_precision(std::string_view name);

/// "NAME=fp32", "NAME=fp16", "NAME=bf16" or "NAME=int8" (the last '=' counts, names may have others). Throws Error for
/// any other form.
QuantizationPlan::Kept parse_keep(std::string_view text);

/// What a plan keeps in floating point unless it is told otherwise, each with its reason: the average pools over all
/// positions that the scores are made of, which have nothing but values per channel after them. Rounding what they
/// average costs accuracy, floating point costs no time (docs/benchmarks/int8.md, "Layers that are kept by default").
/// `graph`: fused.
std::vector<QuantizationPlan::Kept> kept_by_default(const Graph& graph);

/// What `plan` has of kept_by_default() it keeps as `precision`, fp32, fp16 or bf16, instead. A layer that is kept
/// in fp32 takes all layers with it that are connected to it in floating point (assign_precision).
void keep_defaults_as(Precision precision, QuantizationPlan& plan, const Graph& graph);

/// Adds `requests` to plan.keep; what the plan already says of a node is replaced, and "int8" takes it out. A name is
/// that of a node of `graph` (fused, its constants not released); where no node has it, "first" and "last" are its
/// first and last convolution or fully connected layer that could compute in INT8. Returns a note for each of these
/// words that is the name of a node but would otherwise mean another layer. Throws Error for a node with two requested
/// precisions, and for an unknown name, with the nearest ones.
std::vector<std::string> keep_nodes(QuantizationPlan& plan, const Graph& graph,
                                    std::span<const QuantizationPlan::Kept> requests);

/// Throws Error, listing the nearest names, when plan.keep names a node that `graph` does not have.
void check_kept_nodes(const QuantizationPlan& plan, const Graph& graph);

}  // namespace pipit::internal
