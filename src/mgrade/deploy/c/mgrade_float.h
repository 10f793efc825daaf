/* mgrade: the operations of a float32 program, one step at a time. C99; needs only memcpy and memset.
 *
 * Loop counts do not depend on the data. The time of a step varies only if the compiler turns a clamp into a branch.
 * Weights of neighbouring outputs are adjacent in memory, so that compilers can vectorise over outputs. */
#ifndef MGRADE_FLOAT_H
#define MGRADE_FLOAT_H

#include <limits.h>
#include <stdint.h>
#include <string.h>

#if INT_MAX < 2147483647
#error "mgrade needs an int of 32 bits"
#endif

#if defined(__GNUC__)
#define MG_UNUSED __attribute__((unused))
#define MG_HOT __attribute__((unused, noinline))
#else
#define MG_UNUSED
#define MG_HOT
#endif

/* MG_LANES values per vector and MG_VECTORS vectors summed side by side in registers. MG_EACH names the vectors one by
 * one, because compilers keep an array of them in memory. */
#if defined(MGRADE_PLAIN) || (!defined(__clang__) && (!defined(__GNUC__) || __GNUC__ < 9)) || \
    (defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2))
/* no vectors: not wanted, not supported, or numbers are computed in a wider type than float, as on x87 */
#elif defined(__AVX512F__)
#define MG_LANES 16
#define MG_VECTORS 4
#define MG_EACH(DO) DO(0) DO(1) DO(2) DO(3)
#elif defined(__AVX__) || defined(__SSE2__) || defined(__aarch64__) || defined(__wasm_simd128__)
#if defined(__AVX__)
#define MG_LANES 8
#else
#define MG_LANES 4
#endif
#define MG_VECTORS 8
#define MG_EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#endif
#define MG_SMALL_BLOCK 4

#if defined(MG_LANES)
#define MG_BLOCK (MG_LANES * MG_VECTORS)
/* MG_LANES values at any alignment, and their bits as integers. */
typedef float mg_lanes __attribute__((vector_size(MG_LANES * 4), aligned(4), may_alias));
typedef uint32_t mg_bits __attribute__((vector_size(MG_LANES * 4)));
typedef int32_t mg_whole __attribute__((vector_size(MG_LANES * 4)));
/* MG_NEAR keeps loads at constant offsets from a pointer as such, where clang would add up the offsets one by one.
 * MG_UNROLLED lets four iterations share constants, which browsers would otherwise reload in every iteration. */
#if defined(__wasm__)
#define MG_NEAR(pointer) __asm__("" : "+r"(pointer));
#define MG_UNROLLED _Pragma("clang loop unroll_count(4)")
#else
#define MG_NEAR(pointer)
#define MG_UNROLLED
#endif
/* a * b + c, in one instruction with WebAssembly's relaxed SIMD; other compilers fuse it themselves. */
#if defined(__wasm_relaxed_simd__)
#define MG_ALL(x) ((mg_lanes){x, x, x, x})
#define MG_FUSED(a, b, c) __builtin_wasm_relaxed_madd_f32x4(a, b, c)
#else
#define MG_ALL(x) (x)
#define MG_FUSED(a, b, c) ((c) + (a) * (b))
#endif
#define MG_AT(pointer, v) (((const mg_lanes *)(const void *)(pointer))[v])
#define MG_PUT(pointer, v) (((mg_lanes *)(void *)(pointer))[v])
/* Weights are aligned to vectors, so that no load crosses a cache line. */
#if !defined(MGRADE_WEIGHTS)
#define MGRADE_WEIGHTS __attribute__((aligned(MG_LANES * 4)))
#endif
#endif

/* Activations ----------------------------------------------------------------------------------------------------- */

/* exp(x) to a few parts in 10^7, with x clipped to +-87; NaN stays NaN. */
MG_UNUSED static inline float mg_exp(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 87.0f ? 87.0f : x;
    const float turned = x * 1.44269504f + 12582912.0f; /* rounds to an integer in the lowest bits */
    uint32_t bits;
    memcpy(&bits, &turned, sizeof bits);
    const float whole = (float)(int32_t)(bits - 0x4b400000u); /* not turned - 12582912: -ffast-math would cancel it */
    const float r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    bits = (bits << 23) + 0x3f800000u;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

MG_UNUSED static inline float mg_sigmoid(float x) { return 1.0f / (1.0f + mg_exp(-x)); }

#if defined(MG_LANES)
/* `yes` where the mask is set, else `no`. */
MG_UNUSED static inline mg_lanes mg_choose(mg_bits mask, mg_lanes yes, mg_lanes no) {
    return (mg_lanes)((mask & (mg_bits)yes) | (~mask & (mg_bits)no));
}

/* mg_sigmoid of MG_LANES values: left alone, compilers turn the clamps into branches, or do not vectorise. */
MG_UNUSED static inline mg_lanes mg_sigmoids(mg_lanes x) {
    const mg_lanes none = {0}, bound = none + 87.0f;
    x = mg_choose((mg_bits)(x > bound), bound, x);
    x = -mg_choose((mg_bits)(x < -bound), -bound, x);
    const mg_lanes turned = MG_FUSED(x, MG_ALL(1.44269504f), MG_ALL(12582912.0f));
    const mg_lanes whole = __builtin_convertvector((mg_whole)((mg_bits)turned - 0x4b400000u), mg_lanes);
    const mg_lanes r = MG_FUSED(whole, MG_ALL(2.12194440e-4f), MG_FUSED(whole, MG_ALL(-0.693359375f), x));
    mg_lanes p = none + 1.9875691500e-4f;
    p = MG_FUSED(p, r, MG_ALL(1.3981999507e-3f));
    p = MG_FUSED(p, r, MG_ALL(8.3334519073e-3f));
    p = MG_FUSED(p, r, MG_ALL(4.1665795894e-2f));
    p = MG_FUSED(p, r, MG_ALL(1.6666665459e-1f));
    p = MG_FUSED(p, r, MG_ALL(5.0000001201e-1f));
    p = MG_FUSED(p, r * r, r) + 1.0f;
    const mg_lanes scale = (mg_lanes)(((mg_bits)turned << 23) + 0x3f800000u);
    return 1.0f / (1.0f + p * scale);
}
#endif

/* Loops over the whole vectors within n; leaves i at the first remaining element. */
#if defined(MG_LANES)
#define MG_BY_LANES(...) \
    MG_UNROLLED for (const int mg_end = n - n % MG_LANES; i < mg_end; i += MG_LANES) { __VA_ARGS__ }
#else
#define MG_BY_LANES(...)
#endif

/* 1 / sqrt(v) for v > 0; 0 for infinity. */
MG_UNUSED static inline float mg_reciprocal_root(float v) {
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = 0x5f3759dfu - (bits >> 1);
    float r;
    memcpy(&r, &bits, sizeof r);
    const float half = 0.5f * v;
    for (int i = 0; i < 3; i++) r = r * (1.5f - half * r * r);
    return v > 3.40282347e38f ? 0.0f : r;
}

MG_HOT static void mg_gelu(float *y, const float *x, int n) {
    int i = 0;
    MG_BY_LANES(const mg_lanes u = MG_AT(x + i, 0);
                MG_PUT(y + i, 0) = u * mg_sigmoids(1.59576912f * (u + 0.044715f * u * u * u));)
    for (; i < n; i++) {
        const float u = x[i];
        y[i] = u * mg_sigmoid(1.59576912f * (u + 0.044715f * u * u * u));
    }
}

MG_HOT static void mg_glu(float *y, const float *x, const float *gate, int n) {
    int i = 0;
    MG_BY_LANES(MG_PUT(y + i, 0) = MG_AT(x + i, 0) * mg_sigmoids(MG_AT(gate + i, 0));)
    for (; i < n; i++) y[i] = x[i] * mg_sigmoid(gate[i]);
}

MG_HOT static void mg_add(float *y, const float *a, const float *b, int n) {
    int i = 0;
    MG_BY_LANES(MG_PUT(y + i, 0) = MG_AT(a + i, 0) + MG_AT(b + i, 0);)
    for (; i < n; i++) y[i] = a[i] + b[i];
}

MG_HOT static void mg_scale(float *y, const float *x, const float *weight, int n) {
    for (int i = 0; i < n; i++) y[i] = x[i] * weight[i];
}

/* sum_i (x[i] - mean), or of its squares if `square` is 1, in MG_PARTS partial sums. */
#define MG_PARTS 8
MG_UNUSED static inline float mg_moment(const float *x, float mean, int square, int n) {
    const int whole = n - n % MG_PARTS;
    float part[MG_PARTS] = {0}, sum = 0.0f;
    for (int i = 0; i < whole; i += MG_PARTS)
        for (int j = 0; j < MG_PARTS; j++) part[j] += (x[i + j] - mean) * (square ? x[i + j] - mean : 1.0f);
    for (int i = whole; i < n; i++) sum += (x[i] - mean) * (square ? x[i] - mean : 1.0f);
    for (int j = 0; j < MG_PARTS; j++) sum += part[j];
    return sum;
}

MG_HOT static void mg_norm(float *y, const float *x, const float *scale, const float *shift, float eps, int n) {
    const float share = 1.0f / (float)n;
    const float mean = mg_moment(x, 0.0f, 0, n) * share;
    const float root = mg_reciprocal_root(mg_moment(x, mean, 1, n) * share + eps);
    int i = 0;
    MG_BY_LANES(MG_PUT(y + i, 0) = (MG_AT(x + i, 0) - mean) * root * MG_AT(scale + i, 0) + MG_AT(shift + i, 0);)
    for (; i < n; i++) y[i] = (x[i] - mean) * root * scale[i] + shift[i];
}

/* Linear maps ----------------------------------------------------------------------------------------------------- */

#if defined(MG_LANES)
#define MG_FROM_ZERO(v) mg_lanes sum##v = {0};
#define MG_FROM_BIAS(v) mg_lanes sum##v = MG_AT(bias + done, v);
#define MG_PLUS_INPUT(v) sum##v = MG_FUSED(MG_ALL(x[i]), MG_AT(row, v), sum##v);
#define MG_PLUS_PAST(v) sum##v = MG_FUSED(MG_AT(w, v), MG_AT(row, v), sum##v);
#define MG_INTO_Y(v) MG_PUT(y + done, v) = sum##v;
#endif

/* y[j] = bias[j] + sum_i x[i] weight[i][j] for `width` outputs side by side. */
#define MG_PRODUCT_BLOCK(width)                                            \
    for (; outputs - done >= (width); done += (width)) {                   \
        float sum[width];                                                  \
        const float *row = weight + done;                                  \
        for (int j = 0; j < (width); j++) sum[j] = bias[done + j];         \
        for (int i = 0; i < inputs; i++, row += outputs)                   \
            for (int j = 0; j < (width); j++) sum[j] += x[i] * row[j];     \
        for (int j = 0; j < (width); j++) y[done + j] = sum[j];            \
    }

/* The outputs of one panel: the hot loop. */
MG_UNUSED static inline void mg_panel(float *restrict y, const float *restrict x, const float *restrict weight,
                                      const float *restrict bias, int inputs, int outputs) {
    int done = 0;
#if defined(MG_LANES)
    for (; done + MG_BLOCK <= outputs; done += MG_BLOCK) {
        const float *row = weight + done;
        MG_EACH(MG_FROM_BIAS)
        for (int i = 0; i < inputs; i++, row += outputs) { MG_NEAR(row) MG_EACH(MG_PLUS_INPUT) }
        MG_EACH(MG_INTO_Y)
    }
#endif
    MG_PRODUCT_BLOCK(16)
    MG_PRODUCT_BLOCK(MG_SMALL_BLOCK)
    MG_PRODUCT_BLOCK(1)
}

/* The weights are stored in panels of MG_PANEL outputs, each (inputs, outputs of the panel). */
MG_HOT static void mg_linear(float *restrict y, const float *restrict x, const float *restrict weight,
                             const float *restrict bias, int inputs, int outputs) {
    int done = 0;
#if defined(MG_LANES) /* a copy with a constant row stride */
    for (; done + MG_PANEL <= outputs; done += MG_PANEL, weight += inputs * MG_PANEL)
        mg_panel(y + done, x, weight, bias + done, inputs, MG_PANEL);
#endif
    for (; done < outputs; done += MG_PANEL, weight += inputs * MG_PANEL)
        mg_panel(y + done, x, weight, bias + done, inputs, outputs - done < MG_PANEL ? outputs - done : MG_PANEL);
}

MG_HOT static void mg_embed(float *y, const uint16_t *token, const float *table, int tokens, int n) {
    const int at = *token < tokens ? *token : 0;
    memcpy(y, table + at * n, sizeof(float) * (unsigned)n);
}

/* Delays: lines are ring buffers (rows, channels); `at` is the newest row ----------------------------------------- */

MG_UNUSED static inline int mg_before(int at, int lag, int rows) {
    const int row = at - lag;
    return row + (row < 0 ? rows : 0);
}

MG_HOT static void mg_push(float *line, uint16_t *at, const float *x, int rows, int n) {
    *at = (uint16_t)(*at + 1 < rows ? *at + 1 : 0);
    memcpy(line + *at * n, x, sizeof(float) * (unsigned)n);
}

#define MG_FILTER_BLOCK(width)                                                     \
    for (; n - done >= (width); done += (width)) {                                 \
        float sum[width];                                                          \
        for (int j = 0; j < (width); j++) sum[j] = 0.0f;                           \
        for (int k = 0; k < taps; k++) {                                           \
            const float *row = line + mg_before(at, lag[k], rows) * n + done;      \
            const float *w = weight + k * n + done;                                \
            for (int j = 0; j < (width); j++) sum[j] += w[j] * row[j];             \
        }                                                                          \
        for (int j = 0; j < (width); j++) y[done + j] = sum[j];                    \
    }

/* weight (taps, n), lag (taps): all channels share the delays. */
MG_HOT static void mg_filter(float *restrict y, const float *restrict line, int at, const float *restrict weight,
                             const MG_LAG *restrict lag, int rows, int taps, int n) {
    int done = 0;
#if defined(MG_LANES)
    for (; done + MG_BLOCK <= n; done += MG_BLOCK) {
        MG_EACH(MG_FROM_ZERO)
        for (int k = 0; k < taps; k++) {
            const float *row = line + mg_before(at, lag[k], rows) * n + done, *w = weight + k * n + done;
            MG_EACH(MG_PLUS_PAST)
        }
        MG_EACH(MG_INTO_Y)
    }
#endif
    MG_FILTER_BLOCK(16)
    MG_FILTER_BLOCK(MG_SMALL_BLOCK)
    MG_FILTER_BLOCK(1)
}

/* weight, lag (n, taps): every channel has its own delays. */
MG_HOT static void mg_taps(float *restrict y, const float *restrict line, int at, const float *restrict weight,
                           const MG_LAG *restrict lag, int rows, int taps, int n) {
    for (int c = 0; c < n; c++) {
        float sum = 0.0f;
        for (int k = 0; k < taps; k++) sum += *weight++ * line[mg_before(at, *lag++, rows) * n + c];
        y[c] = sum;
    }
}

/* The same over the raw input (rows, inputs), mixed per channel by mix (inputs, n); the bias counts only for delays
 * below `age`. */
MG_HOT static void mg_taps_input(float *restrict y, const float *restrict line, int at, int age,
                                 const float *restrict weight, const MG_LAG *restrict lag,
                                 const float *restrict mix, const float *restrict bias, int rows, int taps,
                                 int inputs, int n) {
    for (int c = 0; c < n; c++, weight += taps, lag += taps) {
        float sum = 0.0f, begun = 0.0f;
        for (int i = 0; i < inputs; i++) {
            float delayed = 0.0f;
            for (int k = 0; k < taps; k++) delayed += weight[k] * line[mg_before(at, lag[k], rows) * inputs + i];
            sum += delayed * mix[i * n + c];
        }
        for (int k = 0; k < taps; k++) begun += lag[k] < age ? weight[k] : 0.0f;
        y[c] = sum + bias[c] * begun;
    }
}

MG_HOT static void mg_push_token(uint16_t *line, uint16_t *at, const uint16_t *token, int rows, int tokens) {
    *at = (uint16_t)(*at + 1 < rows ? *at + 1 : 0);
    line[*at] = (uint16_t)((*token < tokens ? *token : 0) + 1); /* zero means no token yet */
}

MG_HOT static void mg_taps_token(float *restrict y, const uint16_t *restrict line, int at,
                                 const float *restrict weight, const MG_LAG *restrict lag,
                                 const float *restrict table, int rows, int taps, int n) {
    for (int c = 0; c < n; c++) {
        float sum = 0.0f;
        for (int k = 0; k < taps; k++) {
            const int token = line[mg_before(at, *lag++, rows)];
            const float past = token > 0 ? table[(token - (token > 0)) * n + c] : 0.0f;
            sum += *weight++ * past;
        }
        y[c] = sum;
    }
}

/* Recurrences ----------------------------------------------------------------------------------------------------- */

MG_HOT static void mg_gated(float *hidden, const float *gate, const float *candidate, int n) {
    int i = 0;
    MG_BY_LANES(const mg_lanes take = mg_sigmoids(MG_AT(gate + i, 0));
                MG_PUT(hidden + i, 0) = (1.0f - take) * MG_AT(hidden + i, 0) + take * MG_AT(candidate + i, 0);)
    for (; i < n; i++) {
        const float take = mg_sigmoid(gate[i]);
        hidden[i] = (1.0f - take) * hidden[i] + take * candidate[i];
    }
}

/* hidden = decay hidden + drive on pairs of real and imaginary parts. */
MG_HOT static void mg_rotate(float *hidden, const float *drive, const float *decay, int n) {
    for (int i = 0; i < n; i += 2) {
        const float re = hidden[i], im = hidden[i + 1];
        hidden[i] = decay[i] * re - decay[i + 1] * im + drive[i];
        hidden[i + 1] = decay[i + 1] * re + decay[i] * im + drive[i + 1];
    }
}

/* Readouts -------------------------------------------------------------------------------------------------------- */

/* Totals are doubles: a float stops growing after some millions of steps. */
MG_HOT static void mg_mean(float *y, double *total, uint32_t *steps, const float *x, int n) {
    if (*steps >= 1u << 30) { /* halve both: the counter must not overflow */
        for (int i = 0; i < n; i++) total[i] *= 0.5;
        *steps /= 2u;
    }
    *steps += 1u;
    const float count = (float)*steps;
    for (int i = 0; i < n; i++) {
        total[i] += (double)x[i];
        y[i] = (float)total[i] / count;
    }
}

MG_HOT static void mg_sum(float *y, double *total, const float *x, int n) {
    for (int i = 0; i < n; i++) {
        total[i] += (double)x[i];
        y[i] = (float)total[i];
    }
}

#endif
