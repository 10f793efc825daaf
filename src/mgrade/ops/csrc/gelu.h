/* gelu(u + bias) in its sigmoid form, over rows of W channels, and its gradient. */

#define ROWS 64

INLINE REAL NAME(gelu_pair)(REAL u, REAL *slope) {
    const REAL scale = (REAL)1.5957691216057308, cubic = (REAL)0.044715;
    REAL v = scale * (u + cubic * u * u * u);
    REAL e = EXP(v < 0 ? v : -v);
    REAL large = 1 / (1 + e), small = e * large;
    REAL s = v < 0 ? small : large;
    *slope = s + u * (large * small) * scale * (1 + 3 * cubic * u * u);
    return u * s;
}

CLONES static void NAME(gelu_rows)(const REAL *u, const REAL *bias, REAL *active, int64_t rows, int64_t W) {
    for (int64_t row = 0; row < rows; row++, u += W, active += W) {
        SIMD for (int64_t i = 0; i < W; i++) {
            REAL slope;
            active[i] = NAME(gelu_pair)(u[i] + bias[i], &slope);
        }
    }
}

CLONES static void NAME(gelu_backward_rows)(const REAL *u, const REAL *bias, REAL *grad, REAL *active,
                                            REAL *grad_bias, int64_t rows, int64_t W) {
    for (int64_t row = 0; row < rows; row++, u += W, active += W, grad += W) {
        SIMD for (int64_t i = 0; i < W; i++) {
            REAL slope;
            active[i] = NAME(gelu_pair)(u[i] + bias[i], &slope);
            grad[i] *= slope;
            grad_bias[i] += grad[i];
        }
    }
}

EXPORT void NAME(mgrade_gelu_forward)(const REAL *u, const REAL *bias, REAL *active, int64_t N, int64_t W, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t row = 0; row < N; row += ROWS)
        NAME(gelu_rows)(u + row * W, bias, active + row * W, MIN(ROWS, N - row), W);
}

/* grad, of gelu(u + bias), becomes that of u in place. grad_bias (parts, W), zero on entry: one part per group of rows,
 * as many whatever the number of threads. */
EXPORT void NAME(mgrade_gelu_backward)(const REAL *u, const REAL *bias, REAL *grad, REAL *active, REAL *grad_bias,
                                       int64_t parts, int64_t N, int64_t W, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t begin = part * N / parts, end = (part + 1) * N / parts;
        NAME(gelu_backward_rows)(u + begin * W, bias, grad + begin * W, active + begin * W, grad_bias + part * W,
                                 end - begin, W);
    }
}

#undef ROWS
