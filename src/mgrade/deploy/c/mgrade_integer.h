/* mgrade: the operations of an integer program, one step at a time: int8 weights, MG_BITS-bit activations.
 * C99; needs only memcpy and memset. Every machine gives the same bits.
 *
 * Loop counts do not depend on the data. The time of a step varies only if the compiler turns a clamp into a branch. */
#ifndef MGRADE_INTEGER_H
#define MGRADE_INTEGER_H

#include "mgrade_lanes.h"

#define MG_TOP ((1 << (MG_BITS - 1)) - 1)
#define MG_UNIT 24      /* fraction bits of the result of the sigmoid */
#define MG_GATE_BITS 11 /* fraction bits of its argument */
#define MG_TABLE_BITS 7 /* fraction bits added to sums over tables */

/* sigmoid(-x) with 24 fraction bits, x from 0 to 16 in steps of 1/8, and one entry more (two with AVX2). */
#if defined(MG_AVX2)
static const int32_t mg_sigmoid_table[131] = {
#else
static const int32_t mg_sigmoid_table[130] = {
#endif
@SIGMOID@
};

/* Numbers --------------------------------------------------------------------------------------------------------- */

/* x / 2^bits, rounded half up; bits of zero or less shift left. */
MG_UNUSED static inline int64_t mg_shift(int64_t x, int bits) {
    return bits > 0 ? (x + ((int64_t)1 << (bits - 1))) >> bits : x * ((int64_t)1 << -bits);
}

/* The same in 32 bits, without left shifts. */
MG_UNUSED static inline int32_t mg_shift_down(int32_t x, int bits) {
    return bits > 0 ? (x >> bits) + ((x >> (bits - 1)) & 1) : x;
}

MG_UNUSED static inline int32_t mg_clip(int64_t x, int32_t top) {
    x = x > top ? top : x;
    return (int32_t)(x < -top ? -top : x);
}

MG_UNUSED static inline mg_value mg_saturate(int32_t x) {
#if defined(__clang__) && (defined(MG_DSP) || defined(MG_HELIUM)) /* GCC finds the instruction itself */
    return (mg_value)__ssat(x, MG_BITS);
#else
    x = x > MG_TOP ? MG_TOP : x;
    return (mg_value)(x < -MG_TOP - 1 ? -MG_TOP - 1 : x);
#endif
}

/* Multipliers with 16 more fraction bits: from one byte, 16 to 31 times a power of two, or from 15 bits. */
MG_UNUSED static inline int32_t mg_byte(uint8_t multiplier) {
    return (32768 | (multiplier & 15) << 11) << (multiplier >> 4);
}

MG_UNUSED static inline int32_t mg_word(int16_t multiplier) { return multiplier * 65536; }

/* total * multiplier / 2^(16 + down), rounded half up: the upper half of the product, then a shift by 1 to 30. */
MG_UNUSED static inline mg_value mg_rescale(int32_t total, int32_t multiplier, int down) {
    const int32_t top = (int32_t)(((int64_t)total * multiplier) >> 32);
    return mg_saturate((top + (1 << (down - 17))) >> (down - 16));
}

/* The sigmoid of x with 11 fraction bits: a parabola through three entries. */
MG_UNUSED static inline int32_t mg_sigmoid(int32_t x) {
    const int32_t sign = x >> 31, positive = (x ^ sign) - sign, size = positive > 32767 ? 32767 : positive;
    const int32_t *at = mg_sigmoid_table + (size >> 8), rest = size & 255, slope = at[1] - at[0];
    const int32_t bend = ((at[2] - at[1] - slope) * (rest * (256 - rest))) >> 9;
    const int32_t low = at[0] + ((slope * rest - bend + 128) >> 8);
    return ((low ^ ~sign) - ~sign) + ((1 << MG_UNIT) & ~sign); /* 1 - low for positive x */
}

/* x / 2^bits, rounded half up and clipped to +-32767; a left shift by 16 exceeds that for any x but 0. */
MG_UNUSED static inline int32_t mg_align(mg_value x, int bits) {
    const int32_t moved = bits > 0 ? mg_shift_down(x, bits) : x * (1 << (bits < -16 ? 16 : -bits));
    return moved > 32767 ? 32767 : moved < -32767 ? -32767 : moved;
}

/* The sigmoid of a value with `bits` fraction bits. */
MG_UNUSED static inline int32_t mg_gate(mg_value x, int bits) { return mg_sigmoid(mg_align(x, bits - MG_GATE_BITS)); }

#if defined(MG_LANES)
MG_UNUSED static inline mg_lanes mg_aligned(mg_lanes x, int bits) {
    return mg_at_least(mg_at_most(mg_move(x, bits < -16 ? -16 : bits), 32767), -32767);
}

MG_UNUSED static inline mg_lanes mg_sigmoids(mg_lanes x) {
    const mg_lanes size = mg_at_most(mg_size(x), 32767), rest = size & 255, at = size >> 8;
    mg_lanes entry[3];
    mg_gather(entry, mg_sigmoid_table, at);
    const mg_lanes slope = entry[1] - entry[0];
    const mg_lanes bend = ((entry[2] - entry[1] - slope) * (rest * (256 - rest))) >> 9;
    const mg_lanes low = entry[0] + MG_ROUND(slope * rest - bend, 8);
    return mg_choose_negative(x, low, (1 << MG_UNIT) - low);
}
#endif

/* mg_gate of n values, n up to MG_GATES. */
#if defined(MG_LANES)
#define MG_GATES MG_LANES
#else
#define MG_GATES 1
#endif
MG_UNUSED static inline void mg_gates(int32_t *take, const mg_value *x, int bits, int n) {
    int i = 0;
    MG_BY_LANES(MG_STORE_WHOLE(take + i, mg_sigmoids(mg_aligned(MG_LOAD(x + i), bits - MG_GATE_BITS)));)
    for (; i < n; i++) take[i] = mg_gate(x[i], bits);
}

/* Activations: `bits` are the fraction bits of x ------------------------------------------------------------------ */

MG_HOT static void mg_gelu(mg_value *y, const mg_value *x, int bits, int n) {
    int i = 0;
    MG_BY_LANES(const mg_lanes value = MG_LOAD(x + i), u = mg_aligned(value, bits - 12);
                const mg_lanes slope = 6536 + ((((u * u) >> 12) * 2338) >> 15);
                const mg_lanes share = mg_sigmoids(MG_ROUND(u * slope, 13)) >> (MG_UNIT - 15);
                MG_STORE(y + i, MG_ROUND(value * share, 15));)
    for (; i < n; i++) {
        const int32_t u = mg_align(x[i], bits - 12);
        const int32_t slope = 6536 + ((((u * u) >> 12) * 2338) >> 15);
        const int32_t share = mg_sigmoid((u * slope + (1 << 12)) >> 13) >> (MG_UNIT - 15);
        y[i] = (mg_value)((x[i] * share + (1 << 14)) >> 15);
    }
}

MG_HOT static void mg_glu(mg_value *y, const mg_value *x, const mg_value *gate, int gate_bits, int n) {
    for (int i = 0; i < n; i += MG_GATES) {
        const int some = n - i < MG_GATES ? n - i : MG_GATES;
        int32_t take[MG_GATES];
        mg_gates(take, gate + i, gate_bits, some);
        for (int j = 0; j < some; j++) y[i + j] = (mg_value)mg_shift((int64_t)x[i + j] * take[j], MG_UNIT);
    }
}

/* a 2^up_a + b 2^up_b, shifted down. */
MG_HOT static void mg_add(mg_value *y, const mg_value *a, const mg_value *b, int up_a, int up_b, int down, int n) {
    for (int i = 0; i < n; i++)
        y[i] = mg_saturate(mg_shift_down(a[i] * (1 << up_a) + b[i] * (1 << up_b), down));
}

MG_HOT static void mg_scale(mg_value *y, const mg_value *x, const int16_t *weight, int shift, int n) {
    for (int i = 0; i < n; i++) y[i] = mg_saturate((int32_t)mg_shift((int64_t)x[i] * weight[i], shift));
}

/* 1 / sqrt(v) = root / 2^30 / 2^(32 - half). */
MG_UNUSED static inline uint64_t mg_reciprocal_root(uint64_t v, int *half) {
    int left = 0;
    for (int bits = 32; bits > 1; bits /= 2) {
        const int small = v < (uint64_t)1 << (64 - bits);
        v <<= small * bits;
        left += small * (bits / 2);
    }
    const uint64_t top = v >> 32;
    uint64_t root = 2362232013u - ((top * 1342177280u) >> 32);
    for (int i = 0; i < 4; i++) {
        const uint64_t square = (root * root) >> 30, error = ((uint64_t)3 << 30) - ((top * square) >> 32);
        root = (root * error) >> 31;
    }
    *half = left;
    return root;
}

MG_HOT static void mg_norm(mg_value *y, const mg_value *x, const int16_t *scale, const int16_t *shift,
                           int64_t epsilon, int scale_shift, int n) {
    int32_t sum = 0;
    int64_t power = epsilon;
    for (int i = 0; i < n; i++) sum += x[i];
    for (int i = 0; i < n; i++) {
        const int64_t centred = n * (int32_t)x[i] - sum;
        power += centred * centred;
    }
    int half;
    const uint32_t root = (uint32_t)mg_reciprocal_root((uint64_t)power, &half);
    const int down = 62 - MG_UNIT - half; /* 7 or more */
    const int64_t middle = (int64_t)1 << (down - 1);
    for (int i = 0; i < n; i++) {
        const int32_t centred = n * (int32_t)x[i] - sum;
        const int32_t unit = (int32_t)(((int64_t)centred * (int64_t)root + middle) >> down);
        y[i] = mg_saturate(mg_clip(mg_shift((int64_t)unit * scale[i], scale_shift) + shift[i], 65536));
    }
}

/* Linear maps ----------------------------------------------------------------------------------------------------- */

/* y = (sum + bias 2^bias_up) * multiplier, rescaled. */
MG_UNUSED static inline void mg_finish(mg_value *restrict y, const int32_t *restrict sum, const int16_t *restrict bias,
                                       int bias_up, const uint8_t *restrict multiplier, int down, int n) {
    int i = 0;
#if defined(MG_HIGH)
    MG_BY_LANES(const mg_lanes byte = MG_LOAD_BYTES(multiplier + i);
                const mg_lanes total = MG_LOAD_WHOLE(sum + i) + MG_LOAD_SHORTS(bias + i) * (1 << bias_up);
                const mg_lanes factor = (((byte & 15) << 11) | 32768) << (byte >> 4);
                const mg_lanes whole = mg_move(MG_HIGH(total, factor), down - 16);
                MG_STORE(y + i, mg_at_least(mg_at_most(whole, MG_TOP), -MG_TOP - 1));)
#endif
    for (; i < n; i++) y[i] = mg_rescale(bias[i] * (1 << bias_up) + sum[i], mg_byte(multiplier[i]), down);
}

/* weight (outputs, inputs). */
MG_HOT static void mg_linear(mg_value *restrict y, const mg_value *restrict x, const int8_t *restrict weight,
                             const int16_t *restrict bias, int bias_up, const uint8_t *restrict multiplier, int down,
                             int inputs, int outputs) {
    for (int j = 0, rows; j < outputs; j += rows, weight += rows * inputs) {
        const int left = outputs - j; /* the last few singly, as MG_ROWS copies of one row */
        rows = left >= MG_ENDS ? MG_ENDS : left >= MG_ROWS ? MG_ROWS : 1;
        int32_t sum[MG_ENDS] = {0};
        for (int r = 0; r < rows; r += MG_ROWS)
            mg_dots(sum + r, weight + r * inputs, rows == 1 ? 0 : inputs, x, inputs);
        mg_finish(y + j, sum, bias + j, bias_up, multiplier + j, down, rows);
    }
}

MG_HOT static void mg_embed(mg_value *y, const uint16_t *token, const int8_t *table, const uint8_t *multiplier,
                            int down, int tokens, int n) {
    const int8_t *row = table + (*token < tokens ? *token : 0) * n;
    for (int c = 0; c < n; c++) y[c] = mg_rescale(row[c] * (1 << MG_TABLE_BITS), mg_byte(multiplier[c]), down);
}

/* Delays: lines are ring buffers (rows, channels); `at` is the newest row ----------------------------------------- */

MG_UNUSED static inline int mg_before(int at, int lag, int rows) {
    const int row = at - lag;
    return row + (row < 0 ? rows : 0);
}

MG_HOT static void mg_push(mg_value *line, uint16_t *at, const mg_value *x, int rows, int n) {
    *at = (uint16_t)(*at + 1 < rows ? *at + 1 : 0);
    memcpy(line + *at * n, x, sizeof(mg_value) * (unsigned)n);
}

/* weight (taps, n), lag (taps): all channels share the delays. */
static const int16_t mg_none[MG_BLOCK] = {0};
MG_HOT static void mg_filter(mg_value *restrict y, const mg_value *restrict line, int at,
                             const int8_t *restrict weight, const MG_LAG *restrict lag,
                             const uint8_t *restrict multiplier, int down, int rows, int taps, int n) {
    const int whole = n - n % MG_BLOCK;
    for (int c = 0; c < whole; c += MG_BLOCK) {
        int32_t sum[MG_BLOCK] = {0};
        int k = 0;
#if defined(MG_AVX2)
        for (; k + 1 < taps; k += 2)
            mg_weigh_two(sum, weight + k * n + c, line + mg_before(at, lag[k], rows) * n + c, weight + (k + 1) * n + c,
                         line + mg_before(at, lag[k + 1], rows) * n + c);
        if (k < taps) /* the last one */
#else
        for (; k < taps; k++)
#endif
            mg_weigh(sum, weight + k * n + c, line + mg_before(at, lag[k], rows) * n + c);
        mg_finish(y + c, sum, mg_none, 0, multiplier + c, down, MG_BLOCK);
    }
    for (int c = whole; c < n; c++) {
        int32_t sum = 0;
        for (int k = 0; k < taps; k++) sum += weight[k * n + c] * line[mg_before(at, lag[k], rows) * n + c];
        y[c] = mg_rescale(sum, mg_byte(multiplier[c]), down);
    }
}

/* sum_k weight[k] line[at - lag[k]] for one channel of n. */
MG_UNUSED static inline int32_t mg_delayed(const mg_value *line, int at, const int8_t *weight, const MG_LAG *lag,
                                           int rows, int taps, int n) {
    int32_t sum = 0;
    for (int k = 0; k < taps; k++) sum += weight[k] * line[mg_before(at, lag[k], rows) * n];
    return sum;
}

/* weight, lag (n, taps): every channel has its own delays. */
MG_HOT static void mg_taps(mg_value *restrict y, const mg_value *restrict line, int at,
                           const int8_t *restrict weight, const MG_LAG *restrict lag,
                           const uint8_t *restrict multiplier, int down, int rows, int taps,
                           int n) {
    for (int c = 0; c < n; c++, weight += taps, lag += taps)
        y[c] = mg_rescale(mg_delayed(line + c, at, weight, lag, rows, taps, n), mg_byte(multiplier[c]), down);
}

/* The same over the raw input (rows, inputs), mixed per channel; the bias counts only for delays below `age`. */
MG_HOT static void mg_taps_input(mg_value *restrict y, const mg_value *restrict line, int at, int age,
                                 const int8_t *restrict weight, const MG_LAG *restrict lag,
                                 const int8_t *restrict mix, const int8_t *restrict bias,
                                 const int16_t *restrict multiplier, int down,
                                 const int16_t *restrict mix_multiplier, int mix_down, int one,
                                 int rows, int taps, int inputs, int n) {
    for (int c = 0; c < n; c++, weight += taps, lag += taps) {
        int32_t begun = 0;
        int32_t sum = 0;
        for (int i = 0; i < inputs; i++) {
            const int32_t delayed = mg_delayed(line + i, at, weight, lag, rows, taps, inputs);
            sum += mg_rescale(delayed, mg_word(multiplier[c]), down) * *mix++;
        }
        for (int k = 0; k < taps; k++) begun += lag[k] < age ? weight[k] : 0;
        sum += mg_rescale(begun * one, mg_word(multiplier[c]), down) * bias[c];
        y[c] = mg_rescale(sum, mg_word(mix_multiplier[c]), mix_down);
    }
}

MG_HOT static void mg_push_token(uint16_t *line, uint16_t *at, const uint16_t *token, int rows, int tokens) {
    *at = (uint16_t)(*at + 1 < rows ? *at + 1 : 0);
    line[*at] = (uint16_t)((*token < tokens ? *token : 0) + 1); /* zero means no token yet */
}

MG_HOT static void mg_taps_token(mg_value *restrict y, const uint16_t *restrict line, int at,
                                 const int8_t *restrict weight, const MG_LAG *restrict lag,
                                 const int8_t *restrict table, const int16_t *restrict multiplier, int down, int rows,
                                 int taps, int n) {
    for (int c = 0; c < n; c++) {
        int32_t sum = 0;
        for (int k = 0; k < taps; k++) {
            const int token = line[mg_before(at, *lag++, rows)];
            const int past = token > 0 ? table[(token - (token > 0)) * n + c] : 0;
            sum += *weight++ * past;
        }
        y[c] = mg_rescale(sum * (1 << MG_TABLE_BITS), mg_word(multiplier[c]), down);
    }
}

/* Recurrences ----------------------------------------------------------------------------------------------------- */

/* hidden has `extra` more fraction bits than y. */
#define MG_GATED(name, type)                                                                                        \
    MG_HOT static void name(mg_value *y, type *hidden, const mg_value *gate, const mg_value *candidate,             \
                            int gate_bits, int extra, int n) {                                                      \
        for (int i = 0; i < n; i += MG_GATES) {                                                                     \
            const int some = n - i < MG_GATES ? n - i : MG_GATES;                                                   \
            int32_t take[MG_GATES];                                                                                 \
            mg_gates(take, gate + i, gate_bits, some);                                                              \
            for (int j = i; j < i + some; j++) {                                                                    \
                const int64_t change = (int64_t)candidate[j] * (1 << extra) - hidden[j];                            \
                hidden[j] = (type)(hidden[j] + mg_shift(change * take[j - i], MG_UNIT));                            \
                y[j] = (mg_value)mg_shift(hidden[j], extra);                                                        \
            }                                                                                                       \
        }                                                                                                           \
    }
MG_GATED(mg_gated, mg_value)
MG_GATED(mg_gated_middle, int16_t)
MG_GATED(mg_gated_wide, int32_t)

/* hidden = decay hidden + drive on pairs of real and imaginary parts; `into` and `out of` the scale of hidden. */
MG_HOT static void mg_rotate(mg_value *y, int32_t *hidden, const mg_value *drive, const int32_t *decay, int into,
                             int out, int n) {
    for (int i = 0; i < n; i += 2) {
        const int64_t re = hidden[i], im = hidden[i + 1], turn = decay[i], lift = decay[i + 1];
        hidden[i] = mg_clip(mg_shift(turn * re - lift * im, 30) + mg_shift(drive[i], into), INT32_MAX);
        hidden[i + 1] = mg_clip(mg_shift(lift * re + turn * im, 30) + mg_shift(drive[i + 1], into), INT32_MAX);
        y[i] = mg_saturate(mg_clip(mg_shift(hidden[i], out), 65536));
        y[i + 1] = mg_saturate(mg_clip(mg_shift(hidden[i + 1], out), 65536));
    }
}

/* Readouts -------------------------------------------------------------------------------------------------------- */

/* total / steps, rounded half away from zero, always in 17 iterations: enough bits for a mean of 16-bit numbers. */
MG_UNUSED static inline int32_t mg_divide(int64_t total, uint32_t steps) {
    const uint64_t size = (total < 0 ? 0u - (uint64_t)total : (uint64_t)total) + steps / 2u;
    uint32_t rest = (uint32_t)(size >> 17), low = (uint32_t)size << 15, quotient = 0;
    for (int bit = 0; bit < 17; bit++, low <<= 1) {
        rest = rest << 1 | low >> 31;
        const uint32_t fits = rest >= steps;
        rest -= fits ? steps : 0u;
        quotient = quotient << 1 | fits;
    }
    return total < 0 ? -(int32_t)quotient : (int32_t)quotient;
}

MG_HOT static void mg_mean(int32_t *y, int64_t *total, uint32_t *steps, const mg_value *x, int n) {
    if (*steps >= 1u << 30) { /* halve both: the counter must not overflow */
        for (int i = 0; i < n; i++) total[i] >>= 1;
        *steps /= 2u;
    }
    *steps += 1u;
    for (int i = 0; i < n; i++) {
        total[i] += x[i];
        y[i] = mg_divide(total[i], *steps);
    }
}

MG_HOT static void mg_sum(int32_t *y, int32_t *total, const mg_value *x, int n) {
    for (int i = 0; i < n; i++) y[i] = total[i] = mg_clip((int64_t)total[i] + x[i], INT32_MAX);
}

#endif
