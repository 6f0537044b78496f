// The structs of results that have times, layers or tests, as results.cpp binds the others.
#include "python/src/fields.h"
#include "python/src/module.h"

namespace pipit::internal::python {

namespace {

using namespace tools;

void bind_profile(nb::module_& module) {
  ResultFields<LayerFloor>(module, "LayerFloor", "The least possible time of a layer.")
      .field("ms", &LayerFloor::ms, "the longest of its arithmetic, its bytes and, on a GPU, a launch")
      .field("bound", &LayerFloor::bound,
             "the longest: 'compute', 'launch' or a level of memory; empty if all are 0")
      .field("share", &LayerFloor::share, "share of the floor in the measured time");
  ResultFields<LayerTime>(module, "LayerTime",
                          "One kernel call of a run: a layer, with the nodes fused into its kernel.")
      .field("name", &LayerTime::name, "of the layer in the model")
      .field("type", &LayerTime::type, "'Conv', 'Gemm', 'Pool', ...")
      .field("kernel", &LayerTime::kernel,
             "what ran it; 'cpu:NAME' for a layer of a GPU's model that runs on the CPU")
      .field("geometry", &LayerTime::geometry, "for people: '3x3 s2 p1 +relu'")
      .field("input", &LayerTime::input, "shape of its first input")
      .field("output", &LayerTime::output, "shape of its first output")
      .field("macs", &LayerTime::macs, "multiply-accumulates")
      .field("bytes", &LayerTime::bytes, "inputs, outputs and weights, each once: what must move at least")
      .field("median_ms", &LayerTime::median_ms, "of the runs")
      .field("p10_ms", &LayerTime::p10_ms, "eight of ten runs lie between this")
      .field("p90_ms", &LayerTime::p90_ms, "and this")
      .field("samples_ms", &LayerTime::samples_ms, "run by run; on a GPU what it adds to the captured graph")
      .field("nodes", &LayerTime::nodes, "of the model: its own, and those fused into its kernel")
      .field("flop_per_byte", &LayerTime::flop_per_byte,
             "operations of its kernel, padding included, for each byte; 0: without either")
      .field("weight_bytes", &LayerTime::weight_bytes, "packed and other constants that its kernel reads")
      .field("workspace_bytes", &LayerTime::workspace_bytes, "of the arena, while it runs")
      .field("floor", &LayerTime::floor, "where ceilings are known");
  ResultFields<FloorSummary::Bound>(module, "FloorBound", "A part of the floor.")
      .field("bound", &FloorSummary::Bound::bound, "as LayerFloor")
      .field("ms", &FloorSummary::Bound::ms, "of the layers that it limits");
  ResultFields<FloorSummary>(module, "FloorSummary", "The floors of all layers.")
      .field("ms", &FloorSummary::ms, "the sum")
      .field("bounds", &FloorSummary::bounds, "the largest first")
      .field("convolution_macs", &FloorSummary::convolution_macs, "of all convolutions, padding included")
      .field("convolutions_ms", &FloorSummary::convolutions_ms, "their measured time")
      .field("convolutions_share_of_peak", &FloorSummary::convolutions_share_of_peak,
             "share of that: the time of their arithmetic at its ceiling")
      .field("convolutions_share_of_tiles", &FloorSummary::convolutions_share_of_tiles,
             "the same for tiles in the first-level cache; 0: not measured");
  ResultFields<MemoryUse>(module, "MemoryUse", "What a model and its process take of memory, in bytes.")
      .field("weight_bytes", &MemoryUse::weight_bytes,
             "of weights as the graph stores them; freed when a kernel has packed them")
      .field("packed_bytes", &MemoryUse::packed_bytes, "in the order in which kernels read them")
      .field("most_packed", &MemoryUse::most_packed, "the layer")
      .field("constant_bytes", &MemoryUse::constant_bytes, "constants that kernels read as stored")
      .field("arena_bytes", &MemoryUse::arena_bytes, "activations and workspace of a run")
      .field("peak_live_bytes", &MemoryUse::peak_live_bytes, "the part of it that must exist at once")
      .field("most_live", &MemoryUse::most_live, "the layer at that point")
      .field("workspace_bytes", &MemoryUse::workspace_bytes, "within the arena")
      .field("most_workspace", &MemoryUse::most_workspace, "the layer")
      .field("rss_bytes", &MemoryUse::rss_bytes, "of the process when the runs were done")
      .field("peak_rss_bytes", &MemoryUse::peak_rss_bytes, "peak, including reading the model and planning")
      .field("device_bytes", &MemoryUse::device_bytes, "on a GPU beyond its context")
      .field("device_peak_bytes", &MemoryUse::device_peak_bytes, "peak, while planning");
  ResultFields<ModelProfile>(module, "Profile",
                             "Where the time of a model goes: medians over runs, in milliseconds.")
      .saved()
      .shown()
      .method("plot_roofline", "pipit._notebook",
              "def plot_roofline(self, ax: typing.Any = None) -> typing.Any",
              "Draws the arithmetic rate of each layer that multiplies against its FLOP per byte, with the "
              "roofs of the "
              "machine if the profile has floors, into `ax` of matplotlib or a new figure, and returns the "
              "axes. Raises "
              "Error without matplotlib.")
      .field("runs", &ModelProfile::runs, "that were timed")
      .field("layers", &ModelProfile::layers, "in the order in which they run")
      .field("layers_ms", &ModelProfile::layers_ms, "the sum of a run's layers")
      .field("end_to_end_ms", &ModelProfile::end_to_end_ms, "a run; on a GPU with copies in and out")
      .field("residual_ms", &ModelProfile::residual_ms, "what no layer explains")
      .field("graph_ms", &ModelProfile::graph_ms,
             "on a GPU: device time of one replay of the captured graph; 0 on a CPU")
      .field("device", &ModelProfile::device, "where it ran")
      .field("precision", &ModelProfile::precision, "precision of the computation")
      .field("threads", &ModelProfile::threads, "of a run")
      .field("samples", &ModelProfile::samples, "of a run")
      .field("samples_ms", &ModelProfile::samples_ms, "of whole runs; end_to_end_ms is their median")
      .field("end_to_end_p10_ms", &ModelProfile::end_to_end_p10_ms, "eight of ten runs lie between this")
      .field("end_to_end_p90_ms", &ModelProfile::end_to_end_p90_ms, "and this")
      .field("overhead_ms", &ModelProfile::overhead_ms, "approximate overhead of the profiler in residual_ms")
      .field("micro_batches", &ModelProfile::micro_batches, "of a run; a layer's time is the sum of them")
      .field("micro_batch_text", &ModelProfile::micro_batch_text, "how many samples go together, and why")
      .field("read_ms", &ModelProfile::read_ms, "reading the model")
      .field("load_ms", &ModelProfile::load_ms, "planning it")
      .field("first_run_ms", &ModelProfile::first_run_ms, "the first run")
      .field("floors", &ModelProfile::floors, "where ceilings are known")
      .field("memory", &ModelProfile::memory, "when the runs were done")
      .field("notes", &ModelProfile::notes, "notes for the user")
      .field("json", &ModelProfile::json, "all of it, as the command's --json writes it");
}

void bind_comparison(nb::module_& module) {
  ResultFields<ComparedTimes>(module, "ComparedTimes", "The ratio of the second side's time to the first's.")
      .field("ratio", &ComparedTimes::ratio, "above 1: the second side takes longer")
      .field("low", &ComparedTimes::low, "of its 95 % interval")
      .field("high", &ComparedTimes::high, "of the interval; infinite if there are too few repeats for one")
      .field("change", &ComparedTimes::change, "'none', 'slower', 'faster' or 'unknown'")
      .field("verdict", &ComparedTimes::verdict,
             "'slower', 'faster', 'no difference', 'too few processes' or 'too few runs'")
      .field("text", &ComparedTimes::text, "in words: '1.052 [1.031, 1.071], slower'")
      .field("margin", &ComparedTimes::margin, "distance of the interval from 1 that a verdict requires")
      .field("repeats", &ComparedTimes::repeats, "of the side with fewer")
      .field("repeats_are", &ComparedTimes::repeats_are, "'runs' in turns, or 'processes'")
      .field("shown_from", &ComparedTimes::shown_from,
             "smallest difference that such data shows: 0.03 for 3 %")
      .field("repeats_for_3_percent", &ComparedTimes::repeats_for_3_percent,
             "about how many repeats show a difference of 3 %, if any number does");
  ResultFields<ComparedLayer>(module, "ComparedLayer",
                              "The same layers on both sides, or the same configuration of two sweeps.")
      .field("name", &ComparedLayer::name, "of the layer")
      .field("type", &ComparedLayer::type, "'Conv'; for a sweep, how it was run")
      .field("first_ms", &ComparedLayer::first_ms, "0 if the first side has no such layer")
      .field("second_ms", &ComparedLayer::second_ms, "likewise")
      .field("ratio", &ComparedLayer::ratio, "if both sides have it");
  ResultFields<TimeComparison>(module, "TimeComparison", "Two sides whose times were compared.")
      .field("first", &TimeComparison::first, "its setting: 'resnet50, fp32, batch 1, 2 threads'")
      .field("second", &TimeComparison::second, "likewise")
      .field("what", &TimeComparison::what,
             "'run'; 'time over runs' of several streams; 'geometric mean' of a sweep")
      .field("first_ms", &TimeComparison::first_ms, "the time compared, of the first")
      .field("second_ms", &TimeComparison::second_ms, "of the second")
      .field("ratio", &TimeComparison::ratio, "of the second to the first")
      .field("layers", &TimeComparison::layers, "if both sides have layers; judged together")
      .field("too_slow", &TimeComparison::too_slow,
             "slower than allowed, or too few times to tell; false without a limit");
  ResultFields<CompareResult>(module, "Comparisons", "What compare() found.")
      .saved()
      .field("comparisons", &CompareResult::comparisons, "of results that both files have, at least one")
      .field("too_slow", &CompareResult::too_slow, "a comparison exceeds the option max_slowdown")
      .field("notes", &CompareResult::notes,
             "notes for the user: machines, and results without a counterpart")
      .field("json", &CompareResult::json, "all of it, as the command's --json writes it");
}

void bind_bench(nb::module_& module) {
  ResultFields<BenchRow>(module, "BenchRow",
                         "A model in one setting. Times are those of whole runs in milliseconds, on a GPU "
                         "with the copies in and out.")
      .field("model", &BenchRow::model, "as given")
      .field("precision", &BenchRow::precision, "precision of the computation")
      .field("batch", &BenchRow::batch, "samples of a run")
      .field("threads", &BenchRow::threads, "of all streams together")
      .field("streams", &BenchRow::streams, "runs at once")
      .field("setting", &BenchRow::setting, "the setting in words: 'fp32, batch 8, 2 threads'")
      .field("error", &BenchRow::error, "why there are no times; empty if there are")
      .field("unsupported", &BenchRow::unsupported, "the error: this setting cannot run the model")
      .field("input_type", &BenchRow::input_type, "of the first input, if any")
      .field("samples_ms", &BenchRow::samples_ms, "of single runs")
      .field("runs", &BenchRow::runs, "their number")
      .field("median_ms", &BenchRow::median_ms, "of samples_ms")
      .field("p90_ms", &BenchRow::p90_ms, "nine of ten are faster")
      .field("p99_ms", &BenchRow::p99_ms, "99 of 100 are faster")
      .field("mean_ms", &BenchRow::mean_ms, "of samples_ms")
      .field("cv", &BenchRow::cv, "standard deviation over mean")
      .field("images_per_s", &BenchRow::images_per_s,
             "by the median; with the option streams of all streams together")
      .field("images_per_s_p10", &BenchRow::images_per_s_p10, "of turns of streams")
      .field("images_per_s_p90", &BenchRow::images_per_s_p90, "of turns of streams")
      .field("graph_ms", &BenchRow::graph_ms, "on a GPU: device time of one run, without copies")
      .field("load_ms", &BenchRow::load_ms, "from opening the file until the plan is ready")
      .field("first_run_ms", &BenchRow::first_run_ms, "the first run, which touches all memory")
      .field("arena_bytes", &BenchRow::arena_bytes, "of all streams")
      .field("peak_rss_bytes", &BenchRow::peak_rss_bytes,
             "of the process, without the other rows of its turns")
      .field("note", &BenchRow::note, "a warning if times vary strongly; else empty");
  ResultFields<CpuPeak>(module, "CpuPeak", "Peak rates of the CPU with `threads` threads.")
      .field("threads", &CpuPeak::threads, "threads that ran")
      .field("fp32_gflops", &CpuPeak::fp32_gflops, "10^9 operations per second, two per multiply-accumulate")
      .field("read_gb_per_s", &CpuPeak::read_gb_per_s, "10^9 bytes per second from memory");
  ResultFields<BenchResult>(module, "Bench", "What bench() found.")
      .saved()
      .shown()
      .field("rows", &BenchResult::rows, "models outermost, then precisions, batches, threads, streams")
      .field("comparisons", &BenchResult::comparisons, "of rows that took turns")
      .field("peaks", &BenchResult::peaks, "with peaks=True")
      .field("too_slow", &BenchResult::too_slow, "a comparison exceeds the option max_slowdown")
      .field("notes", &BenchResult::notes, "notes about all rows")
      .field("json", &BenchResult::json, "all of it, as the command's --json writes it");
}

void bind_inspected(nb::module_& module) {
  ResultFields<RefusedKernel>(module, "RefusedKernel", "A kernel that refused a layer.")
      .field("kernel", &RefusedKernel::kernel, "its name")
      .field("why", &RefusedKernel::why, "the reason");
  ResultFields<EstimatedKernel>(module, "EstimatedKernel", "The estimated time of a kernel.")
      .field("kernel", &EstimatedKernel::kernel, "its name")
      .field("time", &EstimatedKernel::time,
             "on a GPU in microseconds; on the CPU that of Winograd relative to the direct sums");
  ResultFields<EstimatedChain>(
      module, "EstimatedChain",
      "Layers that one kernel could run together, compared with their kernels one by one.")
      .field("kernel", &EstimatedChain::kernel, "its name")
      .field("layers", &EstimatedChain::layers, "how many, the first one included")
      .field("time", &EstimatedChain::time, "in the unit of EstimatedKernel")
      .field("one_by_one", &EstimatedChain::one_by_one, "of the kernels that run them otherwise");
  ResultFields<TimedKernel>(module, "TimedKernel", "A kernel that was timed.")
      .field("kernel", &TimedKernel::kernel, "its name")
      .field("variant", &TimedKernel::variant, "empty where it has none")
      .field("ms", &TimedKernel::ms, "of one run")
      .field("problem", &TimedKernel::problem, "why there is no time; else empty");
  ResultFields<InspectedLayer>(module, "InspectedLayer", "A layer, with the nodes fused into its kernel.")
      .field("name", &InspectedLayer::name, "of the layer in the model")
      .field("type", &InspectedLayer::type, "'Conv', 'Gemm', 'Pool', ...")
      .field("kernel", &InspectedLayer::kernel, "what runs it")
      .field("variant", &InspectedLayer::variant, "of the kernel; empty where it has none")
      .field("geometry", &InspectedLayer::geometry, "in words: '3x3 s2 p1 +relu'")
      .field("input", &InspectedLayer::input, "shape of its first input")
      .field("output", &InspectedLayer::output, "shape of its first output")
      .field("parameters", &InspectedLayer::parameters, "of all nodes that the kernel computes")
      .field("macs", &InspectedLayer::macs, "multiply-accumulates")
      .field("kept", &InspectedLayer::kept, "the share of macs that its kernel does: below 1 it skips zeros")
      .field("chosen", &InspectedLayer::chosen, "by 'order', 'preference', 'measurement' or 'cache'")
      .field("note", &InspectedLayer::note, "why nothing was timed although requested; else empty")
      .field("timed", &InspectedLayer::timed, "in the order of preference")
      .field("estimated", &InspectedLayer::estimated, "the smallest first")
      .field("chains", &InspectedLayer::chains, "that begin with this layer")
      .field("refused", &InspectedLayer::refused, "in the order in which they were tried");
  ResultFields<Rewrite>(module, "Rewrite", "How a graph was rewritten.")
      .field("name", &Rewrite::name, "of the rewrite")
      .field("changes", &Rewrite::changes, "how often it was applied");
  ResultFields<InspectedModel>(module, "InspectedModel", "What a model is and how it will run.")
      .field("name", &InspectedModel::name, "as given")
      .field("inputs", &InspectedModel::inputs, "of the graph that runs")
      .field("outputs", &InspectedModel::outputs, "likewise")
      .field("widened", &InspectedModel::widened, "what is stored in 16 bits and runs in f32; empty: nothing")
      .field("labels", &InspectedModel::labels, "from the model's metadata; may be empty")
      .field("labels_from", &InspectedModel::labels_from, "their origin if not pipit's own entries")
      .field("scores", &InspectedModel::scores, "if output 0 is that of a classifier")
      .field("scores_note", &InspectedModel::scores_note, "a note about the scores; else empty")
      .field("heads_note", &InspectedModel::heads_note,
             "a note if several softmaxes lie side by side; else empty")
      .field("preprocessing", &InspectedModel::preprocessing, "as the model stores it, in words; empty: none")
      .field("preprocessing_from", &InspectedModel::preprocessing_from,
             "its origin if not pipit's own entries")
      .field("rewrites", &InspectedModel::rewrites, "all that were tried, in order")
      .field("notes", &InspectedModel::notes, "notes about its metadata and rewrites")
      .field("layers", &InspectedModel::layers, "in the order in which they run")
      .field("nodes", &InspectedModel::nodes, "of the graph that runs")
      .field("view_nodes", &InspectedModel::view_nodes, "nodes that are only views of their input's memory")
      .field("parameters", &InspectedModel::parameters, "of all nodes")
      .field("parameter_bytes", &InspectedModel::parameter_bytes,
             "in the graph; kernels may store fewer or more")
      .field("macs", &InspectedModel::macs, "of a run")
      .field("int8_layers", &InspectedModel::int8_layers, "that compute with 8-bit integers")
      .field("conversions", &InspectedModel::conversions, "between these and floating point")
      .field("int8_macs", &InspectedModel::int8_macs, "of int8_layers")
      .field("is_cut", &InspectedModel::is_cut, "a batch goes through the layers in parts")
      .field("micro_batch_text", &InspectedModel::micro_batch_text, "how many samples go together, and why")
      .field("arena_bytes", &InspectedModel::arena_bytes, "for values between the layers")
      .field("peak_live_bytes", &InspectedModel::peak_live_bytes,
             "the largest set of them that must exist at once")
      .field("activation_bytes", &InspectedModel::activation_bytes, "if every value had memory of its own")
      .field("json", &InspectedModel::json, "all of it, as the command's --json writes it");
}

void bind_verified(nb::module_& module) {
  ResultFields<VerifiedTest>(module, "VerifiedTest", "A folder with a model and data.")
      .field("folder", &VerifiedTest::folder, "with model.onnx")
      .field("verdict", &VerifiedTest::verdict, "'passed', 'failed' or 'unsupported'")
      .field("max_error", &VerifiedTest::max_error, "|got - expected|, the largest of all elements")
      .field("relative_error", &VerifiedTest::relative_error,
             "||got - expected|| / ||expected||, the largest of all outputs")
      .field("note", &VerifiedTest::note, "why it failed or is unsupported")
      .field("constants", &VerifiedTest::constants, "inputs that were read as constants");
  ResultFields<Verification>(module, "Verification", "What verify() found.")
      .field("tests", &Verification::tests, "by folder")
      .field("passed", &Verification::passed, "tests")
      .field("failed", &Verification::failed, "tests")
      .field("unsupported", &Verification::unsupported, "tests")
      .field("json", &Verification::json, "all of it, as the command's --json writes it");
}

void bind_pruned(nb::module_& module) {
  ResultFields<Speedup>(module, "Speedup", "The median over turns of both, and its 95 % interval.")
      .field("median", &Speedup::median, "times as fast; above 1: faster")
      .field("low", &Speedup::low, "of the interval")
      .field("high", &Speedup::high, "of the interval");
  ResultFields<PruneStep>(module, "PruneStep", "A pruned model that was measured.")
      .field("speedup", &PruneStep::speedup, "over the dense model in the same precision, in the search")
      .field("ms", &PruneStep::ms, "of a run")
      .field("predicted", &PruneStep::predicted, "speedup predicted from times of layers, if measured")
      .field("drop", &PruneStep::drop, "against the dense model in fp32, on the images of the search")
      .field("expected_drop", &PruneStep::expected_drop,
             "in points, from the distances between the best two scores")
      .field("expected_drop_error", &PruneStep::expected_drop_error, "its standard error")
      .field("pareto", &PruneStep::pareto,
             "no other step is as fast with a smaller expected drop, or as good and faster")
      .field("chosen", &PruneStep::chosen, "the step that was written");
  ResultFields<PruneSelection>(
      module, "PruneSelection",
      "A candidate selection of weights to remove, measured in the search with weights fitted on few images.")
      .field("predicted", &PruneSelection::predicted, "speedup predicted from times of its layers")
      .field("speedup", &PruneSelection::speedup, "measured")
      .field("error", &PruneSelection::error, "distance of its answers from those of the dense model");
  ResultFields<PrunedLayer>(module, "PrunedLayer", "A layer of the dense model, and its pruned form.")
      .field("name", &PrunedLayer::name, "in the model")
      .field("kept", &PrunedLayer::kept, "share of the dense layer's weights that is not zero")
      .field("macs", &PrunedLayer::macs, "multiply-accumulates of the dense layer")
      .field("dense_ms", &PrunedLayer::dense_ms, "the dense layer's time")
      .field("pruned_ms", &PrunedLayer::pruned_ms, "the pruned layer's")
      .field("dense_kernel", &PrunedLayer::dense_kernel, "what ran it")
      .field("pruned_kernel", &PrunedLayer::pruned_kernel, "what runs it; empty if the layer was removed")
      .field("error", &PrunedLayer::error, "of its outputs over their variance, if its weights changed")
      .field("rows", &PrunedLayer::rows, "which rows were removed for panels of outputs; 'tap' or 'channel'")
      .field("panel", &PrunedLayer::panel, "with rows: the outputs that lost the same rows; 0: all");
  ResultFields<PrunedInt8>(module, "PrunedInt8", "The pruned model in INT8, compared with the dense model.")
      .field("int8_layers", &PrunedInt8::int8_layers, "as in QuantizedFile")
      .field("float_layers", &PrunedInt8::float_layers, "as in QuantizedFile")
      .field("fp32_ms", &PrunedInt8::fp32_ms, "the dense model in fp32")
      .field("over_fp32", &PrunedInt8::over_fp32, "of the pruned model over the dense model in fp32")
      .field("dense_unseen", &PrunedInt8::dense_unseen, "of the dense model in INT8, on the unseen images");
  ResultFields<PrunedModel>(module, "PrunedModel", "What prune() found and wrote.")
      .saved()
      .shown()
      .pareto()
      .field("measure", &PrunedModel::measure,
             "the measure of accuracy: 'top-1', 'agreement with dense', ...")
      .field("problem", &PrunedModel::problem, "why no file was written; empty if one was")
      .field("passed", &PrunedModel::passed, "whether the goal is met")
      .field("reached", &PrunedModel::reached,
             "whether the option speedup or max_drop is reached; None with keep")
      .field("speedup", &PrunedModel::speedup,
             "of the written model over the dense one, measured after the search as bench() does")
      .field("dense_right", &PrunedModel::dense_right,
             "share of the search's images that the dense model in fp32 answers correctly")
      .field("dense_ms", &PrunedModel::dense_ms, "time of a run of the dense model in the same precision")
      .field("steps", &PrunedModel::steps, "the slowest first; one is chosen")
      .field("selections", &PrunedModel::selections, "in the order in which they were measured")
      .field("time_was_short", &PrunedModel::time_was_short,
             "the option seconds elapsed before the minimum of selections was measured")
      .field("macs_kept", &PrunedModel::macs_kept, "share of the multiply-accumulates that remains")
      .field("bytes", &PrunedModel::bytes, "size of the file")
      .field("dense_bytes", &PrunedModel::dense_bytes, "of the dense model, written the same way in fp32")
      .field("unseen", &PrunedModel::unseen,
             "of the written model, on the images that the search did not see")
      .field("int8", &PrunedModel::int8, "with precision='int8'")
      .field("judged", &PrunedModel::judged, "for the option max_drop")
      .field("layers", &PrunedModel::layers, "in the order in which the dense model runs")
      .field("zero_rows", &PrunedModel::zero_rows,
             "share of the dense weights in rows that are all zero, which stay zero")
      .field("other_zeros", &PrunedModel::other_zeros,
             "share of other zeros, which are fitted like all weights")
      .field("calibration_images", &PrunedModel::calibration_images,
             "images for choosing and fitting weights")
      .field("remarks", &PrunedModel::remarks, "notes about the result")
      .field("excluded", &PrunedModel::excluded, "images that could not be used")
      .field("notes", &PrunedModel::notes, "notes about the images")
      .field("json", &PrunedModel::json, "all of it, as the command's --json writes it");
}

}  // namespace

void bind_measured(nb::module_& module) {
  bind_profile(module);
  bind_comparison(module);
  bind_bench(module);
  bind_inspected(module);
  bind_verified(module);
  bind_pruned(module);
}

}  // namespace pipit::internal::python
