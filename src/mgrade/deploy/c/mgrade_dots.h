/* mgrade: the dot products in which an integer program spends its time, with the vector instructions of Arm Helium and
 * DSP, WebAssembly and AVX2. Plain C elsewhere, and everywhere if MGRADE_PLAIN is defined; all give the same bits. */
#ifndef MGRADE_DOTS_H
#define MGRADE_DOTS_H

#include <limits.h>
#include <stdint.h>
#include <string.h>

#if INT_MAX < 2147483647
#error "mgrade needs an int of 32 bits"
#endif

/* Vectors and pairs are loaded from memory in little-endian order. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ && !defined(MGRADE_PLAIN)
#define MGRADE_PLAIN 1
#endif

#if defined(__ARM_FEATURE_MVE) && (__ARM_FEATURE_MVE & 1) && !defined(MGRADE_PLAIN)
#include <arm_acle.h>
#include <arm_mve.h>
#define MG_HELIUM 1
#elif defined(__ARM_FEATURE_DSP) && defined(__ARM_FEATURE_SIMD32) && (defined(__clang__) || __GNUC__ >= 10) && \
    !defined(MGRADE_PLAIN) /* older GCC lacks these intrinsics */
#include <arm_acle.h>
#define MG_DSP 1
#elif defined(__wasm_simd128__) && !defined(MGRADE_PLAIN)
#include <wasm_simd128.h>
#define MG_WASM 1
#elif defined(__AVX2__) && !defined(MGRADE_PLAIN)
#include <immintrin.h>
#define MG_AVX2 1
#endif

/* MG_HOT functions are not inlined; on small chips they are not cloned either, which GCC does per call site. */
#if defined(__GNUC__)
#define MG_UNUSED __attribute__((unused))
#if defined(__arm__) && !defined(__clang__)
#define MG_HOT __attribute__((unused, noinline, noclone))
#else
#define MG_HOT __attribute__((unused, noinline))
#endif
#else
#define MG_UNUSED
#define MG_HOT
#endif

#if MG_BITS == 8
typedef int8_t mg_value;
#else
typedef int16_t mg_value;
#endif

/* Fully unrolls the short loop of fixed length that follows. */
#if defined(__clang__)
#define MG_WRITTEN_OUT _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define MG_WRITTEN_OUT _Pragma("GCC unroll 16")
#else
#define MG_WRITTEN_OUT
#endif

/* Matrix rows summed side by side (ROWS), channels of a filter block (BLOCK), rows rescaled together (ENDS). */
#define MG_ROWS 4
#if defined(MG_DSP) && MG_BITS == 16
#define MG_PAIRS 1 /* two 16-bit values per register, and only as many sums as there are registers */
#define MG_BLOCK 8
#else
#define MG_BLOCK 16
#endif
#if defined(MG_WASM) || defined(MG_AVX2)
#define MG_ENDS 16
#else
#define MG_ENDS MG_ROWS
#endif

#if defined(MG_PAIRS)
/* Four bytes at any alignment, as one load: with -ffreestanding, memcpy would become a call. */
MG_UNUSED static inline uint32_t mg_four(const void *at) {
    uint32_t four;
#if defined(__GNUC__)
    __builtin_memcpy(&four, at, 4);
#else
    memcpy(&four, at, 4);
#endif
    return four;
}

/* The even and the odd ones of four weights, and the dot product of four weights with four values. */
#define MG_EVEN(four) __sxtb16((int8x4_t)(four))
#define MG_ODD(four) __sxtb16((int8x4_t)((four) >> 8 | (four) << 24))
MG_UNUSED static inline int32_t mg_dot_four(int32_t sum, const int8_t *w, int16x2_t even, int16x2_t odd) {
    const uint32_t four = mg_four(w);
    return __smlad(MG_ODD(four), odd, __smlad(MG_EVEN(four), even, sum));
}
#endif

#if defined(MG_WASM)
/* Loads of MG_WIDTH values as 16-bit numbers, sums of pairs of products, and the totals of four rows. */
typedef v128_t mg_sums;
#define MG_WIDTH 8
#define MG_WIDEN(x) wasm_i16x8_load8x8(x)
#define MG_LOAD_WIDE(x) wasm_v128_load(x)
#define MG_PLUS_PAIRS(sum, w, x) wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(w, x))
#define MG_PLUS_NEXT(a, b) wasm_i32x4_add(wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), wasm_i32x4_shuffle(a, b, 1, 3, 5, 7))
MG_UNUSED static inline void mg_across(int32_t *sum, mg_sums a, mg_sums b, mg_sums c, mg_sums d) {
    const v128_t low = MG_PLUS_NEXT(a, b), high = MG_PLUS_NEXT(c, d);
    wasm_v128_store(sum, MG_PLUS_NEXT(low, high));
}
#elif defined(MG_AVX2)
typedef __m256i mg_sums;
#define MG_WIDTH 16
#define MG_HALF(x) _mm_loadu_si128((const __m128i *)(const void *)(x)) /* half a vector: 16 bytes */
#define MG_WIDEN(x) _mm256_cvtepi8_epi16(MG_HALF(x))
#define MG_LOAD_WIDE(x) _mm256_loadu_si256((const __m256i *)(const void *)(x))
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
#define MG_PLUS_PAIRS(sum, w, x) _mm256_dpwssd_epi32(sum, w, x)
#elif defined(__AVXVNNI__)
#define MG_PLUS_PAIRS(sum, w, x) _mm256_dpwssd_avx_epi32(sum, w, x)
#else
#define MG_PLUS_PAIRS(sum, w, x) _mm256_add_epi32(sum, _mm256_madd_epi16(w, x))
#endif
MG_UNUSED static inline void mg_across(int32_t *sum, mg_sums a, mg_sums b, mg_sums c, mg_sums d) {
    const __m256i all = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storeu_si128((__m128i *)(void *)sum, four);
}
#endif
#if MG_BITS == 16
#define MG_VALUES(x) MG_LOAD_WIDE(x)
#else
#define MG_VALUES(x) MG_WIDEN(x)
#endif

/* sum[r] = sum_i w[r][i] x[i] for MG_ROWS rows of weights, `apart` elements apart: the hot loop. */
MG_UNUSED static inline void mg_dots(int32_t *sum, const int8_t *w, int apart, const mg_value *x, int n) {
    const int8_t *w0 = w, *w1 = w + apart, *w2 = w1 + apart, *w3 = w2 + apart;
#if defined(MG_WIDTH)
    const int whole = n - n % MG_WIDTH;
    mg_sums t0 = {0}, t1 = t0, t2 = t0, t3 = t0;
    for (int i = 0; i < whole; i += MG_WIDTH) {
        const mg_sums past = MG_VALUES(x + i);
        t0 = MG_PLUS_PAIRS(t0, MG_WIDEN(w0 + i), past);
        t1 = MG_PLUS_PAIRS(t1, MG_WIDEN(w1 + i), past);
        t2 = MG_PLUS_PAIRS(t2, MG_WIDEN(w2 + i), past);
        t3 = MG_PLUS_PAIRS(t3, MG_WIDEN(w3 + i), past);
    }
    mg_across(sum, t0, t1, t2, t3);
    for (int i = whole; i < n; i++) {
        sum[0] += w0[i] * x[i];
        sum[1] += w1[i] * x[i];
        sum[2] += w2[i] * x[i];
        sum[3] += w3[i] * x[i];
    }
#else
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#if defined(MG_HELIUM) && MG_BITS == 16
    for (int left = n; left > 0; left -= 8, x += 8, w0 += 8, w1 += 8, w2 += 8, w3 += 8) {
        const mve_pred16_t here = vctp16q((uint32_t)left);
        const int16x8_t past = vldrhq_z_s16(x, here);
        s0 = vmladavaq_s16(s0, vldrbq_z_s16(w0, here), past);
        s1 = vmladavaq_s16(s1, vldrbq_z_s16(w1, here), past);
        s2 = vmladavaq_s16(s2, vldrbq_z_s16(w2, here), past);
        s3 = vmladavaq_s16(s3, vldrbq_z_s16(w3, here), past);
    }
#elif defined(MG_HELIUM)
    for (int left = n; left > 0; left -= 16, x += 16, w0 += 16, w1 += 16, w2 += 16, w3 += 16) {
        const mve_pred16_t here = vctp8q((uint32_t)left);
        const int8x16_t past = vldrbq_z_s8(x, here);
        s0 = vmladavaq_s8(s0, vldrbq_z_s8(w0, here), past);
        s1 = vmladavaq_s8(s1, vldrbq_z_s8(w1, here), past);
        s2 = vmladavaq_s8(s2, vldrbq_z_s8(w2, here), past);
        s3 = vmladavaq_s8(s3, vldrbq_z_s8(w3, here), past);
    }
#else
    int whole = 0;
#if defined(MG_PAIRS)
    whole = n - n % 4;
    for (int i = 0; i < whole; i += 4) {
        const uint32_t low = mg_four(x + i), high = mg_four(x + i + 2);
        const int16x2_t even = (int16x2_t)((low & 0xffffu) | (high << 16));
        const int16x2_t odd = (int16x2_t)((low >> 16) | (high & 0xffff0000u));
        s0 = mg_dot_four(s0, w0 + i, even, odd);
        s1 = mg_dot_four(s1, w1 + i, even, odd);
        s2 = mg_dot_four(s2, w2 + i, even, odd);
        s3 = mg_dot_four(s3, w3 + i, even, odd);
    }
#endif
    for (int i = whole; i < n; i++) {
        s0 += w0[i] * x[i];
        s1 += w1[i] * x[i];
        s2 += w2[i] * x[i];
        s3 += w3[i] * x[i];
    }
#endif
    sum[0] = s0;
    sum[1] = s1;
    sum[2] = s2;
    sum[3] = s3;
#endif
}

/* sum[j] += w[j] x[j] for MG_BLOCK channels. */
MG_UNUSED static inline void mg_weigh(int32_t *restrict sum, const int8_t *restrict w, const mg_value *restrict x) {
#if defined(MG_HELIUM) && MG_BITS == 16
    MG_WRITTEN_OUT
    for (int j = 0; j < MG_BLOCK; j += 4)
        vst1q_s32(sum + j, vaddq_s32(vld1q_s32(sum + j), vmulq_s32(vldrbq_s32(w + j), vldrhq_s32(x + j))));
#elif defined(MG_WASM)
    MG_WRITTEN_OUT
    for (int j = 0; j < MG_BLOCK; j += 8) {
        const v128_t eight = wasm_i16x8_load8x8(w + j), past = MG_VALUES(x + j);
        const v128_t low = wasm_i32x4_extmul_low_i16x8(eight, past), high = wasm_i32x4_extmul_high_i16x8(eight, past);
        wasm_v128_store(sum + j, wasm_i32x4_add(wasm_v128_load(sum + j), low));
        wasm_v128_store(sum + j + 4, wasm_i32x4_add(wasm_v128_load(sum + j + 4), high));
    }
#elif defined(MG_PAIRS)
    MG_WRITTEN_OUT
    for (int j = 0; j < MG_BLOCK; j += 4) {
        const uint32_t four = mg_four(w + j);
        const int32_t even = MG_EVEN(four), odd = MG_ODD(four);
        const int32_t low = (int32_t)mg_four(x + j), high = (int32_t)mg_four(x + j + 2);
        sum[j] += (int16_t)even * (int16_t)low;
        sum[j + 1] += (int16_t)odd * (low >> 16);
        sum[j + 2] += (even >> 16) * (int16_t)high;
        sum[j + 3] += (odd >> 16) * (high >> 16);
    }
#else
    MG_WRITTEN_OUT
    for (int j = 0; j < MG_BLOCK; j++) sum[j] += w[j] * x[j];
#endif
}

#if defined(MG_AVX2)
/* Interleaves the first or the second half of 16 bytes at a and 16 at b, as 16-bit numbers. */
#define MG_BESIDE(a, b, half) _mm256_cvtepi8_epi16(_mm_unpack##half##_epi8(MG_HALF(a), MG_HALF(b)))

/* sum[j] += w[j] x[j] + v[j] y[j] for MG_BLOCK channels. */
MG_UNUSED static inline void mg_weigh_two(int32_t *restrict sum, const int8_t *restrict w, const mg_value *restrict x,
                                          const int8_t *restrict v, const mg_value *restrict y) {
#if MG_BITS == 16
    const __m256i p = _mm256_permute4x64_epi64(MG_LOAD_WIDE(x), 0xd8);
    const __m256i q = _mm256_permute4x64_epi64(MG_LOAD_WIDE(y), 0xd8);
    const __m256i low = _mm256_unpacklo_epi16(p, q), high = _mm256_unpackhi_epi16(p, q);
#else
    const __m256i low = MG_BESIDE(x, y, lo), high = MG_BESIDE(x, y, hi);
#endif
    __m256i *at = (__m256i *)(void *)sum;
    _mm256_storeu_si256(at, MG_PLUS_PAIRS(_mm256_loadu_si256(at), MG_BESIDE(w, v, lo), low));
    _mm256_storeu_si256(at + 1, MG_PLUS_PAIRS(_mm256_loadu_si256(at + 1), MG_BESIDE(w, v, hi), high));
}
#endif

#endif
