#include "layers/cuda/libraries/lt_gemm.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

namespace pipit::internal::cuda {

namespace {

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  PIPIT_CUBLASLT(cublaslt().desc_set(desc, attribute, &value, sizeof value));
}

template <typename T>
void set(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
  PIPIT_CUBLASLT(cublaslt().layout_set(layout, attribute, &value, sizeof value));
}

template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  PIPIT_CUBLASLT(cublaslt().preference_set(preference, attribute, &value, sizeof value));
}

cudaDataType_t data_type(DType type) {
  switch (type) {
    case DType::f16:
      return CUDA_R_16F;
    case DType::bf16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cublasLtMatrixLayout_t make_layout(const GemmShape& shape, DType dtype, std::int64_t rows,
                                   std::int64_t columns, std::int64_t ld, std::int64_t step) {
  cublasLtMatrixLayout_t layout = nullptr;
  PIPIT_CUBLASLT(cublaslt().layout_create(&layout, data_type(dtype), static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), ld));
  if (shape.batch > 1) {
    set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<std::int32_t>(shape.batch));
    set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }
  return layout;
}

struct Preference {
  cublasLtMatmulPreference_t handle = nullptr;
  Preference() { PIPIT_CUBLASLT(cublaslt().preference_create(&handle)); }
  ~Preference() { (void)cublaslt().preference_destroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
};

cublasLtEpilogue_t epilogue_of(const GemmShape& shape) {
  if (shape.bias != nullptr) return shape.relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
  return shape.relu ? CUBLASLT_EPILOGUE_RELU : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

// The library is column-major: it is given D' = B' A', whose column-major memory is D's row-major memory.
std::unique_ptr<LtGemm> LtGemm::create(const GemmShape& shape, std::string& reason, int proposal) {
  const CublasLt& lt = cublaslt();
  std::unique_ptr<LtGemm> gemm(new LtGemm);
  gemm->handle_ = cublaslt_handle();
  gemm->alpha_ = shape.alpha;
  gemm->beta_ = shape.beta;

  PIPIT_CUBLASLT(lt.desc_create(&gemm->desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  set(gemm->desc_, CUBLASLT_MATMUL_DESC_TRANSA, shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(gemm->desc_, CUBLASLT_MATMUL_DESC_TRANSB, shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(gemm->desc_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(shape));
  if (shape.bias != nullptr) {
    set(gemm->desc_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, shape.bias);
    if (shape.batch > 1) set(gemm->desc_, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, shape.bias_step);
  }
  gemm->a_ = make_layout(shape, shape.dtype, shape.transpose_b ? shape.k : shape.n,
                         shape.transpose_b ? shape.n : shape.k, shape.ldb, shape.b_step);
  gemm->b_ = make_layout(shape, shape.dtype, shape.transpose_a ? shape.m : shape.k,
                         shape.transpose_a ? shape.k : shape.m, shape.lda, shape.a_step);
  gemm->d_ = make_layout(shape, shape.wide_output ? DType::f32 : shape.dtype, shape.n, shape.m, shape.ldd,
                         shape.d_step);

  const Preference preference;
  set(preference.handle, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kMaxWorkspace);
  // In-place reductions depend on the order in which blocks finish; reducing in the output's type loses digits.
  set(preference.handle, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = static_cast<std::uint32_t>(shape.alignment);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(preference.handle, attribute, alignment);

  std::vector<cublasLtMatmulHeuristicResult_t> list(static_cast<std::size_t>(proposal) + 1);
  int count = 0;
  const cublasStatus_t status = lt.heuristic(gemm->handle_, gemm->desc_, gemm->a_, gemm->b_, gemm->d_,
                                             gemm->d_, preference.handle, proposal + 1, list.data(), &count);
  if (status == CUBLAS_STATUS_SUCCESS && count > 0 && count <= proposal) {
    reason = fmt::format("cuBLASLt {} proposes {} algorithms only", lt.version, count);
    return nullptr;
  }
  const cublasLtMatmulHeuristicResult_t& found = list.back();
  if (status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS) {
    reason = fmt::format("cuBLASLt {} has no algorithm for {} products of [{}, {}] and [{}, {}] in {} ({})",
                         lt.version, shape.batch, shape.m, shape.k, shape.k, shape.n, dtype_name(shape.dtype),
                         lt.status_string(status != CUBLAS_STATUS_SUCCESS ? status : found.state));
    return nullptr;
  }
  gemm->algorithm_ = found.algo;
  gemm->workspace_ = found.workspaceSize;
  return gemm;
}

LtGemm::~LtGemm() {
  const CublasLt& lt = cublaslt();
  for (const cublasLtMatrixLayout_t layout : {a_, b_, d_}) {
    if (layout != nullptr) (void)lt.layout_destroy(layout);
  }
  if (desc_ != nullptr) (void)lt.desc_destroy(desc_);
}

void LtGemm::run(const void* a, const void* b, const void* c, void* d, void* workspace,
                 cudaStream_t stream) const {
  PIPIT_CUBLASLT(cublaslt().matmul(handle_, desc_, &alpha_, b, a_, a, b_, &beta_, beta_ != 0 ? c : d, d_, d,
                                   d_, &algorithm_, workspace, workspace_, stream));
}

}  // namespace pipit::internal::cuda
