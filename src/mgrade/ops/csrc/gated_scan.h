/* h_t = (1 - s(g_t)) h_{t-1} + s(g_t) c_t, one loop over time for BLOCK channels at once.
 * bias (2 H), or null: added to gate and candidate. lengths (B), or null: after a row's length the state is held, and
 * outputs there are that state. */

#define BLOCK 32

/* keep = 1 - s(g) and take = s(g), both to full relative accuracy. */
INLINE void NAME(gate_pair)(REAL g, REAL *keep, REAL *take) {
    REAL e = EXP(g < 0 ? g : -g);
    REAL large = 1 / (1 + e), small = e * large;
    *take = g < 0 ? small : large;
    *keep = g < 0 ? large : small;
}

/* The number of valid steps of row b, at most all. */
INLINE int64_t NAME(valid_steps)(const int64_t *lengths, int64_t b, int64_t T) {
    return lengths ? MIN(MAX(lengths[b], 0), T) : T;
}

INLINE void NAME(load_bias)(const REAL *bias, int64_t H, int width, REAL *of_gate, REAL *of_candidate) {
    for (int i = 0; i < width; i++) {
        of_gate[i] = bias ? bias[i] : 0;
        of_candidate[i] = bias ? bias[H + i] : 0;
    }
}

/* skip (T, H), or null: h + skip goes into y. */
INLINE void NAME(forward_block)(const REAL *gate, const REAL *candidate, const REAL *bias, const REAL *skip,
                                const REAL *initial, const uint8_t *reset, REAL *h, REAL *y, REAL *last, int64_t T,
                                int64_t valid, int64_t H, int64_t gate_t, int64_t candidate_t, int64_t skip_t,
                                int width) {
    REAL state[BLOCK] = {0}, bias_g[BLOCK], bias_c[BLOCK];
    NAME(load_bias)(bias, H, width, bias_g, bias_c);
    if (initial) memcpy(state, initial, sizeof(REAL) * width);
    for (int64_t t = 0; t < valid; t++) {
        const REAL *g = gate + t * gate_t, *c = candidate + t * candidate_t;
        REAL *out = h + t * H;
        if (reset && reset[t]) memset(state, 0, sizeof state);
        SIMD for (int i = 0; i < width; i++) {
            REAL keep, take;
            NAME(gate_pair)(g[i] + bias_g[i], &keep, &take);
            state[i] = keep * state[i] + take * (c[i] + bias_c[i]);
            out[i] = state[i];
        }
        if (skip)
            SIMD for (int i = 0; i < width; i++) y[t * H + i] = state[i] + skip[t * skip_t + i];
    }
    for (int64_t t = valid; t < T; t++) {
        memcpy(h + t * H, state, sizeof(REAL) * width);
        if (skip)
            SIMD for (int i = 0; i < width; i++) y[t * H + i] = state[i] + skip[t * skip_t + i];
    }
    memcpy(last, state, sizeof(REAL) * width);
}

/* grad_gates (T, 2 H): the gate's half, then the candidate's; grad_bias (2 H), or null, likewise. */
INLINE void NAME(backward_block)(const REAL *grad_h, const REAL *grad_last, const REAL *gate, const REAL *candidate,
                                 const REAL *bias, const REAL *initial, const uint8_t *reset, const REAL *h,
                                 REAL *grad_gates, REAL *grad_bias, REAL *grad_initial, int64_t T, int64_t valid,
                                 int64_t H, int64_t grad_t, int64_t gate_t, int64_t candidate_t, int width) {
    const REAL zeros[BLOCK] = {0};
    REAL carry[BLOCK] = {0}; /* dL/dh_t from the steps after t */
    REAL bias_g[BLOCK], bias_c[BLOCK], sum_g[BLOCK] = {0}, sum_c[BLOCK] = {0};
    NAME(load_bias)(bias, H, width, bias_g, bias_c);
    if (grad_last) memcpy(carry, grad_last, sizeof(REAL) * width);
    for (int64_t t = T - 1; t >= valid; t--) {
        const REAL *grad = grad_h + t * grad_t;
        for (int i = 0; i < width; i++) carry[i] += grad[i];
        memset(grad_gates + t * 2 * H, 0, sizeof(REAL) * width);
        memset(grad_gates + t * 2 * H + H, 0, sizeof(REAL) * width);
    }
    for (int64_t t = valid - 1; t >= 0; t--) {
        const int restart = reset && reset[t];
        const REAL *g = gate + t * gate_t, *c = candidate + t * candidate_t, *grad = grad_h + t * grad_t;
        const REAL *before = restart ? zeros : t ? h + (t - 1) * H : initial ? initial : zeros;
        REAL *dg = grad_gates + t * 2 * H, *dc = dg + H;
        SIMD for (int i = 0; i < width; i++) {
            REAL keep, take, total = grad[i] + carry[i];
            NAME(gate_pair)(g[i] + bias_g[i], &keep, &take);
            dc[i] = total * take;
            dg[i] = total * (c[i] + bias_c[i] - before[i]) * (keep * take);
            sum_g[i] += dg[i];
            sum_c[i] += dc[i];
            carry[i] = keep * total;
        }
        if (restart) memset(carry, 0, sizeof carry);
    }
    memcpy(grad_initial, carry, sizeof(REAL) * width);
    if (grad_bias) {
        memcpy(grad_bias, sum_g, sizeof(REAL) * width);
        memcpy(grad_bias + H, sum_c, sizeof(REAL) * width);
    }
}

CLONES static void NAME(forward_task)(const REAL *gate, const REAL *candidate, const REAL *bias, const REAL *skip,
                                      const REAL *initial, const uint8_t *reset, REAL *h, REAL *y, REAL *last,
                                      int64_t T, int64_t valid, int64_t H, int64_t gate_t, int64_t candidate_t,
                                      int64_t skip_t, int width) {
    if (width == BLOCK)
        NAME(forward_block)(gate, candidate, bias, skip, initial, reset, h, y, last, T, valid, H, gate_t, candidate_t,
                            skip_t, BLOCK);
    else
        NAME(forward_block)(gate, candidate, bias, skip, initial, reset, h, y, last, T, valid, H, gate_t, candidate_t,
                            skip_t, width);
}

CLONES static void NAME(backward_task)(const REAL *grad_h, const REAL *grad_last, const REAL *gate,
                                       const REAL *candidate, const REAL *bias, const REAL *initial,
                                       const uint8_t *reset, const REAL *h, REAL *grad_gates, REAL *grad_bias,
                                       REAL *grad_initial, int64_t T, int64_t valid, int64_t H, int64_t grad_t,
                                       int64_t gate_t, int64_t candidate_t, int width) {
    if (width == BLOCK)
        NAME(backward_block)(grad_h, grad_last, gate, candidate, bias, initial, reset, h, grad_gates, grad_bias,
                             grad_initial, T, valid, H, grad_t, gate_t, candidate_t, BLOCK);
    else
        NAME(backward_block)(grad_h, grad_last, gate, candidate, bias, initial, reset, h, grad_gates, grad_bias,
                             grad_initial, T, valid, H, grad_t, gate_t, candidate_t, width);
}

/* skip (B, T, H), or null; y (B, T, H) where skip is not null. */
EXPORT void NAME(mgrade_gated_scan_forward)(const REAL *gate, const REAL *candidate, const REAL *bias, const REAL *skip,
                                            const REAL *initial, const uint8_t *reset, const int64_t *lengths, REAL *h,
                                            REAL *y, REAL *last, int64_t B, int64_t T, int64_t H, int64_t gate_b,
                                            int64_t gate_t, int64_t candidate_b, int64_t candidate_t, int64_t skip_b,
                                            int64_t skip_t, int threads) {
    const int64_t blocks = (H + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t task = 0; task < B * blocks; task++) {
        const int64_t b = task / blocks, i = task % blocks * BLOCK, at = b * T * H + i;
        NAME(forward_task)(gate + b * gate_b + i, candidate + b * candidate_b + i, bias ? bias + i : 0,
                           skip ? skip + b * skip_b + i : 0, initial ? initial + b * H + i : 0,
                           reset ? reset + b * T : 0, h + at, skip ? y + at : 0, last + b * H + i, T,
                           NAME(valid_steps)(lengths, b, T), H, gate_t, candidate_t, skip_t, (int)MIN(BLOCK, H - i));
    }
}

/* grad_gates (B, T, 2 H); grad_bias (B, 2 H), or null; grad_initial (B, H). */
EXPORT void NAME(mgrade_gated_scan_backward)(const REAL *grad_h, const REAL *grad_last, const REAL *gate,
                                             const REAL *candidate, const REAL *bias, const REAL *initial,
                                             const uint8_t *reset, const int64_t *lengths, const REAL *h, REAL *grad_gates,
                                             REAL *grad_bias, REAL *grad_initial, int64_t B, int64_t T, int64_t H, int64_t grad_b,
                                             int64_t grad_t, int64_t gate_b, int64_t gate_t, int64_t candidate_b,
                                             int64_t candidate_t, int threads) {
    const int64_t blocks = (H + BLOCK - 1) / BLOCK;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t task = 0; task < B * blocks; task++) {
        const int64_t b = task / blocks, i = task % blocks * BLOCK, state = b * H + i;
        NAME(backward_task)(grad_h + b * grad_b + i, grad_last ? grad_last + state : 0, gate + b * gate_b + i,
                            candidate + b * candidate_b + i, bias ? bias + i : 0, initial ? initial + state : 0,
                            reset ? reset + b * T : 0, h + b * T * H + i, grad_gates + b * T * 2 * H + i,
                            grad_bias ? grad_bias + b * 2 * H + i : 0, grad_initial + state, T,
                            NAME(valid_steps)(lengths, b, T), H, grad_t, gate_t, candidate_t, (int)MIN(BLOCK, H - i));
    }
}

#undef BLOCK
