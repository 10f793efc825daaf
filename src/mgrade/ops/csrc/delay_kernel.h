/* kernel[d][n] = sum_i weight[d][i] exp(-((n - position[d][i]) / sigma)^2 / 2), and its gradient.
 * Taps are (channels, taps); only lags within `reach` of a position are visited: beyond it the Gaussian is
 * below the rounding of its peak. */

INLINE void NAME(tap_range)(REAL position, REAL reach, int64_t length, int64_t *first, int64_t *last) {
    const REAL low = position - reach, high = position + reach; /* not numbers, perhaps: then all lags are visited */
    *first = !(low > 0) ? 0 : low < (REAL)length ? (int64_t)ceil(low) : length;
    *last = !(high < (REAL)(length - 1)) ? length - 1 : high < 0 ? -1 : (int64_t)floor(high);
}

CLONES EXPORT void NAME(mgrade_delay_kernel_forward)(const REAL *weight, const REAL *position, REAL *kernel,
                                                     int64_t D, int64_t K, int64_t length, REAL sigma, REAL reach) {
    for (int64_t tap = 0; tap < D * K; tap++) {
        const REAL w = weight[tap], p = position[tap];
        REAL *row = kernel + tap / K * length;
        int64_t first, last;
        NAME(tap_range)(p, reach, length, &first, &last);
        SIMD for (int64_t n = first; n <= last; n++) {
            REAL u = ((REAL)n - p) / sigma;
            row[n] += w * EXP((REAL)-0.5 * u * u);
        }
    }
}

CLONES EXPORT void NAME(mgrade_delay_kernel_backward)(const REAL *grad_kernel, const REAL *weight,
                                                      const REAL *position, REAL *grad_weight, REAL *grad_position,
                                                      int64_t D, int64_t K, int64_t length, REAL sigma,
                                                      REAL reach) {
    for (int64_t tap = 0; tap < D * K; tap++) {
        const REAL p = position[tap];
        const REAL *row = grad_kernel + tap / K * length;
        REAL dw = 0, dp = 0;
        int64_t first, last;
        NAME(tap_range)(p, reach, length, &first, &last);
        for (int64_t n = first; n <= last; n++) {
            REAL u = ((REAL)n - p) / sigma;
            REAL value = row[n] * EXP((REAL)-0.5 * u * u);
            dw += value;
            dp += value * u;
        }
        grad_weight[tap] = dw;
        grad_position[tap] = dp * weight[tap] / sigma;
    }
}
