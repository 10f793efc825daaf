/* Rows times a small matrix, and the sum over rows of their outer products, in tiles of TILE by BLOCK in registers.
 * A matrix (K, N) comes in panels of BLOCK columns, (N / BLOCK, K, BLOCK), the last one padded with zeros; rows are
 * contiguous. A row's result does not depend on the rows beside it. */

#define BLOCK 16
#define TILE 6
#define ROWS 96

/* Calls `body` with the number of rows as a constant, so that sums stay in registers. */
#define WITH_CONSTANT(count, body) \
    switch (count) {               \
    case 1: body(1); break;        \
    case 2: body(2); break;        \
    case 3: body(3); break;        \
    case 4: body(4); break;        \
    case 5: body(5); break;        \
    default: body(TILE);           \
    }

/* y = x panel + bias + base, for `rows` rows and `width` columns. */
INLINE void NAME(product_tile)(const REAL *x, const REAL *panel, const REAL *base, const REAL *bias, REAL *y, int64_t K,
                               int64_t N, int rows, int width) {
    REAL sum[TILE][BLOCK] = {{0}};
    for (int64_t k = 0; k < K; k++, panel += BLOCK)
        for (int j = 0; j < rows; j++) {
            const REAL factor = x[j * K + k];
            SIMD for (int i = 0; i < BLOCK; i++) sum[j][i] += factor * panel[i];
        }
    for (int j = 0; j < rows; j++) {
        if (bias) SIMD for (int i = 0; i < width; i++) sum[j][i] += bias[i];
        if (base) SIMD for (int i = 0; i < width; i++) sum[j][i] += base[j * N + i];
        memcpy(y + j * N, sum[j], sizeof(REAL) * width);
    }
}

CLONES static void NAME(product_rows)(const REAL *x, const REAL *panels, const REAL *base, const REAL *bias, REAL *y,
                                      int64_t rows, int64_t K, int64_t N) {
    for (int64_t n = 0; n < N; n += BLOCK, panels += K * BLOCK)
        for (int64_t row = 0; row < rows; row += TILE) {
            const REAL *from = x + row * K, *beside = base ? base + row * N + n : 0, *shift = bias ? bias + n : 0;
            REAL *to = y + row * N + n;
#define BODY(count)                                                                 \
    if (N - n >= BLOCK)                                                             \
        NAME(product_tile)(from, panels, beside, shift, to, K, N, count, BLOCK);    \
    else                                                                            \
        NAME(product_tile)(from, panels, beside, shift, to, K, N, count, (int)(N - n))
            WITH_CONSTANT(MIN(rows - row, TILE), BODY)
#undef BODY
        }
}

/* sum[m] += a_r[m] b_r over the rows r, for `count` values of m and `width` columns. */
INLINE void NAME(outer_tile)(const REAL *a, const REAL *b, REAL *sum, int64_t rows, int64_t M, int64_t N, int count,
                             int width) {
    REAL part[TILE][BLOCK] = {{0}};
    for (int64_t r = 0; r < rows; r++, a += M, b += N)
        for (int j = 0; j < count; j++)
            SIMD for (int i = 0; i < width; i++) part[j][i] += a[j] * b[i];
    for (int j = 0; j < count; j++)
        SIMD for (int i = 0; i < width; i++) sum[j * N + i] += part[j][i];
}

CLONES static void NAME(outer_rows)(const REAL *a, const REAL *b, REAL *sum, int64_t rows, int64_t M, int64_t N) {
    for (int64_t n = 0; n < N; n += BLOCK)
        for (int64_t m = 0; m < M; m += TILE) {
#define BODY(count)                                                                       \
    if (N - n >= BLOCK)                                                                   \
        NAME(outer_tile)(a + m, b + n, sum + m * N + n, rows, M, N, count, BLOCK);        \
    else                                                                                  \
        NAME(outer_tile)(a + m, b + n, sum + m * N + n, rows, M, N, count, (int)(N - n))
            WITH_CONSTANT(MIN(M - m, TILE), BODY)
#undef BODY
        }
}

/* Where part number `part` of R rows begins: at a whole tile. */
INLINE int64_t NAME(part_begin)(int64_t part, int64_t parts, int64_t R) {
    return MIN(R, (R + TILE - 1) / TILE * part / parts * TILE);
}

/* y (R, N) = x (R, K) matrix + base, which may be null. */
EXPORT void NAME(mgrade_product)(const REAL *x, const REAL *panels, const REAL *base, REAL *y, int64_t R, int64_t K,
                                 int64_t N, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t row = 0; row < R; row += ROWS)
        NAME(product_rows)(x + row * K, panels, base ? base + row * N : 0, 0, y + row * N, MIN(ROWS, R - row), K, N);
}

/* sum (parts, M, N), zero on entry: of a (R, M) by b (R, N), one part per group of rows, as many whatever the number of
 * threads. */
EXPORT void NAME(mgrade_outer)(const REAL *a, const REAL *b, REAL *sum, int64_t parts, int64_t R, int64_t M, int64_t N,
                               int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t part = 0; part < parts; part++) {
        const int64_t end = NAME(part_begin)(part + 1, parts, R);
        for (int64_t row = NAME(part_begin)(part, parts, R); row < end; row += ROWS)
            NAME(outer_rows)(a + row * M, b + row * N, sum + part * M * N, MIN(ROWS, end - row), M, N);
    }
}

#undef BLOCK
#undef TILE
#undef ROWS
#undef WITH_CONSTANT
