// The device, the CUDA runtime, cuBLASLt and the launches of all kernels, as planning and the creation of kernels need
// them: memory of the GPU is memory of the host, and nothing runs.
#include "tests/cuda/planning/made_up_gpu.h"

#include <cuda_runtime_api.h>

#include <cstdlib>
#include <cstring>

#include "engine/cuda/library.h"
#include "engine/plan/tuner.h"
#include "engine/platform/device.h"
#include "engine/runtime/device_session.h"
#include "engine/runtime/layer_clock.h"
#include "layers/cuda/conv/depthwise/plan.h"
#include "layers/cuda/conv/direct/launch.h"
#include "layers/cuda/conv/gemm_args.h"
#include "layers/cuda/conv/library/library.h"
#include "layers/cuda/conv/narrow_gemm/plan.h"
#include "layers/cuda/conv/packed_gemm/plan.h"
#include "layers/cuda/conv/pipelined_gemm/launch.h"
#include "layers/cuda/conv/pooled_stem/plan.h"
#include "layers/cuda/conv/projected_sum/plan.h"
#include "layers/cuda/conv/resident_block/plan.h"
#include "layers/cuda/conv/resident_gemm/plan.h"
#include "layers/cuda/conv/row_chain/plan.h"
#include "layers/cuda/conv/spread_gemm/plan.h"
#include "layers/cuda/conv/squeeze_excite/plan.h"
#include "layers/cuda/conv/stem/plan.h"
#include "layers/cuda/conv/tensor_map.h"
#include "layers/cuda/conv/unpacked_gemm/plan.h"
#include "layers/cuda/device/gpu_info.h"
#include "layers/cuda/libraries/lt_gemm.h"
#include "layers/cuda/linear/gemm.h"
#include "layers/cuda/movement/concat_rows.h"

namespace {

pipit::internal::test::MadeUpGpu& gpu() {
  static pipit::internal::test::MadeUpGpu described;
  return described;
}

cudaError_t hopper(bool& result) {
  result = gpu().major >= 9;
  return cudaSuccess;
}

}  // namespace

namespace pipit::internal::test {

void make_up(const MadeUpGpu& described) {
  gpu() = described;
}

}  // namespace pipit::internal::test

const char* cudaGetErrorString(cudaError_t) {
  return "made up";
}
const char* cudaGetErrorName(cudaError_t) {
  return "made up";
}
cudaError_t cudaGetLastError() {
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* id) {
  *id = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int) {
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount ? gpu().processors : gpu().major;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = 0;
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = std::malloc(bytes);
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void*) {
  *attributes = {cudaMemoryTypeDevice, 0};
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t, cudaStream_t, unsigned) {
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float*, cudaEvent_t, cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, std::size_t* count) {
  *count = 0;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned long long) {
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) {
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  return cudaSuccess;
}

namespace pipit::internal {

CudaStatus cuda_status() {
  return {.compiled = true, .toolkit = "made up", .devices = {"made up"}, .problem = {}};
}
CudaLibraries cuda_libraries() {
  return {"made up", "made up"};
}
std::string gpu_description(int) {
  return "made up";
}
std::size_t gpu_memory(int) {
  return std::size_t{80} << 30;
}
DeviceMemory device_memory(int) {
  return {};
}
void select_gpu(int) {}
std::unique_ptr<KernelTimer> make_cuda_timer(int) {
  return nullptr;
}
// NOLINTNEXTLINE(performance-unnecessary-value-param): as it is declared
std::unique_ptr<DeviceSession> make_cuda_session(std::shared_ptr<const ExecutionPlan>) {
  return nullptr;
}
std::unique_ptr<LayerClock> make_cuda_layer_clock(int) {
  return nullptr;
}

}  // namespace pipit::internal

namespace pipit::internal::cuda {

const CublasLt& cublaslt() {
  static const CublasLt library;
  return library;
}
const CudnnState& cudnn_state() {
  static const CudnnState state{"made up", {}};
  return state;
}
void forget_stream(cudaStream_t) noexcept {}
std::unique_lock<std::recursive_mutex> lock_for_capture() {
  return {};
}

std::unique_ptr<LtGemm> LtGemm::create(const GemmShape&, std::string&, int) {
  return std::unique_ptr<LtGemm>(new LtGemm);
}
LtGemm::~LtGemm() {
  // The library's own.
  (void)handle_, (void)desc_, (void)a_, (void)b_, (void)d_, (void)algorithm_, (void)alpha_, (void)beta_;
}
void LtGemm::run(const void*, const void*, const void*, void*, void*, cudaStream_t) const {}

Im2col::Im2col(const Im2colShape& shape) : shape_(shape) {}
const char* Im2col::problem(const Im2colShape&, std::int64_t) {
  return nullptr;
}
void Im2col::run(const void*, std::int64_t, void*, cudaStream_t) const {}

CUtensorMap matrix_map(const void*, std::int64_t, std::int64_t, int, int) {
  return {};
}
CUtensorMap patch_map(const void*, const ConvShape&, int, int, int) {
  return {};
}
CUtensorMap row_map(const void*, const ConvShape&, int, int) {
  return {};
}

int processors_of(int) {
  return gpu().processors;
}
int hopper_processors(int) {
  return gpu().major >= 9 ? gpu().processors : 0;
}
bool has_hopper_kernels() {
  return gpu().major >= 9;
}
cudaError_t conv_gemm_has_clusters(bool& result) {
  return hopper(result);
}
cudaError_t skinny_gemm_overlaps(bool& result) {
  return hopper(result);
}
cudaError_t concat_rows_overlaps(bool& result) {
  return hopper(result);
}
cudaError_t row_chain_clusters(ChainElement, int ranks, int, int& clusters) {
  clusters = gpu().processors / ranks;
  return cudaSuccess;
}

cudaError_t prepare_pooled_stem(const PooledStemShape&) {
  return cudaSuccess;
}
cudaError_t prepare_projected_sum(const ProjectedSumArgs&) {
  return cudaSuccess;
}
cudaError_t prepare_resident_block(const ResidentBlockArgs&) {
  return cudaSuccess;
}
cudaError_t prepare_row_chain(ChainElement) {
  return cudaSuccess;
}
cudaError_t prepare_squeeze_excite(const SqueezeShape&) {
  return cudaSuccess;
}
cudaError_t prepare_conv_depthwise_quads(ConvDepthwiseArgs&, bool&) {
  return cudaSuccess;
}
cudaError_t prepare_qconv_depthwise(QDepthwiseArgs&, bool&) {
  return cudaSuccess;
}
cudaError_t prepare_conv_gemm(const ConvTile&, int, const ConvGemmArgs&) {
  return cudaSuccess;
}
cudaError_t prepare_qconv_gemm(const ConvTile&, const ConvGemmArgs&) {
  return cudaSuccess;
}
cudaError_t prepare_resident_gemm(const ResidentArgs&) {
  return cudaSuccess;
}
cudaError_t prepare_spread_gemm(const SpreadArgs&) {
  return cudaSuccess;
}
cudaError_t prepare_stem(const StemArgs&, int&, bool&) {
  return cudaSuccess;
}
cudaError_t prepare_packed_gemm(const PackedGemmArgs&, bool& overlap) {
  return hopper(overlap);
}
cudaError_t prepare_unpack(const UnpackArgs&, bool& overlap) {
  return hopper(overlap);
}
cudaError_t prepare_narrow_gemm(const NarrowArgs&, int&, bool&) {
  return cudaSuccess;
}
cudaError_t prepare_pipelined_gemm(int, const PipelinedArgs&, int& resident_blocks) {
  resident_blocks = 2 * gpu().processors;
  return cudaSuccess;
}

cudaError_t launch_concat_rows(ConcatThen, const ConcatRowsArgs&, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_pooled_stem(const PooledStemArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_projected_sum(const ProjectedSumArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_resident_block(const ResidentBlockArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_row_chain(ChainElement, int, const RowChainArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_squeeze_excite(const SqueezeArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_conv_depthwise_quads(const ConvDepthwiseArgs&, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_conv_direct(const DirectConvArgs&, DType, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t pack_direct_weights(const DirectConvArgs&, const void*, const ImageStrides&, DType, float*,
                                cudaStream_t) {
  return cudaSuccess;
}
cudaError_t pack_direct_biases(const void*, std::int64_t, DType, float*, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_conv_depthwise(const DirectConvArgs&, DType, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_conv_gemm(const ConvTile&, int, const ConvGemmArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_pad_channels(const PadChannelsArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_qconv_gemm(const ConvTile&, const ConvGemmArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t prepare_dynamic_gemm(const ConvTile&) {
  return cudaSuccess;
}
cudaError_t launch_dynamic_gemm(const ConvTile&, const ConvGemmArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_pad_bytes(const PadBytesArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_resident_gemm(const ResidentArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_spread_gemm(const SpreadArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_stem(const StemArgs&, int, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_skinny_gemm(const SkinnyGemm&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_qconv_depthwise_quads(const QDepthwiseArgs&, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_qconv_direct(const QDirectConvArgs&, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_qconv_depthwise(const QDirectConvArgs&, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_packed_gemm(const PackedGemmArgs&, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_unpack(const UnpackArgs&, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_narrow_gemm(const NarrowArgs&, int, bool, cudaStream_t) {
  return cudaSuccess;
}
cudaError_t launch_pipelined_gemm(int, const PipelinedArgs&, cudaStream_t) {
  return cudaSuccess;
}
void apply_epilogue(void*, DType, std::int64_t, std::int64_t, const Addend&, const Addend&, const Clamp&,
                    cudaStream_t) {}
void simple_gemm(const SimpleGemm&, DType, DType, const void*, const void*, const Addend&, void*,
                 cudaStream_t) {}

}  // namespace pipit::internal::cuda
