/* mgrade: numbers of an integer program several at a time, MG_LANES of them: on Arm Helium by its own instructions,
 * elsewhere as vectors of the compiler. Without MG_LANES they are taken one by one; the bits are the same. */
#ifndef MGRADE_LANES_H
#define MGRADE_LANES_H

#include "mgrade_dots.h"

#if defined(MG_HELIUM)
#define MG_LANES 4
typedef int32x4_t mg_lanes;
/* Over i < n; the last turn leaves out the lanes that are not in `here`. */
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
#define MG_ROUND(x, bits) vrshrq_n_s32(x, bits)

MG_UNUSED static inline mg_lanes mg_choose_negative(mg_lanes x, mg_lanes yes, mg_lanes no) {
    return vpselq_s32(yes, no, vcmpltq_n_s32(x, 0));
}

MG_UNUSED static inline mg_lanes mg_size(mg_lanes x) { return vabsq_s32(x); }

MG_UNUSED static inline mg_lanes mg_at_most(mg_lanes x, int32_t most) { return vminq_s32(x, vdupq_n_s32(most)); }

MG_UNUSED static inline mg_lanes mg_at_least(mg_lanes x, int32_t least) { return vmaxq_s32(x, vdupq_n_s32(least)); }

MG_UNUSED static inline mg_lanes mg_gather(const int32_t *table, mg_lanes at) {
    return vldrwq_gather_shifted_offset_s32(table, vreinterpretq_u32_s32(at));
}

/* x / 2^bits, rounded half up; bits of zero or less shift to the left. */
MG_UNUSED static inline mg_lanes mg_move(mg_lanes x, int bits) { return vrshlq_n_s32(x, -bits); }

#elif (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 9)) && !defined(MGRADE_PLAIN) && \
    (defined(__AVX2__) || defined(__SSE4_1__) || defined(__aarch64__) || defined(__wasm_simd128__))
#if defined(__AVX2__)
#define MG_LANES 8
#else
#define MG_LANES 4
#endif
typedef int32_t mg_lanes __attribute__((vector_size(MG_LANES * 4)));
typedef int32_t mg_loose __attribute__((vector_size(MG_LANES * 4), aligned(4), may_alias));
typedef mg_value mg_values __attribute__((vector_size(MG_LANES * MG_BITS / 8), aligned(MG_BITS / 8), may_alias));
/* Over i < n, as many as there are whole vectors of; i becomes the first that is left. */
#define MG_BY_LANES(...) \
    for (; i + MG_LANES <= n; i += MG_LANES) { __VA_ARGS__ }
#define MG_LOAD(x) __builtin_convertvector(*(const mg_values *)(const void *)(x), mg_lanes)
#define MG_STORE(y, lanes) (*(mg_values *)(void *)(y) = __builtin_convertvector(lanes, mg_values))
#define MG_STORE_WHOLE(y, lanes) (*(mg_loose *)(void *)(y) = (lanes))
#define MG_ROUND(x, bits) (((x) + (1 << ((bits) - 1))) >> (bits))

MG_UNUSED static inline mg_lanes mg_choose_negative(mg_lanes x, mg_lanes yes, mg_lanes no) {
    const mg_lanes sign = x >> 31;
    return (sign & yes) | (~sign & no);
}

MG_UNUSED static inline mg_lanes mg_size(mg_lanes x) { return (x ^ (x >> 31)) - (x >> 31); }

MG_UNUSED static inline mg_lanes mg_at_most(mg_lanes x, int32_t most) {
    const mg_lanes none = {0}, over = x > none + most;
    return (over & most) | (~over & x);
}

MG_UNUSED static inline mg_lanes mg_at_least(mg_lanes x, int32_t least) {
    const mg_lanes none = {0}, under = x < none + least;
    return (under & least) | (~under & x);
}

MG_UNUSED static inline mg_lanes mg_gather(const int32_t *table, mg_lanes at) {
    mg_lanes found;
    for (int i = 0; i < MG_LANES; i++) found[i] = table[at[i]];
    return found;
}

MG_UNUSED static inline mg_lanes mg_move(mg_lanes x, int bits) {
    const mg_lanes none = {0};
    return bits > 0 ? (x >> bits) + ((x >> (bits - 1)) & 1) : x * (none + (1 << -bits));
}
#else
#define MG_BY_LANES(...)
#endif

#endif
