/* One step of a whole layer: filter, gated recurrence and MLP, each with a skip, then the norm.
 *
 * For every row: x, y (D); history (P, D), oldest first, becomes line; hidden (D) becomes state. kernel (K, D) holds the
 * weights of the lags 0, dilation, 2 dilation, ...; K = 0 leaves the filter out. Matrices are (outputs, inputs): gates
 * (2 D, D), input (W, D), output (D, W). Without a norm, scale is NULL. scratch has room for 3 D + W numbers.
 */

INLINE void NAME(affine)(const REAL *weight, const REAL *bias, const REAL *x, REAL *y, int64_t inputs, int64_t outputs) {
    for (int64_t o = 0; o < outputs; o++, weight += inputs) {
        REAL sum = 0;
        _Pragma("omp simd reduction(+ : sum)") for (int64_t i = 0; i < inputs; i++) sum += weight[i] * x[i];
        y[o] = sum + bias[o];
    }
}

INLINE void NAME(filter_step)(const REAL *x, const REAL *history, const REAL *kernel, REAL *line, REAL *z, int64_t D,
                              int64_t P, int64_t K, int64_t dilation) {
    SIMD for (int64_t c = 0; c < D; c++) z[c] = x[c] + kernel[c] * x[c];
    for (int64_t k = 1; k < K; k++) {
        const REAL *past = history + (P - k * dilation) * D, *weight = kernel + k * D;
        SIMD for (int64_t c = 0; c < D; c++) z[c] += weight[c] * past[c];
    }
    if (P) {
        memcpy(line, history + D, (size_t)((P - 1) * D) * sizeof(REAL));
        memcpy(line + (P - 1) * D, x, (size_t)D * sizeof(REAL));
    }
}

CLONES static void NAME(layer_step_row)(
    const REAL *x, const REAL *history, const REAL *hidden, const REAL *kernel, const REAL *gates,
    const REAL *gates_bias, const REAL *input, const REAL *input_bias, const REAL *output, const REAL *output_bias,
    const REAL *scale, const REAL *shift, REAL *y, REAL *line, REAL *state, REAL *scratch, int64_t D, int64_t P, int64_t K,
    int64_t dilation, int64_t W, REAL eps) {
    REAL *z = scratch, *made = scratch + D, *active = scratch + 3 * D;
    if (K)
        NAME(filter_step)(x, history, kernel, line, z, D, P, K, dilation);
    else
        memcpy(z, x, (size_t)D * sizeof(REAL));
    NAME(affine)(gates, gates_bias, z, made, D, 2 * D);
    SIMD for (int64_t c = 0; c < D; c++) {
        REAL g = made[c], e = EXP(g < 0 ? g : -g), large = 1 / (1 + e), small = e * large;
        state[c] = (g < 0 ? large : small) * hidden[c] + (g < 0 ? small : large) * made[D + c];
        z[c] += state[c];
    }
    NAME(affine)(input, input_bias, z, active, D, W);
    SIMD for (int64_t i = 0; i < W; i++) {
        REAL slope;
        active[i] = NAME(gelu_pair)(active[i], &slope);
    }
    NAME(affine)(output, output_bias, active, made, W, D);
    REAL mean = 0, power = 0;
    _Pragma("omp simd reduction(+ : mean)") for (int64_t c = 0; c < D; c++) mean += z[c] += made[c];
    if (!scale) {
        memcpy(y, z, (size_t)D * sizeof(REAL));
        return;
    }
    mean /= (REAL)D;
    _Pragma("omp simd reduction(+ : power)") for (int64_t c = 0; c < D; c++) power += (z[c] - mean) * (z[c] - mean);
    const REAL factor = 1 / (REAL)sqrt(power / (REAL)D + eps);
    SIMD for (int64_t c = 0; c < D; c++) y[c] = (z[c] - mean) * factor * scale[c] + shift[c];
}

EXPORT void NAME(mgrade_layer_step)(const REAL *x, const REAL *history, const REAL *hidden, const REAL *kernel,
                                    const REAL *gates, const REAL *gates_bias, const REAL *input,
                                    const REAL *input_bias, const REAL *output, const REAL *output_bias,
                                    const REAL *scale, const REAL *shift, REAL *y, REAL *line, REAL *state,
                                    REAL *scratch, int64_t B, int64_t D, int64_t P, int64_t K, int64_t dilation,
                                    int64_t W, REAL eps) {
    for (int64_t b = 0; b < B; b++)
        NAME(layer_step_row)(x + b * D, history + b * P * D, hidden + b * D, kernel, gates, gates_bias, input,
                             input_bias, output, output_bias, scale, shift, y + b * D, line + b * P * D, state + b * D,
                             scratch, D, P, K, dilation, W, eps);
}
