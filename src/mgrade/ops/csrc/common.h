/* Shared by the kernels. Each kernel body is a header included once per floating type, with
 *   REAL        the type, float or double
 *   NAME(x)     the exported name, x_f32 or x_f64
 *   EXP(x)      exp for x <= 0, inlined and branch-free so that loops over channels vectorise
 * All arrays are (batch, time, channel) with channel stride 1; other strides are passed in elements.
 */
#ifndef MGRADE_COMMON_H
#define MGRADE_COMMON_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))
#define SIMD _Pragma("omp simd")
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* One binary for every x86-64: the loader picks the widest version that the processor supports. */
#if defined(__x86_64__) && defined(__linux__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define CLONES
#endif

/* exp(x) for x <= 0 to 1 ulp or so; exactly 0 below -87, NaN for NaN. */
INLINE float exp_f32(float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    float shifted = x * 1.44269504f + magic;
    float n = shifted - magic;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * r) * r + r + 1.0f;
    union { float f; uint32_t u; } bits = {shifted}, scale;
    scale.u = (bits.u - 0x4b400000u + 127u) << 23;
    float y = p * scale.f;
    return x < -87.0f ? 0.0f : y;
}

INLINE double exp_f64(double x) { return exp(x); }

/* The latest restart at or before t, or `oldest` if there is none after that. */
INLINE int64_t segment_start(const uint8_t *reset, int64_t t, int64_t oldest) {
    if (reset)
        for (int64_t s = t; s >= MAX(oldest, 0); s--)
            if (reset[s]) return s;
    return oldest;
}

/* The first restart after t, or `end` if there is none. */
INLINE int64_t segment_end(const uint8_t *reset, int64_t t, int64_t end) {
    if (reset)
        for (int64_t s = MAX(t + 1, 0); s < end; s++)
            if (reset[s]) return s;
    return end;
}

#endif
