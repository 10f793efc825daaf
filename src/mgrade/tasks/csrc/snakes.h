/* Snakes of paddles, grown on a mask of occupied pixels, and painted when complete. */
#ifndef MGRADE_SNAKES_H
#define MGRADE_SNAKES_H

#include "paddles.h"

#define MAX_PAIRS 1000000 /* attempts for one image before giving up; some hundreds are usual */

/* xoshiro256++ (Blackman & Vigna 2019), with a state from splitmix64. */
typedef struct {
    uint64_t state[4];
} Random;

static uint64_t splitmix(uint64_t *x) {
    uint64_t z = *x += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static Random random_at(uint64_t seed, uint64_t index) {
    Random r;
    uint64_t x = splitmix(&seed) ^ index;
    for (int i = 0; i < 4; i++) r.state[i] = splitmix(&x);
    return r;
}

static uint64_t rotate(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

/* At least 0 and below 1. */
static double uniform(Random *r) {
    uint64_t *s = r->state;
    const uint64_t result = rotate(s[0] + s[3], 23) + s[0], shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return (double)(result >> 11) * 0x1p-53;
}

/* A random integer below n; for n = 1, draws nothing. */
static int below(Random *r, int n) { return n > 1 ? (int)(uniform(r) * n) : 0; }

typedef struct {
    Place at;
    int heading;
} Paddle;

typedef struct {
    Paddle last;         /* not in the mask yet */
    Place pivot, origin; /* origin: where its first paddle starts */
} Snake;

/* The state of growing an image; one per thread. Canvases named mask are rimmed: see paddles.h. */
typedef struct {
    const Settings *s;
    const Book *b;
    Random random;
    Paddle *placed; /* those of the two targets in turn, then of the distractors */
    int count;
    uint8_t *mask, *saved_mask, *occupied, *hit, *large, *between, *small;
    double *image, *chance;
    Place *spots;
    double mask_value[256], target_value[256], distractor_value[256];
    Reduction reduction;
} Scene;

static void scene_free(Scene *w) {
    void *owned[] = {w->placed, w->mask, w->saved_mask, w->occupied, w->hit, w->large, w->between, w->small, w->image,
                     w->chance, w->spots};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) free(owned[i]);
    reduction_free(&w->reduction);
}

/* The value of byte v of a picture, rounded to single precision as in the published generator. */
static void value_table(double *table, double contrast) {
    for (int v = 0; v < 256; v++) table[v] = (double)(float)(v / 255.0 * contrast);
}

static int scene_allocate(Scene *w) {
    const Settings *s = w->s;
    size_t wide = 0, points = 0;
    for (int i = 0; i < s->margin_count; i++) {
        wide = (size_t)rimmed(s, w->b + i) > wide ? (size_t)rimmed(s, w->b + i) : wide;
        points = (size_t)w->b[i].points > points ? (size_t)w->b[i].points : points;
    }
    const size_t N = s->canvas, fine = N * s->antialias;
    w->placed = malloc(sizeof(Paddle) * (2 * s->contour_length + s->distractors * s->distractor_length));
    w->mask = malloc(wide * wide);
    w->saved_mask = malloc(wide * wide);
    w->occupied = malloc(wide * wide);
    w->hit = malloc(N * N);
    w->large = malloc(fine * fine);
    w->between = malloc(fine * N);
    w->small = malloc(N * N);
    w->image = malloc(sizeof(double) * N * N);
    w->chance = malloc(sizeof(double) * points);
    w->spots = malloc(sizeof(Place) * N * N);
    return w->placed && w->mask && w->saved_mask && w->occupied && w->hit && w->large && w->between && w->small &&
           w->image && w->chance && w->spots && reduction_make(&w->reduction, (int)fine, (int)N);
}

/* Returns 0 if out of memory; scene_free is needed in either case. */
static int scene_make(Scene *w, const Settings *s, const Book *books) {
    memset(w, 0, sizeof *w);
    w->s = s;
    w->b = books;
    value_table(w->mask_value, 1);
    value_table(w->target_value, s->paddle_contrast * s->snake_contrast);
    value_table(w->distractor_value, s->snake_contrast);
    return scene_allocate(w);
}

static size_t mask_area(const Scene *w) { return (size_t)rimmed(w->s, w->b) * rimmed(w->s, w->b); }

static uint8_t *mask_at(const Scene *w, Place p) {
    return w->mask + (p.row + w->b->reach) * rimmed(w->s, w->b) + p.col + w->b->reach;
}

/* The rows or columns of a paddle's picture on the canvas: from *first up to, not including, the returned one. */
static int visible(const Scene *w, int start, int *first) {
    const int top = start - w->b->reach, over = top + w->b->side - w->s->canvas;
    *first = top < 0 ? -top : 0;
    return w->b->side - (over > 0 ? over : 0);
}

/* Marks a paddle's surroundings as occupied. */
static void stamp(Scene *w, const Paddle *p) {
    const int side = w->b->side, reach = w->b->reach;
    const uint8_t *mask = w->b->mask + (size_t)p->heading * side * side;
    int first_row, first_col;
    const int end_row = visible(w, p->at.row, &first_row), end_col = visible(w, p->at.col, &first_col);
    for (int row = first_row; row < end_row; row++) {
        uint8_t *to = mask_at(w, (Place){p->at.row + row - reach, p->at.col - reach});
        for (int col = first_col; col < end_col; col++)
            to[col] = mask[row * side + col] > to[col] ? mask[row * side + col] : to[col];
    }
}

/* Whether a paddle's mask and the occupied mask add up to 1.8 or more anywhere. */
static int clashes(const Scene *w, const Paddle *p) {
    const int side = w->b->side, reach = w->b->reach, limit = 459; /* 1.8 * 255, where rounding decides */
    const uint8_t *mask = w->b->mask + (size_t)p->heading * side * side;
    for (int row = 0; row < side; row++, mask += side) {
        const uint8_t *at = mask_at(w, (Place){p->at.row + row - reach, p->at.col - reach});
        int most = 0;
        for (int col = 0; col < side; col++) most = mask[col] + at[col] > most ? mask[col] + at[col] : most;
        if (most > limit) return 1;
        for (int col = 0; most == limit && col < side; col++)
            if (mask[col] + at[col] == limit && w->mask_value[mask[col]] + w->mask_value[at[col]] >= 1.8) return 1;
    }
    return 0;
}

/* The highest mask value around a point, up to the margin. */
static double occupied_near(const Scene *w, Place p) {
    const int wide = rimmed(w->s, w->b);
    const uint8_t *at = mask_at(w, p);
    int most = 0;
    for (int i = 0; i < w->b->discs; i++) {
        const int value = at[w->b->disc[i].row * wide + w->b->disc[i].col];
        most = value > most ? value : most;
    }
    return w->mask_value[most];
}

static Place beside(Place p, Place offset) { return (Place){p.row + offset.row, p.col + offset.col}; }

/* Writes the cumulative weights of the points around a pivot to w->chance; returns their sum. */
static double chances(const Scene *w, Place pivot, int heading) {
    const Book *b = w->b;
    const double *weight = b->weight + (size_t)heading * b->points;
    double sum = 0;
    for (int i = 0; i < b->points; i++) {
        const Place p = beside(pivot, b->point[i]);
        if (weight[i] > 0 && on_canvas(w->s, p)) sum += weight[i] * (1 - occupied_near(w, p));
        w->chance[i] = sum;
    }
    return sum;
}

/* Adds a paddle to a snake, and the previous one to the mask; returns 0 if the snake is stuck. */
static int extend(Scene *w, Snake *snake) {
    const Book *b = w->b;
    const int heading = snake->last.heading;
    const int step = w->s->length + 2 * b->margin;
    const Place pivot = translate(snake->pivot, b->sine[heading], b->cosine[heading], step);
    const double sum = chances(w, pivot, heading);
    if (sum < 1e-4) return 0;
    for (int trial = 0; trial <= w->s->paddle_retrials; trial++) {
        const double drawn = uniform(&w->random) * sum;
        int i = 0;
        while (w->chance[i] <= drawn && w->chance[i] < sum) i++;
        const Paddle next = {beside(pivot, b->point[i]), ANGLES + i};
        if (clashes(w, &next)) continue;
        stamp(w, &snake->last);
        snake->last = w->placed[w->count++] = next;
        snake->pivot = pivot;
        return 1;
    }
    return 0;
}

/* Starts a snake; returns 0 if its first paddle would leave the canvas. */
static int plant(const Scene *w, Snake *snake, int angle, Place tail) {
    const Book *b = w->b;
    const Place head = translate(tail, b->sine[angle], b->cosine[angle], w->s->length);
    const Place pivot = translate(head, b->back_sine[angle], b->back_cosine[angle], b->radius);
    *snake = (Snake){{tail, angle}, pivot, tail};
    return on_canvas(w->s, head) && on_canvas(w->s, pivot);
}

static int seed_first(Scene *w, Snake *snake) {
    const Book *b = w->b;
    for (int trial = 0; trial <= w->s->paddle_retrials; trial++) {
        const int angle = below(&w->random, ANGLES), begin = b->spot_begin[angle];
        const int count = b->spot_begin[angle + 1] - begin;
        if (!count) return 0;
        if (plant(w, snake, angle, b->spot[begin + below(&w->random, count)])) return 1;
    }
    return 0;
}

/* Starts the second snake at the seeds' distance from the first, whatever is there. */
static int seed_second(Scene *w, Snake *snake, Place first) {
    for (int trial = 0; trial <= w->s->paddle_retrials; trial++) {
        const int angle = below(&w->random, ANGLES);
        const double side = degrees(below(&w->random, 360));
        const Place tail = {(int)rint(first.row + w->s->seed_distance * sin(side)),
                            (int)rint(first.col + w->s->seed_distance * cos(side))};
        if (plant(w, snake, angle, tail)) return 1;
    }
    return 0;
}

/* Grows both target snakes; returns 0 if one gets stuck. */
static int grow_pair(Scene *w, Snake *pair) {
    w->count = 0;
    if (!seed_first(w, pair) || !seed_second(w, pair + 1, pair[0].origin)) return 0;
    memcpy(w->mask, w->b->empty, mask_area(w));
    for (int i = 0; i < 2; i++) w->placed[w->count++] = pair[i].last;
    for (int round = 1; round < w->s->contour_length; round++)
        if (!extend(w, pair) || !extend(w, pair + 1)) return 0;
    stamp(w, &pair[1].last); /* but not the first snake's last paddle, as in the published generator */
    return 1;
}

/* Starts a distractor in a free place; returns 0 if there is none, or less than a hundredth of the canvas is free. */
static int seed_distractor(Scene *w, Snake *snake) {
    const int N = w->s->canvas;
    const size_t area = mask_area(w);
    for (int trial = 0; trial <= w->s->paddle_retrials; trial++) {
        const int angle = below(&w->random, ANGLES);
        int taken = 0;
        for (size_t i = 0; i < area; i++) taken += w->occupied[i] = w->mask[i] >= OCCUPIED;
        if ((double)(N * N - taken) / (N * N) < 0.01 || !w->b->usable[angle]) return 0;
        set_frame(w->s, w->b, w->occupied, 1, 1);
        const int count = free_spots(w->s, w->b, angle, w->occupied, w->hit, w->spots);
        if (!count) return 0;
        if (plant(w, snake, angle, w->spots[below(&w->random, count)])) return 1;
    }
    return 0;
}

static int grow_distractor(Scene *w) {
    Snake snake;
    if (!seed_distractor(w, &snake)) return 0;
    w->placed[w->count++] = snake.last;
    for (int i = 1; i < w->s->distractor_length; i++)
        if (!extend(w, &snake)) return 0;
    stamp(w, &snake.last);
    return 1;
}

/* Grows as many distractors as find room; returns their number. */
static int grow_distractors(Scene *w) {
    const size_t area = mask_area(w);
    int grown = 0;
    for (int i = 0; i < w->s->distractors; i++) {
        for (int trial = 0; trial <= w->s->distractor_retrials; trial++) {
            const int count = w->count;
            memcpy(w->saved_mask, w->mask, area);
            if (grow_distractor(w)) {
                grown++;
                break;
            }
            w->count = count;
            memcpy(w->mask, w->saved_mask, area);
        }
    }
    return grown;
}

static void paint_paddle(Scene *w, const Paddle *p, const double *value) {
    const int N = w->s->canvas, side = w->b->side, reach = w->b->reach;
    const uint8_t *line = w->b->line + (size_t)p->heading * side * side;
    int first_row, first_col;
    const int end_row = visible(w, p->at.row, &first_row), end_col = visible(w, p->at.col, &first_col);
    for (int row = first_row; row < end_row; row++) {
        const int begin = (p->at.row + row - reach) * N + p->at.col - reach;
        for (int col = first_col; col < end_col; col++)
            w->image[begin + col] = fmax(w->image[begin + col], value[line[row * side + col]]);
    }
}

/* A disc, drawn large and reduced. */
static void paint_marker(Scene *w, Place at) {
    const int N = w->s->canvas, scale = w->s->antialias, fine = N * scale;
    const double radius = w->s->marker_radius * scale;
    memset(w->large, 0, (size_t)fine * fine);
    for (int row = 0; row < fine; row++)
        for (int col = 0; col < fine; col++) {
            const double down = row - at.row * scale, across = col - at.col * scale;
            if (down * down + across * across <= radius * radius) dot(w->large, fine, col, row);
        }
    reduce(&w->reduction, w->large, w->between, w->small);
    for (int i = 0; i < N * N; i++) w->image[i] = fmax(w->image[i], w->small[i] / 255.0);
}

#endif
