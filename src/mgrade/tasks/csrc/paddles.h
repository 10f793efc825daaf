/* Everything that depends only on the settings and a margin, computed once: every possible paddle, where a snake can
 * continue from each, and where a seed can be placed. */
#ifndef MGRADE_PADDLES_H
#define MGRADE_PADDLES_H

#include "drawing.h"

#define MAX_MARGINS 4
#define ANGLES 360  /* a seed points along a whole degree: heading a is a - 180 degrees */
#define FULL 255    /* 1.0 in a mask */
#define OCCUPIED 77 /* masks above 0.3 of FULL, as ceil(mask - 0.3) > 0 */

/* The fields of mgrade.tasks.pathfinder_images.Settings. */
typedef struct {
    int32_t canvas, padding, length, antialias, seed_distance, contour_length, distractor_length, distractors;
    int32_t paddle_retrials, distractor_retrials, margin_count, margins[MAX_MARGINS];
    double thickness, marker_radius, continuity, snake_contrast, paddle_contrast;
} Settings;

typedef struct {
    int row, col;
} Place;

/* Headings are the seeds' ANGLES, followed by the `points`: offsets from a pivot to possible starts of the next paddle.
 * A seed's paddle points along its heading, any other points back along it. */
typedef struct {
    int margin, radius, reach, side, points, headings, discs;
    Place *point, *disc;             /* (points), (discs): the offsets of a dilation by the margin */
    double *sine, *cosine;           /* of each heading (headings) */
    double *back_sine, *back_cosine; /* of the opposite headings (headings) */
    double *weight;                  /* of each point after each heading (headings, points) */
    uint8_t *line, *mask;            /* paddles (headings, side, side), the start in the middle */
    Place *tap;                      /* seeds' dilation kernels: angle a has tap_begin[a] to tap_begin[a + 1] */
    Place *spot;                     /* places of a first seed: angle a has spot_begin[a] to ... */
    int *tap_begin, *spot_begin;     /* (ANGLES + 1) */
    uint8_t *usable;                 /* (ANGLES): whether a seed of this angle can be placed at all */
    uint8_t *empty;                  /* a rimmed canvas with nothing but the padding in it */
} Book;

static double degrees(int angle) { return angle * PI / 180; }

static double flip(double angle) { return angle < 0 ? angle + PI : angle - PI; }

static Place translate(Place from, double sine, double cosine, int distance) {
    return (Place){(int)ceil(from.row + distance * sine), (int)ceil(from.col + distance * cosine)};
}

static int on_canvas(const Settings *s, Place p) {
    return p.row >= 0 && p.row < s->canvas && p.col >= 0 && p.col < s->canvas;
}

/* Writes the offsets within a distance of r; returns their number. */
static int disc_offsets(int r, Place *out) {
    int count = 0;
    for (int row = -r; row <= r; row++)
        for (int col = -r; col <= r; col++)
            if (row * row + col * col <= r * r) out[count++] = (Place){row, col};
    return count;
}

/* Writes the offsets of a circle in steps of one pixel, rounded down, sorted and distinct; returns their number. */
static int circle_offsets(int radius, Place *out) {
    const double step = 360.0 / (2 * radius * PI);
    const int steps = (int)ceil(360 / step);
    int count = 0;
    for (int i = 0; i < steps; i++) {
        const double angle = i * step * PI / 180;
        const Place p = {(int)floor(radius * sin(angle)), (int)floor(radius * cos(angle))};
        int at = 0;
        while (at < count && (out[at].row < p.row || (out[at].row == p.row && out[at].col < p.col))) at++;
        if (at < count && out[at].row == p.row && out[at].col == p.col) continue;
        memmove(out + at + 1, out + at, sizeof *out * (count - at));
        out[at] = p;
        count++;
    }
    return count;
}

/* The buffers for drawing a paddle: two large canvases, the reduction, and its intermediate image. */
typedef struct {
    int side;
    uint8_t *line, *mask, *between;
    Place *disc;
    int discs;
    Reduction reduction;
} Easel;

static void easel_free(Easel *e) {
    free(e->line);
    free(e->mask);
    free(e->between);
    free(e->disc);
    reduction_free(&e->reduction);
}

static int easel_make(Easel *e, const Settings *s, int margin, int reach) {
    const int side = 2 * reach * s->antialias + 1, radius = margin * s->antialias;
    const size_t area = (size_t)side * side;
    Place *disc = malloc(sizeof(Place) * (2 * radius + 1) * (2 * radius + 1));
    *e = (Easel){side, malloc(area), malloc(area), malloc(area), disc, 0, {0}};
    const int ready = e->line && e->mask && e->between && e->disc && reduction_make(&e->reduction, side, 2 * reach + 1);
    if (ready) e->discs = disc_offsets(radius, e->disc);
    return ready;
}

/* A paddle from the middle along an angle, and its surroundings up to the margin. */
static void draw_paddle(Easel *e, const Settings *s, double angle, uint8_t *line, uint8_t *mask) {
    const int middle = e->side / 2, area = e->side * e->side;
    const Place head = translate((Place){middle, middle}, sin(angle), cos(angle), s->length * s->antialias);
    memset(e->line, 0, area);
    memset(e->mask, 0, area);
    draw_line(e->line, e->side, middle, middle, head.col, head.row, (int)rint(s->thickness * s->antialias));
    for (int at = 0; at < area; at++) {
        if (!e->line[at]) continue;
        for (int i = 0; i < e->discs; i++)
            dot(e->mask, e->side, at % e->side + e->disc[i].col, at / e->side + e->disc[i].row);
    }
    reduce(&e->reduction, e->line, e->between, line);
    reduce(&e->reduction, e->mask, e->between, mask);
}

/* How far a paddle's picture extends from its start. */
static int paddle_reach(const Settings *s, int margin) { return s->length + (int)ceil(s->thickness) + margin; }

static void set_heading(Book *b, const Settings *s, int heading, double angle) {
    const double back = flip(angle);
    b->sine[heading] = sin(angle);
    b->cosine[heading] = cos(angle);
    b->back_sine[heading] = sin(back);
    b->back_cosine[heading] = cos(back);
    for (int i = 0; i < b->points; i++) {
        const double apart = fabs(atan2(b->point[i].row, b->point[i].col) - angle);
        const double turn = fmin(apart, 2 * PI - apart) * s->continuity;
        const double share = turn < 0.5 * PI ? cos(turn) : 0; /* exactly 0, so that such points are skipped */
        b->weight[(size_t)heading * b->points + i] = share * share;
    }
}

static void draw_paddles(Book *b, const Settings *s, Easel *easel) {
    const size_t area = (size_t)b->side * b->side;
    for (int heading = 0; heading < b->headings; heading++) {
        const Place *p = b->point + (heading - ANGLES);
        const double angle = heading < ANGLES ? degrees(heading - 180) : atan2(p->row, p->col);
        set_heading(b, s, heading, angle);
        const double points_to = heading < ANGLES ? angle : flip(angle);
        draw_paddle(easel, s, points_to, b->line + heading * area, b->mask + heading * area);
    }
}

/* The kernel with which a seed of this angle dilates the occupied canvas: the pixels where its mask is full, shifted by
 * one pixel to the lower right and cut to 2 radius + 1 pixels per side. If all of it falls outside at a corner of the
 * canvas, the published generator finds no place for a seed: such an angle is not usable. */
static int seed_kernel(Book *b, int angle, Place *out) {
    const uint8_t *mask = b->mask + (size_t)angle * b->side * b->side;
    int count = 0, corners = 0;
    for (int i = 0; i < b->side * b->side; i++) {
        const Place p = {i / b->side - b->reach + 1, i % b->side - b->reach + 1};
        if (mask[i] < FULL || abs(p.row) > b->radius || abs(p.col) > b->radius) continue;
        out[count++] = p;
        corners |= (p.row >= 0 ? 1 : 0) * ((p.col >= 0 ? 1 : 0) | (p.col <= 0 ? 2 : 0));
        corners |= (p.row <= 0 ? 4 : 0) * ((p.col >= 0 ? 1 : 0) | (p.col <= 0 ? 2 : 0));
    }
    b->usable[angle] = corners == 15;
    return count;
}

/* The side of a canvas with a rim of `reach` empty pixels, so that paddles may extend over the edge. */
static int rimmed(const Settings *s, const Book *b) { return s->canvas + 2 * b->reach; }

/* Writes the pixels, row by row, where a seed of this angle touches nothing occupied; returns their number. occupied is
 * rimmed, 0 or 1; hit (canvas, canvas) is scratch. */
static int free_spots(const Settings *s, const Book *b, int angle, const uint8_t *occupied, uint8_t *hit, Place *out) {
    const int N = s->canvas, wide = rimmed(s, b);
    memset(hit, 0, (size_t)N * N);
    for (int t = b->tap_begin[angle]; t < b->tap_begin[angle + 1]; t++) {
        for (int row = 0; row < N; row++) {
            const uint8_t *from = occupied + (row + b->reach + b->tap[t].row) * wide + b->reach + b->tap[t].col;
            uint8_t *to = hit + (size_t)row * N;
            for (int col = 0; col < N; col++) to[col] |= from[col];
        }
    }
    int count = 0;
    for (int at = 0; at < N * N; at++)
        if (!hit[at]) out[count++] = (Place){at / N, at % N};
    return count;
}

/* Sets the frame of a rimmed canvas: all pixels closer than `width` to an edge. */
static void set_frame(const Settings *s, const Book *b, uint8_t *canvas, int width, uint8_t value) {
    const int N = s->canvas, wide = rimmed(s, b);
    for (int row = 0; row < N; row++)
        for (int col = 0; col < N; col++)
            if (row < width || col < width || row >= N - width || col >= N - width)
                canvas[(row + b->reach) * wide + col + b->reach] = value;
}

/* Finds the places of first seeds: at least twice the seed distance from the edges. Returns 0 if out of memory. */
static int first_spots(Book *b, const Settings *s, const uint8_t *occupied, uint8_t *hit, Place *found) {
    for (int angle = 0, used = 0; angle < ANGLES; angle++) {
        const int count = b->usable[angle] ? free_spots(s, b, angle, occupied, hit, found) : 0;
        if (count) {
            Place *more = realloc(b->spot, sizeof(Place) * (used + count));
            if (!more) return 0;
            b->spot = more;
            memcpy(b->spot + used, found, sizeof(Place) * count);
        }
        b->spot_begin[angle + 1] = used += count;
    }
    return 1;
}

static int find_first_spots(Book *b, const Settings *s) {
    const size_t area = (size_t)s->canvas * s->canvas, wide = rimmed(s, b);
    uint8_t *occupied = calloc(wide, wide), *hit = malloc(area);
    Place *found = malloc(sizeof(Place) * area);
    int ready = occupied && hit && found;
    if (ready) {
        set_frame(s, b, occupied, s->padding, 1);
        set_frame(s, b, occupied, 2 * s->seed_distance, 1);
        ready = first_spots(b, s, occupied, hit, found);
    }
    free(occupied);
    free(hit);
    free(found);
    return ready;
}

static void book_free(Book *b) {
    void *owned[] = {b->point, b->disc, b->sine, b->cosine, b->back_sine, b->back_cosine, b->weight, b->line,
                     b->mask, b->tap, b->spot, b->tap_begin, b->spot_begin, b->usable, b->empty};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    memset(b, 0, sizeof *b);
}

static int book_allocate(Book *b, const Settings *s, int margin) {
    const size_t area = (size_t)b->side * b->side, headings = b->headings, square = (2 * margin + 1) * (2 * margin + 1);
    b->disc = malloc(sizeof(Place) * square);
    b->sine = malloc(sizeof(double) * headings);
    b->cosine = malloc(sizeof(double) * headings);
    b->back_sine = malloc(sizeof(double) * headings);
    b->back_cosine = malloc(sizeof(double) * headings);
    b->weight = malloc(sizeof(double) * headings * b->points);
    b->line = malloc(headings * area);
    b->mask = malloc(headings * area);
    b->tap = malloc(sizeof(Place) * ANGLES * area);
    b->tap_begin = calloc(ANGLES + 1, sizeof(int));
    b->spot_begin = calloc(ANGLES + 1, sizeof(int));
    b->usable = calloc(ANGLES, 1);
    b->empty = calloc(rimmed(s, b), rimmed(s, b));
    return b->disc && b->sine && b->cosine && b->back_sine && b->back_cosine && b->weight && b->line && b->mask &&
           b->tap && b->tap_begin && b->spot_begin && b->usable && b->empty;
}

/* Returns 0 if out of memory. */
static int book_make(Book *b, const Settings *s, int margin) {
    const int radius = s->length + margin, reach = paddle_reach(s, margin);
    *b = (Book){.margin = margin, .radius = radius, .reach = reach, .side = 2 * reach + 1};
    b->point = malloc(sizeof(Place) * (8 * radius + 8));
    if (!b->point) return 0;
    b->points = circle_offsets(radius, b->point);
    b->headings = ANGLES + b->points;
    Easel easel = {0};
    const int ready = book_allocate(b, s, margin) && easel_make(&easel, s, margin, reach);
    if (ready) {
        b->discs = disc_offsets(margin, b->disc);
        set_frame(s, b, b->empty, s->padding, FULL);
        draw_paddles(b, s, &easel);
        for (int a = 0, used = 0; a < ANGLES; a++) b->tap_begin[a + 1] = used += seed_kernel(b, a, b->tap + used);
    }
    easel_free(&easel);
    return ready && find_first_spots(b, s);
}

#endif
