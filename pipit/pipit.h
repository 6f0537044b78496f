/// @file
/// All of pipit's public interface. Headers of this folder are the whole of it: what they declare follows the version
/// (CONTRIBUTING.md), everything else may change at any time.
///
/// Three levels:
///   - Classifier: images in, labels with probabilities out;
///   - CompiledModel and ModelSession: tensors in, tensors out, on a CPU or on GPUs; AsyncRunner: many runs at once;
///   - tools: evaluating, calibrating, quantizing, timing, inspecting, comparing layers.
///
/// Functions throw Error: ArgumentError for invalid options, UnsupportedError for what pipit does not implement;
/// std::bad_alloc where memory runs out.
/// Link with the CMake target pipit::pipit, or as `pkg-config pipit` says. C++20.
#pragma once

#include "pipit/annotate.h"
#include "pipit/async_runner.h"
#include "pipit/bench.h"
#include "pipit/calibrate.h"
#include "pipit/classifier.h"
#include "pipit/classify.h"
#include "pipit/compare.h"
#include "pipit/compiled_model.h"
#include "pipit/diff.h"
#include "pipit/error.h"
#include "pipit/evaluate.h"
#include "pipit/export.h"
#include "pipit/fetch.h"
#include "pipit/gpu_memory.h"
#include "pipit/inspect.h"
#include "pipit/load_options.h"
#include "pipit/machine.h"
#include "pipit/option_values.h"
#include "pipit/output_file.h"
#include "pipit/precision.h"
#include "pipit/profile.h"
#include "pipit/progress.h"
#include "pipit/prune.h"
#include "pipit/quantize.h"
#include "pipit/report.h"
#include "pipit/scores.h"
#include "pipit/speedup.h"
#include "pipit/sweep.h"
#include "pipit/text.h"
#include "pipit/timing.h"
#include "pipit/tune.h"
#include "pipit/types.h"
#include "pipit/verify.h"
#include "pipit/version.h"
