// LYNX_SIMD: dispatch of a vectorised loop to the machine's instruction set.
#ifndef LYNX_COMMON_SIMD_H_
#define LYNX_COMMON_SIMD_H_

// Compiles a function once for AVX-512, AVX2 and the baseline; the loader picks one by the machine it runs on. Off
// under the sanitizers, whose runtime is not up yet when the loader asks, and with clang, which cannot do so for templates.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LYNX_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define LYNX_SIMD
#endif

#endif  // LYNX_COMMON_SIMD_H_
