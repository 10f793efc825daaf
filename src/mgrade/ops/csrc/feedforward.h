/* z = x + output @ gelu(input @ x + input_bias) + output_bias over rows of D channels, with W inner channels.
 * `block` rows at a time pass through all of it in the cache. Included after product.h. */

INLINE REAL NAME(gelu_pair)(REAL u, REAL *slope) { /* in its sigmoid form */
    const REAL scale = (REAL)1.5957691216057308, cubic = (REAL)0.044715;
    REAL v = scale * (u + cubic * u * u * u);
    REAL e = EXP(v < 0 ? v : -v);
    REAL large = 1 / (1 + e), small = e * large;
    REAL s = v < 0 ? small : large;
    *slope = s + u * (large * small) * scale * (1 + 3 * cubic * u * u);
    return u * s;
}

CLONES static void NAME(gelu_forward)(const REAL *u, REAL *active, int64_t count) {
    SIMD for (int64_t i = 0; i < count; i++) {
        REAL slope;
        active[i] = NAME(gelu_pair)(u[i], &slope);
    }
}

/* grad, of gelu(u), becomes that of u in place, and its sum over the rows is added to `total`. */
CLONES static void NAME(gelu_backward)(const REAL *u, REAL *grad, REAL *active, REAL *total, int64_t rows, int64_t W) {
    for (int64_t row = 0; row < rows; row++, u += W, active += W, grad += W)
        SIMD for (int64_t i = 0; i < W; i++) {
            REAL slope;
            active[i] = NAME(gelu_pair)(u[i], &slope);
            grad[i] *= slope;
            total[i] += grad[i];
        }
}

CLONES static void NAME(add_rows)(const REAL *x, REAL *total, int64_t rows, int64_t D) {
    for (int64_t row = 0; row < rows; row++, x += D)
        SIMD for (int64_t i = 0; i < D; i++) total[i] += x[i];
}

/* `input` and `output` in panels of their transposes; u (R, W) is kept for the gradient; scratch (parts, block, W). */
EXPORT void NAME(mgrade_feedforward_forward)(const REAL *x, const REAL *input, const REAL *input_bias,
                                             const REAL *output, const REAL *output_bias, REAL *u, REAL *z,
                                             REAL *scratch, int64_t parts, int64_t block, int64_t R, int64_t D,
                                             int64_t W, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t part = 0; part < parts; part++) {
        REAL *active = scratch + part * block * W;
        const int64_t end = NAME(part_begin)(part + 1, parts, R);
        for (int64_t row = NAME(part_begin)(part, parts, R); row < end; row += block) {
            const int64_t rows = MIN(block, end - row);
            NAME(product_rows)(x + row * D, input, 0, input_bias, u + row * W, rows, D, W);
            NAME(gelu_forward)(u + row * W, active, rows * W);
            NAME(product_rows)(active, output, x + row * D, output_bias, z + row * D, rows, W, D);
        }
    }
}

/* `input` and `output` in panels. Per part, zero on entry: the gradients of input, input_bias, output, output_bias, one
 * after the other; scratch (parts, 2, block, W). */
EXPORT void NAME(mgrade_feedforward_backward)(const REAL *grad, const REAL *x, const REAL *u, const REAL *input,
                                              const REAL *output, REAL *grad_x, REAL *sums, REAL *scratch,
                                              int64_t parts, int64_t block, int64_t R, int64_t D, int64_t W,
                                              int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t part = 0; part < parts; part++) {
        REAL *active = scratch + part * 2 * block * W, *grad_u = active + block * W;
        REAL *to_input = sums + part * (2 * D * W + W + D), *to_input_bias = to_input + W * D;
        REAL *to_output = to_input_bias + W, *to_output_bias = to_output + D * W;
        const int64_t end = NAME(part_begin)(part + 1, parts, R);
        for (int64_t row = NAME(part_begin)(part, parts, R); row < end; row += block) {
            const int64_t rows = MIN(block, end - row);
            const REAL *pull = grad + row * D;
            NAME(product_rows)(pull, output, 0, 0, grad_u, rows, D, W);
            NAME(gelu_backward)(u + row * W, grad_u, active, to_input_bias, rows, W);
            NAME(product_rows)(grad_u, input, pull, 0, grad_x + row * D, rows, W, D);
            NAME(outer_rows)(grad_u, x + row * D, to_input, rows, W, D);
            NAME(outer_rows)(pull, active, to_output, rows, D, W);
            NAME(add_rows)(pull, to_output_bias, rows, D);
        }
    }
}
