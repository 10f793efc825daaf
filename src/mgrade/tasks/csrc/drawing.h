/* Lines and reduced images, equal pixel by pixel to those of Pillow (the Python imaging library), which drew the
 * published images. Images are squares of bytes, row by row. */
#ifndef MGRADE_DRAWING_H
#define MGRADE_DRAWING_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PI 3.14159265358979323846
#define INK 255

static void dot(uint8_t *image, int side, int x, int y) {
    if (x >= 0 && x < side && y >= 0 && y < side) image[y * side + x] = INK;
}

static void span(uint8_t *image, int side, int x0, int x1, int y) {
    for (int x = x0 < 0 ? 0 : x0; x <= x1 && x < side; x++) dot(image, side, x, y);
}

/* A line one pixel wide, including both ends, by Bresenham's algorithm. */
static void thin_line(uint8_t *image, int side, int x0, int y0, int x1, int y1) {
    const int across = abs(x1 - x0), down = abs(y1 - y0), flat = across > down;
    const int right = x1 < x0 ? -1 : 1, below = y1 < y0 ? -1 : 1;
    const int major = flat ? across : down, minor = flat ? down : across;
    int x = x0, y = y0, error = 2 * minor - major;
    for (int step = 0; step < major; step++) {
        dot(image, side, x, y);
        const int turn = error >= 0;
        x += flat || turn ? right : 0;
        y += !flat || turn ? below : 0;
        error += 2 * (minor - turn * major);
    }
    dot(image, side, x1, y1);
}

/* A side of a polygon through (x, y) that covers rows from top to bottom, inclusive; x grows by slope per row. */
typedef struct {
    int top, bottom, x, y;
    float slope;
} Side;

static float side_at(const Side *s, int row) { return (float)(row - s->y) * s->slope + (float)s->x; }

static int touches(const Side *s, int row) { return row == s->top || row == s->bottom; }

/* Rounding with halves away from zero, and with halves towards zero. */
static int round_out(double x) { return x >= 0 ? (int)floor(x + 0.5) : -(int)floor(0.5 - x); }
static int round_in(double x) { return x >= 0 ? (int)ceil(x - 0.5) : -(int)ceil(-x - 0.5); }

/* Where side `last` meets `row`, its first or last row. A tip that extends more than a pixel beyond the next pixels of
 * both its sides is pulled back to one pixel beyond them. */
static float tip_at(const Side *sides, int last, int row) {
    const Side *one = sides + last;
    const float x = side_at(one, row);
    const int next = row + (row == one->bottom ? -1 : 1);
    for (const Side *other = sides; one->slope != 0 && other < one; other++) {
        if (!touches(other, row) || other->slope == 0 || roundf(x) != roundf(side_at(other, row))) continue;
        if (next < other->top || next > other->bottom) continue;
        const float a = side_at(one, next), b = side_at(other, next);
        if (x > a + 1 && x > b + 1) return roundf(a > b ? a : b) + 1;
        if (x < a - 1 && x < b - 1) return roundf(a < b ? a : b) - 1;
        break;
    }
    return x;
}

static int insert_sorted(float *xs, int count, float x) {
    int at = count;
    for (; at > 0 && xs[at - 1] > x; at--) xs[at] = xs[at - 1];
    xs[at] = x;
    return count + 1;
}

static void fill_row(uint8_t *image, int side, const Side *sides, int count, int row, int last_row) {
    float xs[8];
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (row < sides[i].top || row > sides[i].bottom) continue;
        const int ends = row == sides[i].bottom && row < last_row; /* counts twice, to keep crossings in pairs */
        const float x = !ends && touches(sides + i, row) ? tip_at(sides, i, row) : side_at(sides + i, row);
        found = insert_sorted(xs, found, x);
        if (ends) found = insert_sorted(xs, found, x);
    }
    for (int i = 1; i < found; i += 2) span(image, side, round_out(xs[i - 1]), round_in(xs[i]), row);
}

/* A filled quadrangle with corners (x, y). */
static void fill_quadrangle(uint8_t *image, int side, int corner[4][2]) {
    Side sides[4];
    int count = 0, first_row = corner[0][1], last_row = corner[0][1];
    for (int i = 0; i < 4; i++) {
        const int *a = corner[i], *b = corner[(i + 1) % 4];
        first_row = a[1] < first_row ? a[1] : first_row;
        last_row = a[1] > last_row ? a[1] : last_row;
        if (a[1] == b[1]) {
            span(image, side, a[0] < b[0] ? a[0] : b[0], a[0] < b[0] ? b[0] : a[0], a[1]);
            continue;
        }
        const float slope = (float)(b[0] - a[0]) / (float)(b[1] - a[1]);
        const int down = a[1] < b[1];
        sides[count++] = (Side){down ? a[1] : b[1], down ? b[1] : a[1], a[0], a[1], slope};
    }
    for (int row = first_row; row <= last_row; row++) fill_row(image, side, sides, count, row, last_row);
}

static void draw_line(uint8_t *image, int side, int x0, int y0, int x1, int y1, int width) {
    const int across = x1 - x0, down = y1 - y0;
    if (width <= 1 || (!across && !down)) {
        thin_line(image, side, x0, y0, x1, y1);
        return;
    }
    const double length = hypot(across, down), half = (width - 1) / 2.0;
    const double wide = round_out(half) / length, narrow = round_in(half) / length;
    const int left = round_in(narrow * down), right = round_in(wide * down);
    const int below = round_in(wide * across), above = round_in(narrow * across);
    int corner[4][2] = {
        {x0 - left, y0 + below}, {x1 - left, y1 + below}, {x1 + right, y1 - above}, {x0 + right, y0 - above}};
    fill_quadrangle(image, side, corner);
}

/* The weights of a reduction from `from` to `to` pixels per side by the Lanczos filter with three lobes, in units of
 * 2^-22: pixel i is the sum of count[i] pixels from first[i] on, weighted by weight[i * width ...]. */
typedef struct {
    int from, to, width;
    int *first, *count;
    int32_t *weight;
} Reduction;

#define WEIGHT_BITS 22

static double sinc(double x) { return x == 0 ? 1 : sin(x * PI) / (x * PI); }

static double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

static void reduction_free(Reduction *r) {
    free(r->first);
    free(r->count);
    free(r->weight);
    memset(r, 0, sizeof *r);
}

static void reduction_row(Reduction *r, int i, double scale, double *share) {
    const double support = 3 * scale, centre = (i + 0.5) * scale;
    const int low = (int)(centre - support + 0.5), high = (int)(centre + support + 0.5);
    const int first = low < 0 ? 0 : low, count = (high > r->from ? r->from : high) - first;
    double sum = 0;
    for (int x = 0; x < count; x++) sum += share[x] = lanczos((x + first - centre + 0.5) * (1 / scale));
    for (int x = 0; x < count; x++) {
        const double part = share[x] / sum * (1 << WEIGHT_BITS);
        r->weight[i * r->width + x] = (int32_t)(part < 0 ? part - 0.5 : part + 0.5);
    }
    r->first[i] = first;
    r->count[i] = count;
}

/* Returns 0 if out of memory. Images must not grow: to <= from. */
static int reduction_make(Reduction *r, int from, int to) {
    const double scale = (double)from / to;
    const int width = (int)ceil(3 * scale) * 2 + 1;
    *r = (Reduction){from, to, width, malloc(sizeof(int) * to), malloc(sizeof(int) * to),
                     calloc((size_t)to * width, sizeof(int32_t))};
    double *share = malloc(sizeof(double) * width);
    const int ready = r->first && r->count && r->weight && share;
    for (int i = 0; ready && i < to; i++) reduction_row(r, i, scale, share);
    free(share);
    if (!ready) reduction_free(r);
    return ready;
}

static uint8_t to_byte(int32_t sum) {
    const int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static int blank(const uint8_t *row, int count) {
    for (int x = 0; x < count; x++)
        if (row[x]) return 0;
    return 1;
}

/* Reduces image (from, from) to out (to, to), along rows and then columns, rounding to bytes each time; between is
 * (from, to). Skips blank rows. */
static void reduce(const Reduction *r, const uint8_t *image, uint8_t *between, uint8_t *out) {
    const int32_t half = 1 << (WEIGHT_BITS - 1);
    for (int y = 0; y < r->from; y++, image += r->from) {
        uint8_t *row = between + (size_t)y * r->to;
        memset(row, 0, r->to);
        if (blank(image, r->from)) continue;
        for (int i = 0; i < r->to; i++) {
            int32_t sum = half;
            for (int x = 0; x < r->count[i]; x++) sum += image[r->first[i] + x] * r->weight[i * r->width + x];
            row[i] = to_byte(sum);
        }
    }
    for (int i = 0; i < r->to; i++, out += r->to) {
        const uint8_t *rows = between + (size_t)r->first[i] * r->to;
        memset(out, 0, r->to);
        if (blank(rows, r->count[i] * r->to)) continue;
        for (int x = 0; x < r->to; x++) {
            int32_t sum = half;
            for (int y = 0; y < r->count[i]; y++) sum += rows[y * r->to + x] * r->weight[i * r->width + y];
            out[x] = to_byte(sum);
        }
    }
}

#endif
