// LYNX_SIMD: compiles a vectorised loop for several instruction sets.
#ifndef LYNX_WORKER_BACKEND_SIMD_H_
#define LYNX_WORKER_BACKEND_SIMD_H_

// Compiles a function for AVX-512, AVX2 and the baseline; the loader chooses one of them for the machine. LYNX_SIMD does
// nothing in builds with sanitizers, because their runtime is not ready yet when the loader chooses. It does nothing with
// clang, which does not support this attribute on templates.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LYNX_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LYNX_SIMD
#endif

#endif  // LYNX_WORKER_BACKEND_SIMD_H_
