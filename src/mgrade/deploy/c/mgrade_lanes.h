/* mgrade: vectors of MG_LANES numbers of an integer program: intrinsics on Arm Helium and AVX2, compiler vectors
 * elsewhere. Without MG_LANES, loops run one by one and give the same bits. MG_HIGH, where it is defined, is the upper
 * half of products. */
#ifndef MGRADE_LANES_H
#define MGRADE_LANES_H

#include "mgrade_dots.h"

#if defined(MG_HELIUM)
#define MG_LANES 4
typedef int32x4_t mg_lanes;
/* Loops over i < n; in the last iteration, the predicate `here` masks the lanes beyond n. */
#define MG_BY_LANES(...)                                                \
    for (; i < n; i += MG_LANES) {                                      \
        const mve_pred16_t here = vctp32q((uint32_t)(n - i));           \
        __VA_ARGS__                                                     \
    }
#if MG_BITS == 16
#define MG_LOAD(x) vldrhq_z_s32(x, here)
#define MG_STORE(y, lanes) vstrhq_p_s32(y, lanes, here)
#else
#define MG_LOAD(x) vldrbq_z_s32(x, here)
#define MG_STORE(y, lanes) vstrbq_p_s32(y, lanes, here)
#endif
#define MG_STORE_WHOLE(y, lanes) vstrwq_p_s32(y, lanes, here)
#define MG_LOAD_WHOLE(x) vldrwq_z_s32(x, here)
#define MG_LOAD_SHORTS(x) vldrhq_z_s32(x, here)
#define MG_LOAD_BYTES(x) vreinterpretq_s32_u32(vldrbq_z_u32(x, here))
#define MG_ROUND(x, bits) vrshrq_n_s32(x, bits)
#define MG_HIGH(a, b) vmulhq_s32(a, b)

MG_UNUSED static inline mg_lanes mg_choose_negative(mg_lanes x, mg_lanes yes, mg_lanes no) {
    return vpselq_s32(yes, no, vcmpltq_n_s32(x, 0));
}

MG_UNUSED static inline mg_lanes mg_size(mg_lanes x) { return vabsq_s32(x); }

MG_UNUSED static inline mg_lanes mg_at_most(mg_lanes x, int32_t most) { return vminq_s32(x, vdupq_n_s32(most)); }

MG_UNUSED static inline mg_lanes mg_at_least(mg_lanes x, int32_t least) { return vmaxq_s32(x, vdupq_n_s32(least)); }

/* Gathers the table entries at `at`, and the two after each. */
MG_UNUSED static inline void mg_gather(mg_lanes *found, const int32_t *table, mg_lanes at) {
    MG_WRITTEN_OUT
    for (int k = 0; k < 3; k++) found[k] = vldrwq_gather_shifted_offset_s32(table + k, vreinterpretq_u32_s32(at));
}

/* x / 2^bits, rounded half up; bits of zero or less shift left. */
MG_UNUSED static inline mg_lanes mg_move(mg_lanes x, int bits) { return vrshlq_n_s32(x, -bits); }

#elif (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 9)) && !defined(MGRADE_PLAIN) && \
    (defined(__AVX2__) || defined(__SSE4_1__) || defined(__aarch64__) || defined(__wasm_simd128__))
#if defined(MG_AVX2)
#define MG_LANES 8
#else
#define MG_LANES 4
#endif
typedef int32_t mg_lanes __attribute__((vector_size(MG_LANES * 4)));
typedef int32_t mg_loose __attribute__((vector_size(MG_LANES * 4), aligned(4), may_alias));
/* Loops over the whole vectors within n; leaves i at the first remaining element. */
#define MG_BY_LANES(...) \
    for (const int mg_end = n - n % MG_LANES; i < mg_end; i += MG_LANES) { __VA_ARGS__ }
#define MG_STORE_WHOLE(y, lanes) (*(mg_loose *)(void *)(y) = (lanes))
#define MG_ROUND(x, bits) (((x) + (1 << ((bits) - 1))) >> (bits))

#if defined(MG_AVX2)
#define MG_HALVES(x, y) _mm256_inserti128_si256(_mm256_castsi128_si256(MG_HALF(x)), MG_HALF(y), 1)
/* In halves, as sums are stored: one load over two recent stores would stall. */
#define MG_LOAD_WHOLE(x) ((mg_lanes)MG_HALVES(x, (x) + 4))
#define MG_LOAD_SHORTS(x) ((mg_lanes)_mm256_cvtepi16_epi32(MG_HALF(x)))
#define MG_LOAD_BYTES(x) ((mg_lanes)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(x))))
#define MG_STORE(y, lanes) mg_store(y, (__m256i)(lanes))
#if MG_BITS == 16
#define MG_LOAD(x) MG_LOAD_SHORTS(x)
#else
#define MG_LOAD(x) ((mg_lanes)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(x))))
#endif
MG_UNUSED static inline void mg_store(mg_value *y, __m256i lanes) {
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));
#if MG_BITS == 16
    _mm_storeu_si128((__m128i *)(void *)y, halves);
#else
    _mm_storel_epi64((__m128i *)(void *)y, _mm_packs_epi16(halves, halves));
#endif
}

MG_UNUSED static inline mg_lanes mg_at_most(mg_lanes x, int32_t most) {
    return (mg_lanes)_mm256_min_epi32((__m256i)x, _mm256_set1_epi32(most));
}

MG_UNUSED static inline mg_lanes mg_at_least(mg_lanes x, int32_t least) {
    return (mg_lanes)_mm256_max_epi32((__m256i)x, _mm256_set1_epi32(least));
}

#define MG_HIGH(a, b) mg_high((__m256i)(a), (__m256i)(b))
MG_UNUSED static inline mg_lanes mg_high(__m256i a, __m256i b) {
    const __m256i even = _mm256_srli_epi64(_mm256_mul_epi32(a, b), 32);
    const __m256i odd = _mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32));
    return (mg_lanes)_mm256_blend_epi32(even, odd, 0xaa);
}

/* Loads four entries at a time, which is why the table has one extra. */
MG_UNUSED static inline void mg_gather(mg_lanes *found, const int32_t *table, mg_lanes at) {
    int32_t from[MG_LANES];
    MG_STORE_WHOLE(from, at);
    const __m256i a = MG_HALVES(table + from[0], table + from[4]), b = MG_HALVES(table + from[1], table + from[5]);
    const __m256i c = MG_HALVES(table + from[2], table + from[6]), d = MG_HALVES(table + from[3], table + from[7]);
    const __m256i low = _mm256_unpacklo_epi32(a, b), high = _mm256_unpacklo_epi32(c, d);
    found[0] = (mg_lanes)_mm256_unpacklo_epi64(low, high);
    found[1] = (mg_lanes)_mm256_unpackhi_epi64(low, high);
    found[2] = (mg_lanes)_mm256_unpacklo_epi64(_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
}

#else
typedef mg_value mg_values __attribute__((vector_size(MG_LANES * MG_BITS / 8), aligned(MG_BITS / 8), may_alias));
typedef int16_t mg_shorts __attribute__((vector_size(MG_LANES * 2), aligned(2), may_alias));
typedef uint8_t mg_bytes __attribute__((vector_size(MG_LANES), aligned(1), may_alias));
#define MG_LOAD_WHOLE(x) (*(const mg_loose *)(const void *)(x))
#define MG_LOAD(x) __builtin_convertvector(*(const mg_values *)(const void *)(x), mg_lanes)
#define MG_LOAD_SHORTS(x) __builtin_convertvector(*(const mg_shorts *)(const void *)(x), mg_lanes)
#define MG_LOAD_BYTES(x) __builtin_convertvector(*(const mg_bytes *)(const void *)(x), mg_lanes)
#define MG_STORE(y, lanes) (*(mg_values *)(void *)(y) = __builtin_convertvector(lanes, mg_values))

MG_UNUSED static inline mg_lanes mg_at_most(mg_lanes x, int32_t most) {
    const mg_lanes none = {0}, over = x > none + most;
    return (over & most) | (~over & x);
}

MG_UNUSED static inline mg_lanes mg_at_least(mg_lanes x, int32_t least) {
    const mg_lanes none = {0}, under = x < none + least;
    return (under & least) | (~under & x);
}

MG_UNUSED static inline void mg_gather(mg_lanes *found, const int32_t *table, mg_lanes at) {
    for (int k = 0; k < 3; k++) {
        mg_lanes entries;
        for (int i = 0; i < MG_LANES; i++) entries[i] = table[at[i] + k];
        found[k] = entries;
    }
}

#if defined(MG_WASM)
#define MG_HIGH(a, b) mg_high((v128_t)(a), (v128_t)(b))
MG_UNUSED static inline mg_lanes mg_high(v128_t a, v128_t b) {
    const v128_t low = wasm_i64x2_extmul_low_i32x4(a, b), high = wasm_i64x2_extmul_high_i32x4(a, b);
    return (mg_lanes)wasm_i32x4_shuffle(low, high, 1, 3, 5, 7);
}
#endif
#endif

MG_UNUSED static inline mg_lanes mg_choose_negative(mg_lanes x, mg_lanes yes, mg_lanes no) {
    const mg_lanes sign = x >> 31;
    return (sign & yes) | (~sign & no);
}

MG_UNUSED static inline mg_lanes mg_size(mg_lanes x) { return (x ^ (x >> 31)) - (x >> 31); }

MG_UNUSED static inline mg_lanes mg_move(mg_lanes x, int bits) {
    const mg_lanes none = {0};
    return bits > 0 ? (x >> bits) + ((x >> (bits - 1)) & 1) : x * (none + (1 << -bits));
}
#else
#define MG_BY_LANES(...)
#endif

#endif
