/* Pathfinder images (Linsley et al. 2018, in the sizes of the Long Range Arena): two long snakes of dashes, a few short
 * ones, and two discs on the ends of one snake (label 1) or of two (label 0).
 * Each image has its own random source, seeded by (seed, index). */

#include "snakes.h"

#define EXPORT __attribute__((visibility("default")))
#define NO_MEMORY 1
#define NO_ROOM 2

/* Paints both snakes, the distractors and both markers, scaled to bytes from 0 (darkest) to 255 (brightest). */
static void compose(Scene *w, const Snake *pair, int label, uint8_t *out) {
    const size_t area = (size_t)w->s->canvas * w->s->canvas;
    const int from = below(&w->random, 2), to = label ? from : 1 - from;
    memset(w->image, 0, sizeof(double) * area);
    for (int i = 0; i < w->count; i++)
        paint_paddle(w, w->placed + i, i < 2 * w->s->contour_length ? w->target_value : w->distractor_value);
    paint_marker(w, pair[from].origin);
    paint_marker(w, pair[to].last.at);
    double low = w->image[0], high = low;
    for (size_t i = 0; i < area; i++) {
        low = w->image[i] < low ? w->image[i] : low;
        high = w->image[i] > high ? w->image[i] : high;
    }
    const double scale = high > low ? 255 / (high - low) : 1;
    for (size_t i = 0; i < area; i++) out[i] = (uint8_t)((w->image[i] - low) * scale + 0.5);
}

/* counts (2), or null: the number of snake pairs started, and of distractors that found room. */
static int make_image(Scene *w, const Book *books, uint64_t seed, uint64_t index, uint8_t *out, uint8_t *label,
                      int32_t *counts) {
    Snake pair[2];
    w->random = random_at(seed, index);
    *label = (uint8_t)below(&w->random, 2);
    w->b = books + below(&w->random, w->s->margin_count);
    int pairs = 1;
    while (!grow_pair(w, pair))
        if (++pairs > MAX_PAIRS) return NO_ROOM;
    const int distractors = grow_distractors(w);
    compose(w, pair, *label, out);
    if (counts) {
        counts[0] = pairs;
        counts[1] = distractors;
    }
    return 0;
}

static int generate(const Settings *s, const Book *books, uint64_t seed, int64_t begin, int64_t end, int threads,
                    uint8_t *images, uint8_t *labels, int32_t *counts) {
    const size_t area = (size_t)s->canvas * s->canvas;
    int failed = 0;
    (void)threads;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        Scene scene;
        const int ready = scene_make(&scene, s, books);
#pragma omp for schedule(dynamic, 8)
        for (int64_t i = begin; i < end; i++) {
            int stop;
#pragma omp atomic read
            stop = failed;
            if (stop) continue;
            const size_t at = (size_t)(i - begin);
            const int wrong = ready ? make_image(&scene, books, seed, (uint64_t)i, images + at * area, labels + at,
                                                 counts ? counts + 2 * at : 0)
                                    : NO_MEMORY;
            if (wrong) {
#pragma omp atomic write
                failed = wrong;
            }
        }
        scene_free(&scene);
    }
    return failed;
}

/* Images [begin, end) of a seed: images (end - begin, canvas, canvas), labels (end - begin), and counts
 * (end - begin, 2) or null: see make_image. Returns 0, NO_MEMORY, or NO_ROOM if no two snakes of this length fit. */
EXPORT int mgrade_pathfinder(const Settings *s, uint64_t seed, int64_t begin, int64_t end, int threads,
                             uint8_t *images, uint8_t *labels, int32_t *counts) {
    Book books[MAX_MARGINS];
    int ready = 1, made = 0;
    for (; ready && made < s->margin_count; made++) ready = book_make(books + made, s, s->margins[made]);
    const int failed = ready ? generate(s, books, seed, begin, end, threads, images, labels, counts) : NO_MEMORY;
    while (made--) book_free(books + made);
    return failed;
}

/* One paddle: its line and mask (side, side), with side = 2 (length + ceil(thickness) + margin) + 1. */
EXPORT int mgrade_pathfinder_paddle(const Settings *s, int margin, double angle, uint8_t *line, uint8_t *mask) {
    Easel easel = {0};
    const int ready = easel_make(&easel, s, margin, paddle_reach(s, margin));
    if (ready) draw_paddle(&easel, s, angle, line, mask);
    easel_free(&easel);
    return ready ? 0 : NO_MEMORY;
}
