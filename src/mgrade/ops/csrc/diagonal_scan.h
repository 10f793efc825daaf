/* h_t = d h_{t-1} + u_t with one complex decay d per channel: the time-invariant recurrence of the LRU.
 * Complex numbers are (real, imaginary) pairs. */

CLONES static void NAME(diagonal_forward_row)(const REAL *decay, const REAL *drive, const uint8_t *reset, REAL *h,
                                              REAL *state, int64_t T, int64_t H) {
    for (int64_t t = 0; t < T; t++, drive += 2 * H, h += 2 * H) {
        if (reset && reset[t]) memset(state, 0, sizeof(REAL) * 2 * H);
        SIMD for (int64_t i = 0; i < 2 * H; i += 2) {
            REAL re = decay[i] * state[i] - decay[i + 1] * state[i + 1] + drive[i];
            REAL im = decay[i] * state[i + 1] + decay[i + 1] * state[i] + drive[i + 1];
            h[i] = state[i] = re;
            h[i + 1] = state[i + 1] = im;
        }
    }
}

/* carry arrives as the gradient of the last state and leaves as that of the initial one. */
CLONES static void NAME(diagonal_backward_row)(const REAL *grad_h, const REAL *decay, const REAL *initial,
                                               const uint8_t *reset, const REAL *h, REAL *grad_drive,
                                               REAL *grad_decay, REAL *carry, int64_t T, int64_t H) {
    for (int64_t t = T - 1; t >= 0; t--) {
        const int restart = reset && reset[t];
        const REAL *grad = grad_h + t * 2 * H, *before = t ? h + (t - 1) * 2 * H : initial;
        REAL *out = grad_drive + t * 2 * H;
        SIMD for (int64_t i = 0; i < 2 * H; i += 2) {
            REAL re = grad[i] + carry[i], im = grad[i + 1] + carry[i + 1];
            out[i] = re;
            out[i + 1] = im;
            carry[i] = decay[i] * re + decay[i + 1] * im;
            carry[i + 1] = decay[i] * im - decay[i + 1] * re;
        }
        if (restart) {
            memset(carry, 0, sizeof(REAL) * 2 * H);
        } else if (before) {
            SIMD for (int64_t i = 0; i < 2 * H; i += 2) {
                grad_decay[i] += before[i] * out[i] + before[i + 1] * out[i + 1];
                grad_decay[i + 1] += before[i] * out[i + 1] - before[i + 1] * out[i];
            }
        }
    }
}

/* last holds the initial state on entry and the final one on return. */
EXPORT void NAME(mgrade_diagonal_scan_forward)(const REAL *decay, const REAL *drive, const uint8_t *reset, REAL *h,
                                               REAL *last, int64_t B, int64_t T, int64_t H, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t b = 0; b < B; b++)
        NAME(diagonal_forward_row)(decay, drive + b * T * 2 * H, reset ? reset + b * T : 0, h + b * T * 2 * H,
                                   last + b * 2 * H, T, H);
}

/* grad_initial holds the gradient of the last state on entry; grad_decay (B, H) is zero on entry. */
EXPORT void NAME(mgrade_diagonal_scan_backward)(const REAL *grad_h, const REAL *decay, const REAL *initial,
                                                const uint8_t *reset, const REAL *h, REAL *grad_drive,
                                                REAL *grad_decay, REAL *grad_initial, int64_t B, int64_t T,
                                                int64_t H, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t b = 0; b < B; b++)
        NAME(diagonal_backward_row)(grad_h + b * T * 2 * H, decay, initial ? initial + b * 2 * H : 0,
                                    reset ? reset + b * T : 0, h + b * T * 2 * H, grad_drive + b * T * 2 * H,
                                    grad_decay + b * 2 * H, grad_initial + b * 2 * H, T, H);
}
