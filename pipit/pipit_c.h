/// @file
/// pipit for C and for other languages: C99, opaque handles, no exceptions.
///
/// **Errors.** A function that can fail takes `status`, the address of a `pipit_status*` that is NULL or was set by an
/// earlier call. It frees the earlier one and sets it: NULL after success, else what went wrong. `status` may itself be
/// NULL. Such functions return a pipit_code, or a pointer that is NULL after an error. A NULL argument that is not
/// allowed is PIPIT_INVALID_ARGUMENT. Functions without `status` cannot fail: given NULL they return NULL or 0.
///
/// **Ownership.** What `pipit_..._new`, `_load`, `_clone` and `_classify_...` return belongs to the caller, who frees
/// it with the `pipit_..._free` of its type, which accepts NULL, and a `char*` with pipit_string_free(). A `const
/// char*` belongs to the handle that it was asked of and ends with it. Sessions and classifiers keep what they need of
/// their model. Arguments are copied and may end after the call.
///
/// **Threads.** Models are immutable: any number of threads may use one. Options may be read by several threads. One
/// thread at a time may use a session or a classifier; give every thread its own. Statuses and predictions are values.
///
/// Strings are UTF-8 (paths: as the system has them) and end with NUL. Link with the CMake target pipit::shared, or as
/// `pkg-config pipit` says.
// NOLINTBEGIN(modernize-*): this is C.
#ifndef PIPIT_PIPIT_C_H
#define PIPIT_PIPIT_C_H

#include <stddef.h>
#include <stdint.h>

#include "pipit/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The number in the library's name, libpipit.so.0. It changes when programs must be compiled again.
#define PIPIT_ABI_VERSION 0

/// "0.1.0": major, minor and patch.
PIPIT_API const char* pipit_version(void);
/// PIPIT_ABI_VERSION of the library that runs.
PIPIT_API int pipit_abi_version(void);

/// @name Errors
/// @{

/// What came of a call. The numbers are the exit codes of the `pipit` command.
typedef enum pipit_code {
  PIPIT_OK = 0,                ///< success
  PIPIT_ERROR = 1,             ///< a file, a value or a device; memory that is not to be had
  PIPIT_INVALID_ARGUMENT = 2,  ///< the call itself: a NULL, an unknown option, a tensor of another shape
  PIPIT_UNSUPPORTED = 3,       ///< the model asks for something that pipit does not implement
  PIPIT_CANCELLED = 5          ///< a progress callback ended the work; not an exit code of the command
} pipit_code;

/// An error in detail.
typedef struct pipit_status pipit_status;

/// Its code; PIPIT_OK for NULL.
PIPIT_API pipit_code pipit_status_code(const pipit_status* status);
/// What went wrong, with the offending values; "" for NULL. May have several lines.
PIPIT_API const char* pipit_status_message(const pipit_status* status);
/// How many reasons the message lists: every operator, say, that a model has and pipit does not. 0 where the message
/// is the only one.
PIPIT_API size_t pipit_status_reason_count(const pipit_status* status);
/// Reason `index`; NULL where there is none.
PIPIT_API const char* pipit_status_reason(const pipit_status* status, size_t index);
/// Frees it.
PIPIT_API void pipit_status_free(pipit_status* status);
/// Frees a string that a function has returned as `char*`.
PIPIT_API void pipit_string_free(char* string);

/// @}
/// @name Options
/// @{

/// Options of all functions that take them, each with its default until it is set. NULL instead means all defaults.
typedef struct pipit_options pipit_options;

/// All defaults.
PIPIT_API pipit_options* pipit_options_new(pipit_status** status);
/// Sets the option that the command calls `--name` ("precision") to `value` ("int8"); flags are "true" or "false".
/// Options that may be repeated (dim, shape, value, keep, kernel) add to what is set. An unknown name or value is
/// PIPIT_INVALID_ARGUMENT, whose message says what is expected, and changes nothing.
PIPIT_API pipit_code pipit_options_set(pipit_options* options, const char* name, const char* value,
                                       pipit_status** status);
/// Called with `user` as work goes on: `done` of `total` images, runs, rows or layers of `stage`, which is valid during
/// the call and "" for work of one stage. Calls come one at a time, in any thread. Return 0 to continue; any other
/// number ends the work with PIPIT_CANCELLED, and files are as before. Must not throw or jump out.
typedef int (*pipit_progress)(void* user, const char* stage, int64_t done, int64_t total);
/// Calls `progress` from all functions that take these options except pipit_compare_json(), also while they load a
/// model or a classifier; NULL: not any more.
PIPIT_API pipit_code pipit_options_set_progress(pipit_options* options, pipit_progress progress, void* user,
                                                pipit_status** status);
/// Frees them.
PIPIT_API void pipit_options_free(pipit_options* options);
/// How many options there are.
PIPIT_API size_t pipit_option_count(void);
/// The name of option `index`; NULL where there is none.
PIPIT_API const char* pipit_option_name(size_t index);
/// The values that option `index` takes, for people: "cpu|cuda"; NULL where there is none.
PIPIT_API const char* pipit_option_values(size_t index);

/// @}
/// @name Tensors
/// These types have the layout of DLPack's DLDevice, DLDataType and DLTensor, and names of their own, so that
/// <dlpack/dlpack.h> may be included as well: pass `(pipit_tensor*)dl_tensor`.
/// @{

/// Where memory lies, as DLDevice.
typedef struct pipit_device {
  int32_t device_type;  ///< 1: host memory (kDLCPU); 3: host memory pinned by CUDA (kDLCUDAHost); for
      ///< pipit_session_run_on_stream() 2: GPU memory (kDLCUDA), 13: managed memory (kDLCUDAManaged)
  int32_t device_id;  ///< 0; for a GPU its ordinal
} pipit_device;

/// A type of elements, as DLDataType.
typedef struct pipit_dtype {
  uint8_t code;    ///< 0: signed integer, 1: unsigned integer, 2: floating point, 6: bool
  uint8_t bits;    ///< of one element; 8 for bool
  uint16_t lanes;  ///< 1
} pipit_dtype;

/// A dense array, as DLTensor.
typedef struct pipit_tensor {
  void* data;            ///< where it begins
  pipit_device device;   ///< host memory, except for pipit_session_run_on_stream()
  int32_t ndim;          ///< number of dimensions, 0 to 6
  pipit_dtype dtype;     ///< of the elements
  int64_t* shape;        ///< `ndim` extents, for images mostly N, C, H, W
  int64_t* strides;      ///< NULL, or in elements as for rows without gaps, last dimension fastest
  uint64_t byte_offset;  ///< added to `data`
} pipit_tensor;

/// @}
/// @name Models and sessions
/// @{

/// A model with kernels chosen, weights packed and memory planned.
typedef struct pipit_model pipit_model;
/// Memory for runs of a model.
typedef struct pipit_session pipit_session;

/// Reads and compiles an ONNX file, or one of the names that `pipit models` lists. Options: batch, dim, shape, value,
/// input, output, device, devices, allow-fallback, threads, precision, plan, keep, dynamic-scales, group-size, kernel,
/// micro-batch, autotune, tuning-cache.
PIPIT_API pipit_model* pipit_model_load(const char* model, const pipit_options* options,
                                        pipit_status** status);
/// The same from the `size` bytes of an ONNX file, which may refer to no other files; `name` stands for it in messages.
PIPIT_API pipit_model* pipit_model_load_bytes(const void* bytes, size_t size, const char* name,
                                              const pipit_options* options, pipit_status** status);
/// Frees it, as far as no session uses it.
PIPIT_API void pipit_model_free(pipit_model* model);
/// As given to the function that loaded it.
PIPIT_API const char* pipit_model_name(const pipit_model* model);
/// Number of inputs.
PIPIT_API size_t pipit_model_input_count(const pipit_model* model);
/// Number of outputs.
PIPIT_API size_t pipit_model_output_count(const pipit_model* model);
/// Describes input `index`: its name in the file (unless `name` is NULL), and type and shape with `data` NULL. Both
/// point into the model; the shape must not be written.
PIPIT_API pipit_code pipit_model_input(const pipit_model* model, size_t index, const char** name,
                                       pipit_tensor* tensor, pipit_status** status);
/// The same for output `index`.
PIPIT_API pipit_code pipit_model_output(const pipit_model* model, size_t index, const char** name,
                                        pipit_tensor* tensor, pipit_status** status);
/// Sets `index` to the position of the input called `name`. An unknown name is PIPIT_INVALID_ARGUMENT, whose message
/// lists the names.
PIPIT_API pipit_code pipit_model_find_input(const pipit_model* model, const char* name, size_t* index,
                                            pipit_status** status);
/// The same for an output.
PIPIT_API pipit_code pipit_model_find_output(const pipit_model* model, const char* name, size_t* index,
                                             pipit_status** status);
/// How many sentences there are that a user should know, such as rewrites that were not possible.
PIPIT_API size_t pipit_model_note_count(const pipit_model* model);
/// Sentence `index`; NULL where there is none.
PIPIT_API const char* pipit_model_note(const pipit_model* model, size_t index);
/// What the file says of itself under `key`; NULL where it has no such key.
PIPIT_API const char* pipit_model_metadata(const pipit_model* model, const char* key);
/// Devices that have a copy of it: 1, or as many GPUs as the option `devices` lists.
PIPIT_API int pipit_model_device_count(const pipit_model* model);
/// Bytes that a session needs for values between the layers.
PIPIT_API size_t pipit_model_arena_bytes(const pipit_model* model);

/// Allocates what a run needs on device `device`, counted from 0 to pipit_model_device_count() - 1.
PIPIT_API pipit_session* pipit_session_new(const pipit_model* model, int device, pipit_status** status);
/// Frees it, with the views that it has returned.
PIPIT_API void pipit_session_free(pipit_session* session);
/// Runs the model on one tensor for each input, in their order, with exactly their types and shapes, and writes the
/// results to the memory of `outputs`, one tensor for each output. On the CPU there is no copy if the memory is aligned
/// to 64 bytes and the last layer neither works in place nor joins results of other layers; otherwise there is one.
/// Allocates nothing (on a GPU: from the second run on). The same inputs give the same bits for any number of threads.
/// Outputs must not overlap inputs, other outputs or views of this session, and inputs must not lie in such views: that
/// is PIPIT_INVALID_ARGUMENT. A refused call writes nothing; after an error of the run itself the contents of the
/// outputs are unspecified.
PIPIT_API pipit_code pipit_session_run(pipit_session* session, const pipit_tensor* inputs, size_t input_count,
                                       const pipit_tensor* outputs, size_t output_count,
                                       pipit_status** status);
/// The same, with results in the session's own memory: fills `outputs` with views of it, which must not be written and
/// are valid until the session's next run.
PIPIT_API pipit_code pipit_session_run_views(pipit_session* session, const pipit_tensor* inputs,
                                             size_t input_count, pipit_tensor* outputs, size_t output_count,
                                             pipit_status** status);

/// On a GPU: queues a run on `stream`, a cudaStream_t of the session's GPU (NULL: the default stream), and returns
/// without waiting for it. Inputs and outputs lie in memory of that GPU. Nothing is copied where pipit_session_run()
/// copies nothing on the CPU; otherwise there is one copy on the GPU. Runs of one session execute one after the other,
/// whatever their streams; the memory must stay valid until they have ended. An error in the values of a run is
/// returned by a later call of the session. Must not be called while `stream` is captured. PIPIT_INVALID_ARGUMENT for a
/// model on the CPU, and for tensors that are not in memory of a GPU.
PIPIT_API pipit_code pipit_session_run_on_stream(pipit_session* session, const pipit_tensor* inputs,
                                                 size_t input_count, const pipit_tensor* outputs,
                                                 size_t output_count, void* stream, pipit_status** status);

/// A queue of runs, and streams that take runs from it, each in a thread with its own session.
typedef struct pipit_runner pipit_runner;
/// Called with `user` when a run has ended, in a thread of the runner. `status` is NULL after success, and valid only
/// during the call. Must not throw or jump out.
typedef void (*pipit_run_done)(void* user, const pipit_status* status);

/// Makes a runner with `streams` streams and, on the CPU, `threads` threads for all streams together. 0 means the
/// number of streams with the most throughput, and all CPUs. Throughput is best if the model was loaded with the option
/// `threads` set to `threads` / `streams`. At most `queue` runs wait (0: four for each stream).
PIPIT_API pipit_runner* pipit_runner_new(const pipit_model* model, int streams, int threads, int queue,
                                         pipit_status** status);
/// Waits until all submitted runs have ended, and frees the runner. Must not be called in a callback.
PIPIT_API void pipit_runner_free(pipit_runner* runner);
/// Queues a run with the arguments of pipit_session_run(). Waits while the queue is full; in a callback a full queue is
/// PIPIT_ERROR instead. The memory of inputs and outputs must stay valid until the run has ended. Any number of threads
/// may submit.
PIPIT_API pipit_code pipit_runner_submit(pipit_runner* runner, const pipit_tensor* inputs, size_t input_count,
                                         const pipit_tensor* outputs, size_t output_count,
                                         pipit_run_done done, void* user, pipit_status** status);
/// Waits until all submitted runs have ended.
PIPIT_API pipit_code pipit_runner_wait(pipit_runner* runner, pipit_status** status);

/// @}
/// @name Classifiers
/// @{

/// An image classifier.
typedef struct pipit_classifier pipit_classifier;
/// Its answer for one image: classes with probabilities, the most probable first.
typedef struct pipit_predictions pipit_predictions;

/// Loads a classifier: a model with one image as input and one output of scores. Options: those of pipit_model_load(),
/// preset, resize, crop, interpolation, mean, std, bgr, no-exif-transpose, labels, scores, threshold.
PIPIT_API pipit_classifier* pipit_classifier_load(const char* model, const pipit_options* options,
                                                  pipit_status** status);
/// One for another thread, which shares the model and has memory of its own.
PIPIT_API pipit_classifier* pipit_classifier_clone(const pipit_classifier* classifier, pipit_status** status);
/// Frees it.
PIPIT_API void pipit_classifier_free(pipit_classifier* classifier);
/// The `top` (at least 1) most probable classes of an image file: JPEG, PNG, BMP and, in builds with libwebp, WebP.
PIPIT_API pipit_predictions* pipit_classifier_classify_file(pipit_classifier* classifier, const char* path,
                                                            int top, pipit_status** status);
/// The same for the `size` bytes of such a file.
PIPIT_API pipit_predictions* pipit_classifier_classify_bytes(pipit_classifier* classifier, const void* bytes,
                                                             size_t size, int top, pipit_status** status);
/// The same for height * width * 3 bytes: red, green, blue interleaved, rows from top to bottom without padding; both
/// sides from 1 to 30000 pixels.
PIPIT_API pipit_predictions* pipit_classifier_classify_pixels(pipit_classifier* classifier,
                                                              const uint8_t* rgb, int height, int width,
                                                              int top, pipit_status** status);
/// The same for many files, with one answer for each in their order. Decodes with all threads of the model, and runs
/// the model on as many images at a time as the option `batch` says. Sets `answers` to `count` pointers, which belong
/// to the caller. After an error sets them to NULL; the message begins with the first path that caused an error.
PIPIT_API pipit_code pipit_classifier_classify_files(pipit_classifier* classifier, const char* const* paths,
                                                     size_t count, int top, pipit_predictions** answers,
                                                     pipit_status** status);
/// The number of classes.
PIPIT_API int64_t pipit_classifier_class_count(const pipit_classifier* classifier);
/// The name of class `index`; NULL where it has none.
PIPIT_API const char* pipit_classifier_label(const pipit_classifier* classifier, int64_t index);
/// What happens to images, in words.
PIPIT_API const char* pipit_classifier_preprocessing(const pipit_classifier* classifier);
/// As pipit_model_note_count(), for notes about the preprocessing.
PIPIT_API size_t pipit_classifier_note_count(const pipit_classifier* classifier);
/// Sentence `index`; NULL where there is none.
PIPIT_API const char* pipit_classifier_note(const pipit_classifier* classifier, size_t index);

/// How many classes are in the answer: `top`, or all where there are fewer.
PIPIT_API size_t pipit_predictions_count(const pipit_predictions* predictions);
/// The index of class `rank`, counted from 0, the most probable one; -1 where there is none.
PIPIT_API int pipit_predictions_index(const pipit_predictions* predictions, size_t rank);
/// Its probability, in [0, 1]; 0 where there is none.
PIPIT_API float pipit_predictions_probability(const pipit_predictions* predictions, size_t rank);
/// Its name, "class 7" where it has none; NULL where there is no such rank.
PIPIT_API const char* pipit_predictions_label(const pipit_predictions* predictions, size_t rank);
/// Frees them.
PIPIT_API void pipit_predictions_free(pipit_predictions* predictions);

/// @}
/// @name Tools
/// @{

/// Runs a model in fp32 on the CPU over `image_count` image files, or folders of them, and writes INT8 scales to the
/// JSON file `plan`, for the option of that name. The file is written in full or not at all. Unless `notes` is NULL, it
/// is set to notes for the user, one per line, or to NULL after an error. Options: threads, keep, method, percentile,
/// per-tensor-weights, equalize, bias-correction, strict, skip, limit, batch, dim, shape, value, kernel, and those of
/// preprocessing; check (a folder as that of pipit_evaluate_json()) with truth, labels, scores and threshold: the last
/// note then says what INT8 costs.
PIPIT_API pipit_code pipit_calibrate(const char* model, const char* const* images, size_t image_count,
                                     const char* plan, const pipit_options* options, char** notes,
                                     pipit_status** status);
/// Writes a model with a plan's scales to `output` as standard ONNX with QuantizeLinear and DequantizeLinear; or, with
/// the option precision w8 or w4 and NULL for the plan, with weights in 8 or 4 bits. `notes` are as in
/// pipit_calibrate(). Options: precision (int8 unless set), group-size, batch, dim, shape, value, keep, activations,
/// weight-bits, target; images (a file or folder, may be repeated) that weights are rounded on, with rounding, threads,
/// limit, strict and those of preprocessing.
PIPIT_API pipit_code pipit_quantize(const char* model, const char* plan, const char* output,
                                    const pipit_options* options, char** notes, pipit_status** status);
/// Runs a model over the images of `folder`, in one sub-folder for each class, and returns how often it is right: the
/// JSON document of `pipit evaluate --json` (docs/json.md). Options: those of models and of classifiers, truth, limit,
/// strict, against, max-drop.
PIPIT_API char* pipit_evaluate_json(const char* model, const char* folder, const pipit_options* options,
                                    pipit_status** status);
/// Removes groups of weights of a model, fits the others and writes the result to `output` as ONNX, in full or not at
/// all. Returns the JSON document of `pipit prune --json` (docs/json.md), which has a "problem" if nothing was written.
/// `images` are as the folder of pipit_evaluate_json(). Options: those of models and of classifiers, one of keep-ratio,
/// target-speedup and max-drop, global, search-seconds, judge-by, mode, importance, group, panel, block, no-refit,
/// check, calibrate-limit, limit, strict; precision is fp32 or int8.
PIPIT_API char* pipit_prune_json(const char* model, const char* images, const char* output,
                                 const pipit_options* options, pipit_status** status);
/// Times every layer on `inputs` (NULL: random numbers, always the same) and returns the JSON document of `pipit
/// profile --json` (docs/json.md). Options: runs, warmup, floor.
PIPIT_API char* pipit_profile_json(const pipit_model* model, const pipit_tensor* inputs, size_t input_count,
                                   const pipit_options* options, pipit_status** status);
/// Describes the model as it runs, layer by layer, with the kernels that refused each: the JSON document of `pipit
/// inspect --why --json` (docs/json.md).
PIPIT_API char* pipit_inspect_json(const pipit_model* model, pipit_status** status);
/// Times whole runs of models and returns the JSON document of `pipit bench --json` (docs/json.md), which also has the
/// error of a model that fails. Progress counts rows, and its stage is the next row. Options: those of models, seconds,
/// runs, warmup, streams, against (another model that runs in turns with each, or a precision to compare with),
/// fail-above.
PIPIT_API char* pipit_bench_json(const char* const* models, size_t model_count, const pipit_options* options,
                                 pipit_status** status);
/// Finds the layers of a model to keep in floating point so that INT8 loses at most the option max-drop, writes the
/// plan that says so to the JSON file `output`, and returns the document of `pipit tune --json` (docs/json.md).
/// `images` are as the folder of pipit_evaluate_json(). Options: those of models and of classifiers, max-drop,
/// confidence, judge-by, keep-as, calibrate-limit, limit, strict.
PIPIT_API char* pipit_tune_json(const char* model, const char* images, const char* output,
                                const pipit_options* options, pipit_status** status);
/// Compares every layer in fp32 and in INT8 with the scales of `plan` over `image_count` image files, or folders of
/// them, and returns the JSON document of `pipit diff --json` (docs/json.md). Options: those of models and of
/// preprocessing, limit, share-limit, fast, strict.
PIPIT_API char* pipit_diff_json(const char* model, const char* const* images, size_t image_count,
                                const char* plan, const pipit_options* options, pipit_status** status);
/// Writes a copy of an ONNX file to `output` with what the options say in its metadata, and returns the JSON document
/// of `pipit annotate --json` (docs/json.md). Options: labels, scores and those of preprocessing, of which at least one
/// must be set.
PIPIT_API char* pipit_annotate_json(const char* model, const char* output, const pipit_options* options,
                                    pipit_status** status);
/// Times single convolutions over a grid of sizes, each precision and kernel in turns with bases, and returns the JSON
/// document of `pipit sweep conv --json` (docs/json.md). What does not run has the reason in its row. Progress counts
/// rows, and its stage is the next row; rows that were measured before it ends the work stay in the file `results`.
/// Options, with several values separated by commas where the command takes a list: n, in, out, size, kernel-size (of
/// the command --kernel), stride, all, sample, seed, precisions (of the command --precision), backend, base, floor,
/// seconds, results, resume, device, threads.
PIPIT_API char* pipit_sweep_conv_json(const pipit_options* options, pipit_status** status);
/// Times single layers with all weights and with those that structured pruning keeps, in turns, compares their results
/// and returns the JSON document of `pipit sweep sparsity --json` (docs/json.md). Layers are the convolutions of
/// `model`, or, if it is NULL, those of the option `layer`, which may be set several times. Progress and lists as in
/// pipit_sweep_conv_json(). Options: layer, precisions, modes and keep-ratios (of the command --precision, --mode and
/// --keep-ratio), importance, group, panel, block, no-refit, seconds, results, resume, device, threads; for a model
/// batch, dim, shape, value.
PIPIT_API char* pipit_sweep_sparsity_json(const char* model, const pipit_options* options,
                                          pipit_status** status);
/// Runs tests in ONNX's layout, which are at or below `folder_count` folders, and returns the JSON document of `pipit
/// verify --json` (docs/json.md), in which a failed test has its reason. Options: those of models, rtol, atol, norm.
PIPIT_API char* pipit_verify_json(const char* const* folders, size_t folder_count,
                                  const pipit_options* options, pipit_status** status);
/// The models that have names, and which of them can be used: the JSON document of `pipit models --json`.
PIPIT_API char* pipit_models_json(pipit_status** status);
/// Downloads the weights of `name_count` named models, with `python3 -m pip`, and stores the models in the user's cache
/// folder. Returns the JSON document of `pipit fetch --json`.
PIPIT_API char* pipit_fetch_json(const char* const* names, size_t name_count, pipit_status** status);
/// What this machine and this build offer: the JSON document of `pipit doctor --json`. Measures nothing.
PIPIT_API char* pipit_doctor_json(pipit_status** status);
/// Measures the ceilings of this machine, which takes some seconds, stores them for the option `floor`, and returns the
/// JSON document of `pipit ceilings --json` (docs/json.md). Options: device, threads, kept (read stored ceilings
/// instead).
PIPIT_API char* pipit_ceilings_json(const pipit_options* options, pipit_status** status);
/// Converts a document that one of these functions has returned: `form` is "csv", "html" (one page for a browser),
/// "trace" (a timeline for Perfetto) or "trtexec". A document that has no such form is PIPIT_INVALID_ARGUMENT.
PIPIT_API char* pipit_report(const char* json, const char* form, pipit_status** status);
/// Compares two files with the JSON of profiles, benches or sweeps (a verdict needs at least three processes on each
/// side), and returns the JSON document of `pipit compare --json` (docs/json.md). Options: fail-above.
PIPIT_API char* pipit_compare_json(const char* first, const char* second, const pipit_options* options,
                                   pipit_status** status);

/// @}

#ifdef __cplusplus
}
#endif

#endif  // PIPIT_PIPIT_C_H
// NOLINTEND(modernize-*)
