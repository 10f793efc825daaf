/* y_t = sum_n kernel[n] x_{t - n dilation}: a causal filter per channel, with the past in `history`.
 * The kernel is (taps, channels). Time is cut into tiles of TILE steps by BLOCK channels held in registers. */

#define BLOCK 16
#define TILE 6
#define LAGS 6
#define CHUNK 512

/* sum += kernel[n] row(t + n stride) over the taps in [from, to), for a whole tile whose rows are all in x. */
INLINE void NAME(inside)(const REAL *x, const REAL *kernel, REAL sum[TILE][BLOCK], int64_t from, int64_t to, int64_t D,
                         int64_t x_t, int64_t stride, int width) {
    REAL part[TILE][BLOCK] = {{0}};
    for (int64_t n = from; n < to; n++) {
        const REAL *k = kernel + n * D, *row = x + n * stride * x_t;
        for (int j = 0; j < TILE; j++, row += x_t)
            SIMD for (int i = 0; i < width; i++) part[j][i] += k[i] * row[i];
    }
    memcpy(sum, part, sizeof part);
}

/* One tile of sum_n kernel[n] row(t + n stride), over rows in [oldest, newest).
 * A negative stride filters; a positive one is the same filter run backwards in time, which is its gradient. */
INLINE void NAME(tile)(const REAL *x, const REAL *history, const REAL *kernel, REAL *y, int64_t t, int steps,
                       int64_t K, int64_t D, int64_t P, int64_t x_t, int64_t stride, int64_t oldest, int64_t newest,
                       int width) {
    REAL sum[TILE][BLOCK] = {{0}};
    const int64_t lowest = MAX(oldest, 0) - t, highest = newest - TILE - t; /* range of n stride with all rows in x */
    int64_t from = 0, to = 0;
    if (steps == TILE && lowest <= highest) {
        from = stride < 0 ? (highest >= 0 ? 0 : (-highest - stride - 1) / -stride)
                          : (lowest <= 0 ? 0 : (lowest + stride - 1) / stride);
        to = stride < 0 ? (lowest > 0 ? 0 : lowest / stride + 1) : (highest < 0 ? 0 : highest / stride + 1);
        from = MIN(from, K);
        to = MAX(MIN(to, K), from);
        if (from < to) NAME(inside)(x + t * x_t, kernel, sum, from, to, D, x_t, stride, width);
    }
    for (int64_t n = 0; n < K; n++) {
        if (n == from && (n = to) == K) break;
        const REAL *k = kernel + n * D;
        for (int j = 0; j < steps; j++) {
            const int64_t at = t + n * stride + j;
            if (at < oldest || at >= newest) continue;
            const REAL *row = at >= 0 ? x + at * x_t : history + (P + at) * D;
            SIMD for (int i = 0; i < width; i++) sum[j][i] += k[i] * row[i];
        }
    }
    for (int j = 0; j < steps; j++) memcpy(y + j * D, sum[j], sizeof(REAL) * width);
}

CLONES static void NAME(fir_task)(const REAL *x, const REAL *history, const REAL *kernel, REAL *y, int64_t t,
                                  int steps, int64_t K, int64_t D, int64_t P, int64_t x_t, int64_t stride,
                                  int64_t oldest, int64_t newest, int width) {
    if (width == BLOCK)
        NAME(tile)(x, history, kernel, y, t, steps, K, D, P, x_t, stride, oldest, newest, BLOCK);
    else
        NAME(tile)(x, history, kernel, y, t, steps, K, D, P, x_t, stride, oldest, newest, width);
}

/* dkernel[n] += sum_t grad_t x_{t - n dilation} for LAGS lags from n on, over t in [begin, end). */
INLINE void NAME(lags)(const REAL *grad, const REAL *x, const REAL *history, REAL *grad_kernel, int64_t begin,
                       int64_t end, int lags, int64_t n, int64_t D, int64_t P, int64_t grad_t, int64_t x_t,
                       int64_t dilation, int64_t oldest, int width) {
    REAL sum[LAGS][BLOCK] = {{0}};
    for (int64_t t = begin; t < end; t++) {
        const REAL *g = grad + t * grad_t;
        const int64_t last = t - (n + lags - 1) * dilation;
        if (lags == LAGS && last >= MAX(oldest, 0)) {
            const REAL *row = x + (t - n * dilation) * x_t;
            for (int j = 0; j < LAGS; j++, row -= dilation * x_t)
                SIMD for (int i = 0; i < width; i++) sum[j][i] += g[i] * row[i];
            continue;
        }
        for (int j = 0; j < lags; j++) {
            const int64_t at = t - (n + j) * dilation;
            if (at < oldest) break;
            const REAL *row = at >= 0 ? x + at * x_t : history + (P + at) * D;
            SIMD for (int i = 0; i < width; i++) sum[j][i] += g[i] * row[i];
        }
    }
    for (int j = 0; j < lags; j++)
        SIMD for (int i = 0; i < width; i++) grad_kernel[(n + j) * D + i] += sum[j][i];
}

CLONES static void NAME(lags_task)(const REAL *grad, const REAL *x, const REAL *history, REAL *grad_kernel,
                                   int64_t begin, int64_t end, int64_t K, int64_t D, int64_t P, int64_t grad_t,
                                   int64_t x_t, int64_t dilation, int64_t oldest, int width) {
    for (int64_t n = 0; n < K && end - 1 - n * dilation >= oldest; n += LAGS) {
        const int lags = (int)MIN(LAGS, K - n);
        if (width == BLOCK)
            NAME(lags)(grad, x, history, grad_kernel, begin, end, lags, n, D, P, grad_t, x_t, dilation, oldest, BLOCK);
        else
            NAME(lags)(grad, x, history, grad_kernel, begin, end, lags, n, D, P, grad_t, x_t, dilation, oldest, width);
    }
}

/* history (B, P, D) with P = (K - 1) dilation, or null for silence before the first step. */
EXPORT void NAME(mgrade_fir_forward)(const REAL *x, const REAL *kernel, const REAL *history, const uint8_t *reset,
                                     REAL *y, int64_t B, int64_t T, int64_t D, int64_t K, int64_t dilation,
                                     int64_t x_b, int64_t x_t, int threads) {
    const int64_t blocks = (D + BLOCK - 1) / BLOCK, chunks = (T + CHUNK - 1) / CHUNK, P = (K - 1) * dilation;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t task = 0; task < B * chunks * blocks; task++) {
        const int64_t i = task % blocks * BLOCK, b = task / blocks / chunks, begin = task / blocks % chunks * CHUNK;
        const uint8_t *row = reset ? reset + b * T : 0;
        const REAL *past = history ? history + b * P * D + i : 0;
        const int64_t end = MIN(begin + CHUNK, T);
        for (int64_t t = begin; t < end;) {
            const int64_t stop = segment_end(row, t, end), reach = MAX(t - P, past ? -P : 0);
            const int64_t oldest = segment_start(row, t, reach);
            for (int64_t at = t; at < stop; at += TILE)
                NAME(fir_task)(x + b * x_b + i, past, kernel + i, y + (b * T + at) * D + i, at,
                               (int)MIN(TILE, stop - at), K, D, P, x_t, -dilation, oldest, T,
                               (int)MIN(BLOCK, D - i));
            t = stop;
        }
    }
}

/* grad_history null where history was; grad_kernel (parts, K, D), zero on entry, one part per group of rows. */
EXPORT void NAME(mgrade_fir_backward)(const REAL *grad, const REAL *x, const REAL *kernel, const REAL *history,
                                      const uint8_t *reset, REAL *grad_x, REAL *grad_history, REAL *grad_kernel,
                                      int64_t parts, int64_t B, int64_t T, int64_t D, int64_t K, int64_t dilation,
                                      int64_t grad_b, int64_t grad_t, int64_t x_b, int64_t x_t, int threads) {
    const int64_t blocks = (D + BLOCK - 1) / BLOCK, P = (K - 1) * dilation, from = grad_history ? -P : 0;
    const int64_t chunks = (T - from + CHUNK - 1) / CHUNK;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t task = 0; task < B * chunks * blocks; task++) {
        const int64_t i = task % blocks * BLOCK, b = task / blocks / chunks;
        const int64_t begin = from + task / blocks % chunks * CHUNK, end = MIN(begin + CHUNK, T);
        const uint8_t *row = reset ? reset + b * T : 0;
        for (int64_t t = begin; t < end;) {
            const int64_t edge = segment_end(row, t, MIN(end + P, T)), stop = MIN(t < 0 ? MIN(edge, 0) : edge, end);
            for (int64_t at = t; at < stop; at += TILE)
                NAME(fir_task)(grad + b * grad_b + i, 0, kernel + i,
                               at < 0 ? grad_history + (b * P + P + at) * D + i : grad_x + (b * T + at) * D + i, at,
                               (int)MIN(TILE, stop - at), K, D, P, grad_t, dilation, 0, edge,
                               (int)MIN(BLOCK, D - i));
            t = stop;
        }
    }
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t task = 0; task < parts * blocks; task++) {
        const int64_t i = task % blocks * BLOCK, part = task / blocks;
        for (int64_t b = part * B / parts; b < (part + 1) * B / parts; b++) {
            const uint8_t *row = reset ? reset + b * T : 0;
            const REAL *past = history ? history + b * P * D + i : 0;
            int64_t oldest = past ? -P : 0;
            for (int64_t t = 0; t < T;) {
                if (row && row[t]) oldest = t;
                const int64_t stop = segment_end(row, t, MIN(t + CHUNK, T));
                NAME(lags_task)(grad + b * grad_b + i, x + b * x_b + i, past, grad_kernel + part * K * D + i, t, stop,
                                K, D, P, grad_t, x_t, dilation, oldest, (int)MIN(BLOCK, D - i));
                t = stop;
            }
        }
    }
}

#undef BLOCK
#undef TILE
#undef LAGS
#undef CHUNK
