/* The C API from C99: classifies, calibrates, quantizes and profiles the model that pipit has built in, and gives every
   function what it must refuse.

     test_c_api SCRATCH_FOLDER */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipit/pipit_c.h"

static const char kModel[] = "resnet20-cifar10";
enum { kSide = 32, kPixels = kSide * kSide, kClasses = 10, kValues = 3 * kPixels };

/* ONNX: Relu of x, [1, 4, 1, 1]; the same with two operators that do not exist. */
static const unsigned char kRelu[] = {
    0x08, 0x08, 0x3a, 0x3a, 0x0a, 0x0f, 0x0a, 0x01, 0x78, 0x12, 0x01, 0x79, 0x1a, 0x01, 0x79, 0x22, 0x04,
    0x52, 0x65, 0x6c, 0x75, 0x12, 0x05, 0x67, 0x72, 0x61, 0x70, 0x68, 0x5a, 0x1b, 0x0a, 0x01, 0x78, 0x12,
    0x16, 0x0a, 0x14, 0x08, 0x01, 0x12, 0x10, 0x0a, 0x02, 0x08, 0x01, 0x0a, 0x02, 0x08, 0x04, 0x0a, 0x02,
    0x08, 0x01, 0x0a, 0x02, 0x08, 0x01, 0x62, 0x03, 0x0a, 0x01, 0x79, 0x42, 0x02, 0x10, 0x11};
static const unsigned char kUnknown[] = {
    0x08, 0x08, 0x3a, 0x52, 0x0a, 0x13, 0x0a, 0x01, 0x78, 0x12, 0x02, 0x76, 0x30, 0x1a, 0x02,
    0x76, 0x30, 0x22, 0x06, 0x52, 0x69, 0x64, 0x64, 0x6c, 0x65, 0x0a, 0x12, 0x0a, 0x02, 0x76,
    0x30, 0x12, 0x01, 0x79, 0x1a, 0x01, 0x79, 0x22, 0x06, 0x45, 0x6e, 0x69, 0x67, 0x6d, 0x61,
    0x12, 0x05, 0x67, 0x72, 0x61, 0x70, 0x68, 0x5a, 0x1b, 0x0a, 0x01, 0x78, 0x12, 0x16, 0x0a,
    0x14, 0x08, 0x01, 0x12, 0x10, 0x0a, 0x02, 0x08, 0x01, 0x0a, 0x02, 0x08, 0x04, 0x0a, 0x02,
    0x08, 0x01, 0x0a, 0x02, 0x08, 0x01, 0x62, 0x03, 0x0a, 0x01, 0x79, 0x42, 0x02, 0x10, 0x11};

static void fail(int line, const char* what, const pipit_status* status) {
  fprintf(stderr, "line %d: %s (%s)\n", line, what, pipit_status_message(status));
  exit(1);
}
#define CHECK(condition) ((condition) ? (void)0 : fail(__LINE__, #condition, status))
#define REFUSED(code, text) check_refused(__LINE__, code, text)

static pipit_status* status = NULL;

static void check_refused(int line, pipit_code code, const char* text) {
  if (pipit_status_code(status) != code || strstr(pipit_status_message(status), text) == NULL) {
    fprintf(stderr, "line %d: expected code %d and '%s', got code %d and '%s'\n", line, (int)code, text,
            (int)pipit_status_code(status), pipit_status_message(status));
    exit(1);
  }
}

/* A BMP file of 32 x 32 pixels; returns its size. */
static size_t make_bmp(unsigned char* file, unsigned seed) {
  static const unsigned char header[54] = {'B', 'M', 0x36, 0x0c, 0, 0, 0, 0,  0, 0, 54, 0, 0, 0,  40,
                                           0,   0,   0,    32,   0, 0, 0, 32, 0, 0, 0,  1, 0, 24, 0};
  size_t i;
  memcpy(file, header, sizeof header);
  for (i = 0; i < kValues; ++i) file[sizeof header + i] = (unsigned char)(i * (2 * seed + 3) + i / 96 * seed);
  return sizeof header + kValues;
}

static void write_file(const char* path, const void* bytes, size_t size) {
  FILE* file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
}

static char* in_folder(const char* folder, const char* name) {
  const size_t size = strlen(folder) + strlen(name) + 2;
  char* path = malloc(size);
  CHECK(path != NULL);
  snprintf(path, size, "%s/%s", folder, name);
  return path;
}

static void test_versions(void) {
  CHECK(strcmp(pipit_version(), "0.1.0") == 0);
  CHECK(pipit_abi_version() == PIPIT_ABI_VERSION);
}

static void test_options(void) {
  static const char* const good[][2] = {{"batch", "2"},
                                        {"dim", "n=4"},
                                        {"shape", "a=b=1x3x8x8"},
                                        {"value", "rate=true,-1.5,3e2"},
                                        {"input", "mask=mask.npy"},
                                        {"output", "scores"},
                                        {"device", "cuda"},
                                        {"devices", "0,1"},
                                        {"precision", "int8-dynamic"},
                                        {"keep", "first=fp32"},
                                        {"kernel", "Conv=no-winograd"},
                                        {"group-size", "64"},
                                        {"mean", "0.5,0.25,-1"},
                                        {"std", "1,2,3"},
                                        {"bgr", "true"},
                                        {"scores", "log-softmax"},
                                        {"method", "entropy"},
                                        {"percentile", "99.5"},
                                        {"threshold", "0"},
                                        {"activations", "s8"},
                                        {"target", "openvino"},
                                        {"interpolation", "bicubic"},
                                        {"preset", "timm"}};
  static const char* const bad[][3] = {
      {"precision", "int9", "precision is 'int9'; expected one of fp32, fp16"},
      {"Precision", "int8", "there is no option 'Precision'; there are batch, "},
      {"--precision", "int8", "there is no option"},
      {"", "1", "there is no option ''"},
      {"batch", "0", "batch is '0'; expected a number from 1 to 65536"},
      {"batch", "", "batch is ''"},
      {"batch", "2 ", "batch is '2 '"},
      {"batch", "99999999999999999999", "expected a number"},
      {"threads", "-1", "expected a number from 0 to 1024"},
      {"dim", "4", "NAME=VALUE"},
      {"dim", "=4", "NAME=VALUE"},
      {"dim", "n=0", "NAME=VALUE"},
      {"shape", "x=1x", "NAME=1x3x224x224"},
      {"shape", "x=1x2x3x4x5x6x7", "1 to 6"},
      {"shape", "x=4611686018427387904x4", "overflows"},
      {"value", "x=", "NAME=NUMBER"},
      {"devices", "0,,1", "devices is '0,,1'"},
      {"keep", "layer", "NAME=fp32"},
      {"kernel", "Conv=no-", "KERNEL"},
      {"input", "mask", "NAME=FILE.npy"},
      {"kernel", "", "KERNEL"},
      {"group-size", "16", "one of 32, 64, 128"},
      {"mean", "1,2", "three finite numbers"},
      {"mean", "1,2,nan", "three finite numbers"},
      {"std", "1,0,1", "three positive numbers"},
      {"bgr", "yes", "expected true or false"},
      {"percentile", "nan", "more than 0"},
      {"threshold", "1.5", "0 to 1"},
      {"preset", "x", "one of torchvision"},
      {"runs", "0", "from 1"}};
  pipit_options* options = pipit_options_new(&status);
  size_t i;
  CHECK(options != NULL);
  for (i = 0; i < sizeof good / sizeof *good; ++i) {
    CHECK(pipit_options_set(options, good[i][0], good[i][1], &status) == PIPIT_OK);
    CHECK(status == NULL);
  }
  for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
    CHECK(pipit_options_set(options, bad[i][0], bad[i][1], &status) == PIPIT_INVALID_ARGUMENT);
    REFUSED(PIPIT_INVALID_ARGUMENT, bad[i][2]);
  }
  pipit_options_set(NULL, "batch", "1", &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "options is NULL");
  pipit_options_set(options, NULL, "1", &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "name is NULL");
  pipit_options_set(options, "batch", NULL, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "value is NULL");
  CHECK(pipit_options_set(options, "batch", NULL, NULL) == PIPIT_INVALID_ARGUMENT);
  pipit_options_free(options);
  pipit_options_free(NULL);
  CHECK(pipit_option_count() > 30);
  for (i = 0; i < pipit_option_count(); ++i)
    CHECK(pipit_option_name(i) != NULL && pipit_option_values(i) != NULL);
  CHECK(pipit_option_name(i) == NULL && pipit_option_values(i) == NULL);
}

static void test_nothing(void) {
  pipit_tensor tensor;
  size_t size;
  const char* name;
  char* notes;
  /* Without a handle there is nothing. */
  CHECK(pipit_status_code(NULL) == PIPIT_OK && strcmp(pipit_status_message(NULL), "") == 0);
  CHECK(pipit_status_reason_count(NULL) == 0 && pipit_status_reason(NULL, 0) == NULL);
  CHECK(pipit_model_name(NULL) == NULL && pipit_model_note(NULL, 0) == NULL);
  CHECK(pipit_model_metadata(NULL, "key") == NULL);
  CHECK(pipit_model_input_count(NULL) + pipit_model_output_count(NULL) + pipit_model_note_count(NULL) == 0);
  CHECK(pipit_model_device_count(NULL) == 0 && pipit_model_arena_bytes(NULL) == 0);
  CHECK(pipit_classifier_class_count(NULL) == 0 && pipit_classifier_label(NULL, 0) == NULL);
  CHECK(pipit_classifier_preprocessing(NULL) == NULL);
  CHECK(pipit_classifier_note_count(NULL) == 0 && pipit_classifier_note(NULL, 0) == NULL);
  CHECK(pipit_predictions_count(NULL) == 0 && pipit_predictions_index(NULL, 0) == -1);
  CHECK(pipit_predictions_probability(NULL, 0) == 0 && pipit_predictions_label(NULL, 0) == NULL);
  pipit_status_free(NULL);
  pipit_string_free(NULL);
  pipit_model_free(NULL);
  pipit_session_free(NULL);
  pipit_classifier_free(NULL);
  pipit_predictions_free(NULL);
  /* Or an error. */
  CHECK(pipit_model_load(NULL, NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "model is NULL");
  CHECK(pipit_model_load_bytes(NULL, 3, "x", NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "bytes is NULL");
  CHECK(pipit_model_load_bytes("", 0, NULL, NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "name is NULL");
  CHECK(pipit_model_input(NULL, 0, &name, &tensor, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_model_output(NULL, 0, &name, &tensor, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_model_find_input(NULL, "x", &size, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_model_find_output(NULL, "x", &size, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_session_new(NULL, 0, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "model is NULL");
  CHECK(pipit_session_run(NULL, &tensor, 1, &tensor, 1, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_session_run_views(NULL, &tensor, 1, &tensor, 1, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_classifier_load(NULL, NULL, &status) == NULL);
  CHECK(pipit_classifier_clone(NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "classifier is NULL");
  CHECK(pipit_classifier_classify_file(NULL, "x", 1, &status) == NULL);
  CHECK(pipit_classifier_classify_bytes(NULL, "x", 1, 1, &status) == NULL);
  CHECK(pipit_classifier_classify_pixels(NULL, (const uint8_t*)"", 1, 1, 1, &status) == NULL);
  CHECK(pipit_classifier_classify_files(NULL, NULL, 0, 1, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_calibrate(NULL, NULL, 0, NULL, NULL, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_calibrate(kModel, NULL, 1, "p", NULL, &notes, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "images is NULL");
  CHECK(pipit_quantize(kModel, "plan", NULL, NULL, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "output is NULL");
  CHECK(pipit_profile_json(NULL, NULL, 0, NULL, &status) == NULL);
  CHECK(pipit_bench_json(NULL, 1, NULL, &status) == NULL);
  CHECK(pipit_compare_json("a", NULL, NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "second is NULL");
  CHECK(pipit_compare_json(".", ".", NULL, &status) == NULL && pipit_status_code(status) == PIPIT_ERROR);
  CHECK(pipit_prune_json(kModel, "photos", NULL, NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "output is NULL");
  CHECK(pipit_inspect_json(NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "model is NULL");
}

static void test_models_that_do_not_load(void) {
  pipit_options* options = pipit_options_new(NULL);
  CHECK(pipit_model_load("no/such/model.onnx", NULL, &status) == NULL);
  REFUSED(PIPIT_ERROR, "no/such/model.onnx");
  CHECK(pipit_model_load("no/such/model.onnx", NULL, NULL) == NULL);
  CHECK(pipit_model_load_bytes("nonsense", 8, "bytes", NULL, &status) == NULL);
  REFUSED(PIPIT_ERROR, "bytes");
  CHECK(pipit_model_load_bytes(kUnknown, sizeof kUnknown, "riddle", NULL, &status) == NULL);
  REFUSED(PIPIT_UNSUPPORTED, "riddle");
  CHECK(pipit_status_reason_count(status) == 2);
  CHECK(strstr(pipit_status_reason(status, 0), "Riddle") != NULL);
  CHECK(strstr(pipit_status_reason(status, 1), "Enigma") != NULL);
  CHECK(pipit_status_reason(status, 2) == NULL);
  CHECK(pipit_options_set(options, "precision", "int8", &status) == PIPIT_OK);
  CHECK(pipit_model_load(kModel, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "quantization plan");
  CHECK(pipit_classifier_load("no/such/model.onnx", NULL, &status) == NULL);
  REFUSED(PIPIT_ERROR, "no/such/model.onnx");
  pipit_options_free(options);
}

static void test_tensors(void) {
  float before_x[6] = {0, 0, -1, 2, -3, 4}, y[4] = {9, 9, 9, 9};
  int64_t shape[4] = {1, 4, 1, 1}, strides[4] = {4, 1, 1, 1};
  pipit_tensor input, output, view;
  const char* name = NULL;
  size_t index = 9;
  pipit_session* session;
  pipit_model* model = pipit_model_load_bytes(kRelu, sizeof kRelu, "relu", NULL, &status);
  CHECK(model != NULL && strcmp(pipit_model_name(model), "relu") == 0);
  CHECK(pipit_model_input_count(model) == 1 && pipit_model_output_count(model) == 1);
  CHECK(pipit_model_device_count(model) == 1 && pipit_model_metadata(model, "no such key") == NULL);
  CHECK(pipit_model_metadata(model, NULL) == NULL);
  CHECK(pipit_model_input(model, 0, &name, &input, &status) == PIPIT_OK && strcmp(name, "x") == 0);
  CHECK(input.data == NULL && input.ndim == 4 && memcmp(input.shape, shape, sizeof shape) == 0);
  CHECK(input.dtype.code == 2 && input.dtype.bits == 32 && input.dtype.lanes == 1);
  CHECK(input.device.device_type == 1 && input.strides == NULL && input.byte_offset == 0);
  CHECK(pipit_model_output(model, 0, NULL, &output, &status) == PIPIT_OK);
  CHECK(pipit_model_input(model, 1, NULL, &output, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "there is no input 1; the model has 1");
  CHECK(pipit_model_output(model, 0, NULL, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_model_find_input(model, "x", &index, &status) == PIPIT_OK && index == 0);
  index = 9;
  CHECK(pipit_model_find_output(model, "y", &index, &status) == PIPIT_OK && index == 0);
  CHECK(pipit_model_find_output(model, "x", &index, &status) == PIPIT_INVALID_ARGUMENT && index == 0);
  REFUSED(PIPIT_INVALID_ARGUMENT, "there is no output 'x'; the model has 'y'");
  CHECK(pipit_session_new(model, 1, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "device is 1");
  CHECK(pipit_session_new(model, -1, &status) == NULL);
  session = pipit_session_new(model, 0, &status);
  CHECK(session != NULL && status == NULL);
  pipit_model_free(model); /* the session keeps it */

  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "output 'y': its data is NULL");
  output.data = y;
  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "input 'x': its data is NULL");
  input.data = before_x + 2;
  input.shape = shape;
  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_OK);
  CHECK(y[0] == 0 && y[1] == 2 && y[2] == 0 && y[3] == 4);
  CHECK(pipit_session_run_views(session, &input, 1, &view, 1, &status) == PIPIT_OK);
  CHECK(view.data != y && memcmp(view.data, y, sizeof y) == 0 && view.ndim == 4 && view.shape[1] == 4);

  /* Another description of the same. */
  input.strides = strides;
  input.data = before_x;
  input.byte_offset = 8;
  input.device.device_type = 3;
  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_OK);
  CHECK(y[3] == 4);

  /* What is refused writes nothing. */
  y[3] = 9;
  strides[1] = 2;
  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "input 'x': its strides");
  strides[1] = 1;
  shape[1] = 5;
  pipit_session_run(session, &input, 1, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "its shape is 1x5x1x1; expected 1x4x1x1");
  shape[1] = 4;
  input.ndim = 1000000;
  pipit_session_run(session, &input, 1, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "its shape is of 1000000 dimensions");
  input.ndim = -1;
  pipit_session_run(session, &input, 1, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "of -1 dimensions");
  input.ndim = 4;
  input.shape = NULL;
  pipit_session_run(session, &input, 1, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "its shape is NULL");
  input.shape = shape;
  input.dtype.bits = 64;
  pipit_session_run(session, &input, 1, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "its type is (code 2, 64 bits, 1 lanes); expected f32");
  input.dtype.bits = 32;
  input.device.device_type = 2;
  pipit_session_run(session, &input, 1, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "device type 2");
  input.device.device_type = 1;
  pipit_session_run(session, &input, 2, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "2 inputs are given; the model has 1");
  pipit_session_run(session, &input, 1, &output, 0, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "0 outputs are given; the model has 1");
  pipit_session_run(session, NULL, 1, &output, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "inputs is NULL");
  pipit_session_run(session, &input, 1, NULL, 1, &status);
  REFUSED(PIPIT_INVALID_ARGUMENT, "outputs is NULL");
  CHECK(pipit_session_run_views(session, &input, 1, NULL, 1, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(y[3] == 9);
  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_OK);
  CHECK(y[3] == 4 && status == NULL);
  /* Outputs have memory of their own. */
  output.data = before_x + 3;
  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "output 'y' overlaps that of input 'x'");
  output.data = view.data;
  CHECK(pipit_session_run(session, &input, 1, &output, 1, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "memory of this session");
  /* A GPU's memory is for models on a GPU. */
  output.data = y;
  CHECK(pipit_session_run_on_stream(session, &input, 1, &output, 1, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT,
          "input 'x': its memory is of device type 1; expected memory of a GPU, 2 or 13");
  input.device.device_type = 2;
  output.device.device_type = 13;
  CHECK(pipit_session_run_on_stream(session, &input, 1, &output, 1, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "this one runs on the CPU");
  CHECK(pipit_session_run_on_stream(session, &input, 1, &output, 0, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_session_run_on_stream(NULL, &input, 1, &output, 1, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  pipit_session_free(session);
}

static void check_same(const pipit_predictions* a, const pipit_predictions* b, size_t count) {
  size_t i;
  CHECK(pipit_predictions_count(a) == count && pipit_predictions_count(b) == count);
  for (i = 0; i < count; ++i) {
    CHECK(pipit_predictions_index(a, i) == pipit_predictions_index(b, i));
    CHECK(pipit_predictions_probability(a, i) == pipit_predictions_probability(b, i));
    CHECK(strcmp(pipit_predictions_label(a, i), pipit_predictions_label(b, i)) == 0);
  }
}

static void test_classifier(const char* image, const unsigned char* bmp, size_t size) {
  uint8_t rgb[kValues];
  float sum = 0;
  size_t i;
  enum { kMany = 3 };
  const char* paths[kMany];
  pipit_predictions *by_file, *by_bytes, *by_pixels, *by_clone, *many[kMany];
  pipit_classifier *classifier = pipit_classifier_load(kModel, NULL, &status), *clone;
  CHECK(classifier != NULL && pipit_classifier_class_count(classifier) == kClasses);
  CHECK(strcmp(pipit_classifier_label(classifier, 3), "cat") == 0);
  CHECK(pipit_classifier_label(classifier, kClasses) == NULL &&
        pipit_classifier_label(classifier, -1) == NULL);
  CHECK(strlen(pipit_classifier_preprocessing(classifier)) > 0);
  CHECK(pipit_classifier_note(classifier, pipit_classifier_note_count(classifier)) == NULL);
  by_file = pipit_classifier_classify_file(classifier, image, kClasses + 5, &status);
  by_bytes = pipit_classifier_classify_bytes(classifier, bmp, size, kClasses, &status);
  /* The file has blue first, and rows from bottom to top. */
  for (i = 0; i < kValues; ++i) {
    const size_t y = i / (3 * kSide), x = i / 3 % kSide, c = i % 3;
    rgb[i] = bmp[54 + ((kSide - 1 - y) * kSide + x) * 3 + (2 - c)];
  }
  by_pixels = pipit_classifier_classify_pixels(classifier, rgb, kSide, kSide, kClasses, &status);
  check_same(by_file, by_bytes, kClasses);
  check_same(by_file, by_pixels, kClasses);
  for (i = 0; i < kClasses; ++i) sum += pipit_predictions_probability(by_file, i);
  CHECK(fabsf(sum - 1) < 1e-5F);
  CHECK(pipit_predictions_probability(by_file, 0) >= pipit_predictions_probability(by_file, 1));
  CHECK(pipit_predictions_index(by_file, kClasses) == -1 &&
        pipit_predictions_label(by_file, kClasses) == NULL);
  clone = pipit_classifier_clone(classifier, &status);
  for (i = 0; i < kMany; ++i) paths[i] = image;
  CHECK(pipit_classifier_classify_files(classifier, paths, kMany, kClasses, many, &status) == PIPIT_OK);
  for (i = 0; i < kMany; ++i) {
    check_same(many[i], by_file, kClasses);
    pipit_predictions_free(many[i]);
  }
  paths[1] = "no such image";
  CHECK(pipit_classifier_classify_files(classifier, paths, kMany, 1, many, &status) == PIPIT_ERROR);
  REFUSED(PIPIT_ERROR, "no such image");
  for (i = 0; i < kMany; ++i) CHECK(many[i] == NULL);
  paths[1] = NULL;
  CHECK(pipit_classifier_classify_files(classifier, paths, kMany, 1, many, &status) ==
        PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "a path is NULL");
  CHECK(pipit_classifier_classify_files(classifier, NULL, kMany, 1, many, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_classifier_classify_files(classifier, paths, 1, 1, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_classifier_classify_files(classifier, NULL, 0, 1, NULL, &status) == PIPIT_OK);

  CHECK(pipit_classifier_classify_file(classifier, "no such image", 1, &status) == NULL);
  REFUSED(PIPIT_ERROR, "no such image");
  CHECK(pipit_classifier_classify_file(classifier, NULL, 1, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "path is NULL");
  CHECK(pipit_classifier_classify_file(classifier, image, 0, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "top is 0");
  CHECK(pipit_classifier_classify_bytes(classifier, bmp, 60, 1, &status) == NULL);
  CHECK(pipit_status_code(status) == PIPIT_ERROR);
  CHECK(pipit_classifier_classify_bytes(classifier, "GIF89a..........", 16, 1, &status) == NULL);
  CHECK(pipit_status_code(status) == PIPIT_UNSUPPORTED);
  CHECK(pipit_classifier_classify_bytes(classifier, NULL, 60, 1, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "bytes is NULL");
  CHECK(pipit_classifier_classify_pixels(classifier, rgb, 0, kSide, 1, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "the image is 0 x 32 pixels");
  CHECK(pipit_classifier_classify_pixels(classifier, rgb, kSide, 30001, 1, &status) == NULL);
  CHECK(pipit_classifier_classify_pixels(classifier, NULL, kSide, kSide, 1, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "rgb is NULL");

  pipit_classifier_free(classifier);
  by_clone = pipit_classifier_classify_file(clone, image, kClasses, &status);
  check_same(by_file, by_clone, kClasses);
  pipit_classifier_free(clone);
  pipit_predictions_free(by_file);
  pipit_predictions_free(by_bytes);
  pipit_predictions_free(by_pixels);
  pipit_predictions_free(by_clone);
}

/* The last stage that was reported, and how far the work was. */
typedef struct progress {
  int calls;
  int64_t done;
  char stage[64];
} progress;

static int note_progress(void* user, const char* stage, int64_t done, int64_t total) {
  progress* last = user;
  ++last->calls;
  if (done <= total && done > last->done) last->done = done;
  last->stage[0] = '\0';
  strncat(last->stage, stage, sizeof last->stage - 1);
  return 0;
}

static int cancel(void* user, const char* stage, int64_t done, int64_t total) {
  return note_progress(user, stage, done, total) + 7;
}

/* Has `options` report to `last`, which becomes empty. */
static void set_progress(pipit_options* options, pipit_progress call, progress* last) {
  last->calls = 0;
  last->done = -1;
  last->stage[0] = '\0';
  CHECK(pipit_options_set_progress(options, call, last, &status) == PIPIT_OK);
}

/* Runs that have ended, and what the errors said. Callbacks of one stream come one after the other. */
typedef struct ended_runs {
  int good;
  int bad;
} ended_runs;

static void count_runs(void* user, const pipit_status* error) {
  ended_runs* ended = user;
  if (error == NULL) {
    ++ended->good;
  } else if (pipit_status_code(error) == PIPIT_INVALID_ARGUMENT &&
             strstr(pipit_status_message(error), "overlaps") != NULL) {
    ++ended->bad;
  }
}

static void test_runner(void) {
  enum { kRuns = 20 };
  float x[4] = {-1, 2, -3, 4}, y[kRuns][4];
  ended_runs ended = {0, 0};
  pipit_tensor input, output;
  int i;
  pipit_model* model = pipit_model_load_bytes(kRelu, sizeof kRelu, "relu", NULL, &status);
  pipit_runner* runner = pipit_runner_new(model, 1, 1, 3, &status);
  CHECK(runner != NULL && pipit_model_input(model, 0, NULL, &input, &status) == PIPIT_OK);
  CHECK(pipit_model_output(model, 0, NULL, &output, &status) == PIPIT_OK);
  CHECK(pipit_runner_submit(runner, &input, 1, &output, 1, count_runs, &ended, &status) ==
        PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "output 'y': its data is NULL");
  input.data = x;
  for (i = 0; i < kRuns; ++i) {
    output.data = y[i];
    CHECK(pipit_runner_submit(runner, &input, 1, &output, 1, count_runs, &ended, &status) == PIPIT_OK);
  }
  output.data = x;
  CHECK(pipit_runner_submit(runner, &input, 1, &output, 1, count_runs, &ended, &status) == PIPIT_OK);
  output.data = y[0];
  CHECK(pipit_runner_submit(runner, &input, 1, &output, 1, NULL, NULL, &status) == PIPIT_OK);
  CHECK(pipit_runner_wait(runner, &status) == PIPIT_OK);
  CHECK(ended.good == kRuns && ended.bad == 1);
  for (i = 0; i < kRuns; ++i) CHECK(y[i][0] == 0 && y[i][1] == 2 && y[i][2] == 0 && y[i][3] == 4);
  CHECK(pipit_runner_submit(runner, &input, 1, &output, 1, count_runs, &ended, &status) == PIPIT_OK);
  pipit_runner_free(runner); /* waits */
  CHECK(ended.good == kRuns + 1);
  CHECK(pipit_runner_new(model, 2, 1, 0, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "2 streams and 1 threads");
  CHECK(pipit_runner_new(NULL, 1, 1, 0, &status) == NULL);
  CHECK(pipit_runner_submit(NULL, &input, 1, &output, 1, NULL, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_runner_wait(NULL, &status) == PIPIT_INVALID_ARGUMENT);
  pipit_runner_free(NULL);
  pipit_model_free(model);
}

static void test_tools(const char* image, const char* plan, const char* quantized) {
  const char* images[1];
  const char* no_images[1] = {NULL};
  progress last;
  char unset[] = "of an earlier call";
  char *notes = NULL, *json;
  pipit_options* options = pipit_options_new(&status);
  pipit_options* rounding;
  pipit_model* model;
  images[0] = image;
  CHECK(pipit_options_set(options, "keep", "first=fp32", &status) == PIPIT_OK);
  set_progress(options, note_progress, &last);
  CHECK(pipit_calibrate(kModel, images, 1, plan, options, &notes, &status) == PIPIT_OK);
  CHECK(last.done == 1 && notes != NULL);
  pipit_string_free(notes);
  remove(quantized); /* of an earlier test */
  notes = unset;
  set_progress(options, cancel, &last);
  CHECK(pipit_calibrate(kModel, images, 1, quantized, options, &notes, &status) == PIPIT_CANCELLED);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(notes == NULL);
  CHECK(last.calls == 1 && fopen(quantized, "rb") == NULL); /* no file of a plan is left */
  CHECK(pipit_calibrate(kModel, images, 1, plan, NULL, NULL, &status) == PIPIT_OK);
  CHECK(pipit_calibrate(kModel, no_images, 1, plan, NULL, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_calibrate(kModel, no_images, 0, plan, NULL, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_calibrate(kModel, images, 1, image, NULL, NULL, &status) == PIPIT_ERROR);
  CHECK(pipit_quantize(kModel, plan, quantized, NULL, &notes, &status) == PIPIT_OK);
  pipit_string_free(notes);
  CHECK(pipit_quantize(kModel, image, quantized, NULL, NULL, &status) == PIPIT_ERROR);
  CHECK(pipit_options_set(options, "target", "tensorrt", &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, plan, quantized, options, NULL, &status) == PIPIT_CANCELLED);
  CHECK(strcmp(last.stage, "reading") == 0);
  set_progress(options, note_progress, &last);
  CHECK(pipit_quantize(kModel, plan, quantized, options, NULL, &status) == PIPIT_OK);
  CHECK(strcmp(last.stage, "writing") == 0);
  CHECK(pipit_options_set(options, "target", "openvino", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "activations", "s8", &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, plan, quantized, options, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "OpenVINO");
  CHECK(pipit_options_set(options, "target", "ncnn", &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "expected one of pipit, tensorrt, onnxruntime");
  rounding = pipit_options_new(&status);
  CHECK(pipit_options_set(rounding, "images", image, &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, plan, quantized, rounding, NULL, &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, NULL, quantized, rounding, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "needs a plan");
  CHECK(pipit_options_set(rounding, "weight-bits", "4", &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, plan, quantized, rounding, NULL, &status) == PIPIT_OK);
  CHECK(pipit_options_set(rounding, "weight-bits", "5", &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "expected one of 8, 4");
  CHECK(pipit_options_set(rounding, "weight-bits", "8", &status) == PIPIT_OK);
  CHECK(pipit_options_set(rounding, "precision", "fp32", &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, plan, quantized, rounding, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "expected int8, w8 or w4");
  CHECK(pipit_options_set(rounding, "precision", "w4", &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, NULL, quantized, rounding, NULL, &status) == PIPIT_OK);
  CHECK(pipit_options_set(rounding, "rounding", "nearest", &status) == PIPIT_OK);
  CHECK(pipit_quantize(kModel, NULL, quantized, rounding, NULL, &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "images are for second-order rounding");
  CHECK(pipit_options_set(rounding, "rounding", "up", &status) == PIPIT_INVALID_ARGUMENT);
  REFUSED(PIPIT_INVALID_ARGUMENT, "expected one of nearest, second-order");
  pipit_options_free(rounding);

  CHECK(pipit_options_set(options, "precision", "int8", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "plan", plan, &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "runs", "2", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "warmup", "0", &status) == PIPIT_OK);
  set_progress(options, cancel, &last);
  CHECK(pipit_model_load(kModel, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(pipit_classifier_load(kModel, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 2 && strcmp(last.stage, "reading") == 0);
  set_progress(options, note_progress, &last);
  model = pipit_model_load(kModel, options, &status);
  CHECK(model != NULL && strcmp(last.stage, "compiling") == 0);
  set_progress(options, cancel, &last);
  CHECK(pipit_profile_json(model, NULL, 0, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  set_progress(options, note_progress, &last);
  json = pipit_profile_json(model, NULL, 0, options, &status);
  CHECK(last.done == 2 && strcmp(last.stage, "running") == 0);
  CHECK(json != NULL && strstr(json, "\"precision\": \"int8\"") != NULL &&
        strstr(json, "\"runs\": 2") != NULL);
  CHECK(strstr(json, "\"median_ms\": ") != NULL && strstr(json, "\"kernel\": ") != NULL);
  pipit_string_free(json);
  CHECK(pipit_profile_json(model, NULL, 1, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "inputs is NULL");
  json = pipit_inspect_json(model, &status);
  CHECK(json != NULL && strstr(json, "\"command\": \"inspect\"") != NULL &&
        strstr(json, "\"inputs\": ") != NULL && strstr(json, "\"refused\": ") != NULL &&
        strstr(json, "\"parameters\": ") != NULL);
  pipit_string_free(json);
  pipit_model_free(model);
  images[0] = kModel;
  set_progress(options, note_progress, &last);
  CHECK(pipit_options_set(options, "against", "fp32", &status) == PIPIT_OK);
  json = pipit_bench_json(images, 1, options, &status);
  CHECK(json != NULL && last.done == 0 && strstr(last.stage, kModel) != NULL &&
        strstr(json, "\"command\": \"bench\"") != NULL && strstr(json, "\"comparisons\": ") != NULL);
  pipit_string_free(json);
  set_progress(options, cancel, &last);
  CHECK(pipit_bench_json(images, 1, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 1);
  set_progress(options, NULL, &last);
  CHECK(pipit_bench_json(images, 0, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "no model");
  model = pipit_model_load(quantized, NULL, &status);
  CHECK(model != NULL);
  pipit_model_free(model);
  CHECK(last.calls == 0);
  pipit_options_free(options);
  CHECK(pipit_options_set_progress(NULL, cancel, NULL, &status) == PIPIT_INVALID_ARGUMENT);
}

/* `folder` has an image of class 3 and one of class 5. */
static void test_evaluation(const char* folder) {
  progress last;
  char* json;
  pipit_options* options = pipit_options_new(&status);
  CHECK(pipit_options_set(options, "against", "fp16", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "max-drop", "100", &status) == PIPIT_OK);
  set_progress(options, note_progress, &last);
  json = pipit_evaluate_json(kModel, folder, options, &status);
  CHECK(json != NULL && strstr(json, "\"command\": \"evaluate\"") != NULL);
  CHECK(strstr(json, "\"images\": 2") != NULL && strstr(json, "\"verdict\": \"proven\"") != NULL);
  CHECK(last.done == 4);
  pipit_string_free(json);
  set_progress(options, cancel, &last);
  CHECK(pipit_evaluate_json(kModel, folder, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 1);
  set_progress(options, NULL, &last);
  CHECK(pipit_options_set(options, "against", "no model", &status) == PIPIT_OK);
  CHECK(pipit_evaluate_json(kModel, folder, options, &status) == NULL);
  REFUSED(PIPIT_ERROR, "no model");
  pipit_options_free(options);

  options = pipit_options_new(&status);
  CHECK(pipit_options_set(options, "max-drop", "-1", &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_options_set(options, "limit", "-1", &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_options_set(options, "limit", "1", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "max-drop", "1", &status) == PIPIT_OK);
  CHECK(pipit_evaluate_json(kModel, folder, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "against");
  CHECK(pipit_evaluate_json(kModel, "nowhere", NULL, &status) == NULL);
  REFUSED(PIPIT_ERROR, "nowhere");
  CHECK(pipit_evaluate_json(kModel, NULL, NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "folder is NULL");
  pipit_options_free(options);
}

static void test_pruning(const char* folder, const char* pruned) {
  progress last;
  char* json;
  pipit_options* options = pipit_options_new(&status);
  CHECK(pipit_prune_json(kModel, folder, pruned, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "exactly one goal");
  CHECK(pipit_options_set(options, "mode", "rows", &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_options_set(options, "judge-by", "model", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "no-refit", "true", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "keep-ratio", "0.5", &status) == PIPIT_OK);
  set_progress(options, cancel, &last);
  CHECK(pipit_prune_json(kModel, folder, pruned, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 1);
  set_progress(options, note_progress, &last);
  json = pipit_prune_json(kModel, folder, pruned, options, &status);
  CHECK(json != NULL && last.done > 0 && strstr(json, "\"command\": \"prune\"") != NULL &&
        strstr(json, "\"refit\": false") != NULL);
  pipit_string_free(json);
  CHECK(pipit_prune_json(kModel, "nowhere", pruned, options, &status) == NULL);
  REFUSED(PIPIT_ERROR, "nowhere");
  pipit_options_free(options);
}

/* Two images as above, and a plan of the built-in model. */
static void test_mixed_precision(const char* folder, const char* plan, const char* mixed) {
  progress last;
  const char* images[1];
  char* json;
  pipit_options* options = pipit_options_new(&status);
  CHECK(pipit_options_set(options, "keep-as", "int8", &status) == PIPIT_INVALID_ARGUMENT);
  CHECK(pipit_options_set(options, "fast", "true", &status) == PIPIT_OK);
  images[0] = folder;
  set_progress(options, note_progress, &last);
  json = pipit_diff_json(kModel, images, 1, plan, options, &status);
  CHECK(json != NULL && last.done == 2 && strstr(json, "\"command\": \"diff\"") != NULL);
  pipit_string_free(json);
  set_progress(options, cancel, &last);
  CHECK(pipit_diff_json(kModel, images, 1, plan, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 1);
  set_progress(options, NULL, &last);
  CHECK(pipit_diff_json(kModel, images, 1, "nowhere", options, &status) == NULL);
  REFUSED(PIPIT_ERROR, "nowhere");
  CHECK(pipit_diff_json(kModel, NULL, 1, plan, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "images is NULL");

  CHECK(pipit_options_set(options, "max-drop", "100", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "confidence", "50", &status) == PIPIT_OK);
  CHECK(pipit_options_set(options, "judge-by", "model", &status) == PIPIT_OK);
  set_progress(options, cancel, &last);
  CHECK(pipit_tune_json(kModel, folder, mixed, options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 1);
  set_progress(options, NULL, &last);
  CHECK(pipit_tune_json(kModel, folder, NULL, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "output is NULL");
  CHECK(pipit_tune_json(kModel, "nowhere", mixed, options, &status) == NULL);
  REFUSED(PIPIT_ERROR, "nowhere");
  pipit_options_free(options);
}

static void test_annotation(const char* quantized, const char* annotated) {
  char* json;
  pipit_model* model;
  pipit_options* options = pipit_options_new(&status);
  CHECK(pipit_annotate_json(quantized, annotated, NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "nothing");
  CHECK(pipit_options_set(options, "scores", "logits", &status) == PIPIT_OK);
  json = pipit_annotate_json(quantized, annotated, options, &status);
  CHECK(json != NULL && strstr(json, "\"command\": \"annotate\"") != NULL);
  pipit_string_free(json);
  model = pipit_model_load(annotated, NULL, &status);
  CHECK(model != NULL && strcmp(pipit_model_metadata(model, "pipit.scores"), "logits") == 0);
  pipit_model_free(model);
  pipit_options_free(options);
}

static void test_sweeps(void) {
  static const char* const conv[][2] = {
      {"n", "1"},           {"in", "8"},     {"out", "8,16"}, {"size", "8"},
      {"kernel-size", "3"}, {"stride", "1"}, {"all", "true"}, {"precisions", "fp16,int8"}};
  static const char* const sparsity[][2] = {{"layer", "1x8x8x8:16x3x3"}, {"modes", "channel,k"},
                                            {"keep-ratios", "0.5"},      {"importance", "l2"},
                                            {"no-refit", "true"},        {"seconds", "0"}};
  static const char* const bad[][3] = {{"n", "1,,2", "from 1"},
                                       {"kernel-size", "256", "to 255"},
                                       {"precisions", "fp32,w4", "fp32, fp16, bf16, int8"},
                                       {"modes", "rows", "k-panel"},
                                       {"keep-ratios", "0.5,2", "from 0.05 to 1"},
                                       {"importance", "l3", "l1, l2"},
                                       {"seed", "-1", "from 0"}};
  progress last;
  size_t i;
  char *json, *report;
  pipit_options* options = pipit_options_new(&status);
  for (i = 0; i < sizeof bad / sizeof *bad; ++i) {
    CHECK(pipit_options_set(options, bad[i][0], bad[i][1], &status) == PIPIT_INVALID_ARGUMENT);
    REFUSED(PIPIT_INVALID_ARGUMENT, bad[i][2]);
  }
  for (i = 0; i < sizeof conv / sizeof *conv; ++i)
    CHECK(pipit_options_set(options, conv[i][0], conv[i][1], &status) == PIPIT_OK);
  set_progress(options, note_progress, &last);
  json = pipit_sweep_conv_json(options, &status);
  CHECK(json != NULL && last.done >= 0 && strstr(json, "\"command\": \"sweep conv\"") != NULL);
  report = pipit_report(json, "csv", &status);
  CHECK(report != NULL && strchr(report, '\n') != NULL);
  pipit_string_free(report);
  report = pipit_report(json, "html", &status);
  CHECK(report != NULL && strstr(report, "</html>") != NULL);
  pipit_string_free(report);
  CHECK(pipit_report(json, "trace", &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "");
  CHECK(pipit_report(json, "pdf", &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "csv, html, trace, trtexec");
  CHECK(pipit_report(NULL, "csv", &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "json is NULL");
  pipit_string_free(json);
  set_progress(options, cancel, &last);
  CHECK(pipit_sweep_conv_json(options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 1);
  set_progress(options, NULL, &last);
  CHECK(pipit_options_set(options, "base", "fp64", &status) == PIPIT_OK);
  CHECK(pipit_sweep_conv_json(options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "fp64");
  pipit_options_free(options);

  options = pipit_options_new(&status);
  for (i = 0; i < sizeof sparsity / sizeof *sparsity; ++i)
    CHECK(pipit_options_set(options, sparsity[i][0], sparsity[i][1], &status) == PIPIT_OK);
  json = pipit_sweep_sparsity_json(NULL, options, &status);
  CHECK(json != NULL && strstr(json, "\"command\": \"sweep sparsity\"") != NULL &&
        strstr(json, "\"channel\"") != NULL);
  pipit_string_free(json);
  CHECK(pipit_sweep_sparsity_json("no model", NULL, &status) == NULL);
  REFUSED(PIPIT_ERROR, "no model");
  CHECK(pipit_options_set(options, "layer", "1x8", &status) == PIPIT_OK);
  CHECK(pipit_sweep_sparsity_json(NULL, options, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "1x8");
  pipit_options_free(options);
}

static void test_machine(const char* folder) {
  progress last;
  pipit_options* options = pipit_options_new(&status);
  char* json = pipit_doctor_json(&status);
  const char* names[1];
  CHECK(json != NULL && strstr(json, "\"findings\": ") != NULL);
  pipit_string_free(json);
  json = pipit_models_json(&status);
  CHECK(json != NULL && strstr(json, kModel) != NULL);
  pipit_string_free(json);
  names[0] = "no model";
  CHECK(pipit_fetch_json(names, 1, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "no model");
  set_progress(options, cancel, &last);
  CHECK(pipit_ceilings_json(options, &status) == NULL);
  REFUSED(PIPIT_CANCELLED, "cancelled");
  CHECK(last.calls == 1);
  names[0] = folder;
  CHECK(pipit_verify_json(names, 1, NULL, &status) == NULL);
  REFUSED(PIPIT_ERROR, "no model.onnx");
  CHECK(pipit_verify_json(NULL, 1, NULL, &status) == NULL);
  REFUSED(PIPIT_INVALID_ARGUMENT, "folders is NULL");
  pipit_options_free(options);
}

int main(int argc, char** argv) {
  unsigned char bmp[54 + kValues];
  const size_t size = make_bmp(bmp, 1);
  char *image, *plan, *quantized, *labelled, *other, *pruned, *mixed, *annotated;
  if (argc != 2) {
    fprintf(stderr, "usage: test_c_api SCRATCH_FOLDER\n");
    return 2;
  }
  image = in_folder(argv[1], "c_api.bmp");
  plan = in_folder(argv[1], "c_api.json");
  quantized = in_folder(argv[1], "c_api.onnx");
  pruned = in_folder(argv[1], "c_api_pruned.onnx");
  mixed = in_folder(argv[1], "c_api_mixed.json");
  annotated = in_folder(argv[1], "c_api_annotated.onnx");
  labelled = in_folder(argv[1], "labelled/3_a.bmp");
  other = in_folder(argv[1], "labelled/5_b.bmp");
  write_file(image, bmp, size);
  write_file(labelled, bmp, size);
  write_file(other, bmp, size);
  labelled[strlen(labelled) - strlen("/3_a.bmp")] = 0;
  test_versions();
  test_options();
  test_nothing();
  test_models_that_do_not_load();
  test_tensors();
  test_runner();
  test_classifier(image, bmp, size);
  test_tools(image, plan, quantized);
  test_evaluation(labelled);
  test_pruning(labelled, pruned);
  test_mixed_precision(labelled, plan, mixed);
  test_annotation(quantized, annotated);
  test_sweeps();
  test_machine(labelled);
  pipit_status_free(status);
  free(image);
  free(plan);
  free(quantized);
  free(pruned);
  free(mixed);
  free(annotated);
  free(labelled);
  free(other);
  printf("C API: all as documented\n");
  return 0;
}
