// For functions that kernels and host code share.
#pragma once

#ifdef __CUDACC__
#define PIPIT_HOST_DEVICE __host__ __device__
#else
#define PIPIT_HOST_DEVICE
#endif
