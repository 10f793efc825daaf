/* Undoes the filters of PNG rows: a stored byte is the difference from a guess based on left and upper neighbours. */

#include <stdint.h>
#include <stdlib.h>

static int nearest(int left, int above, int corner) {
    const int guess = left + above - corner;
    const int a = abs(guess - left), b = abs(guess - above), c = abs(guess - corner);
    return a <= b && a <= c ? left : b <= c ? above : corner;
}

/* stored (height, 1 + width): rows of a filter and bytes; out (height, width). Returns 1 for a filter unknown to PNG,
 * otherwise 0. */
__attribute__((visibility("default"))) int mgrade_png_unfilter(const uint8_t *stored, int64_t height, int64_t width,
                                                               uint8_t *out) {
    for (int64_t y = 0; y < height; y++, out += width) {
        const int filter = *stored++;
        if (filter > 4) return 1;
        for (int64_t x = 0; x < width; x++) {
            const int left = x ? out[x - 1] : 0, above = y ? out[x - width] : 0;
            const int corner = x && y ? out[x - width - 1] : 0;
            const int guesses[] = {0, left, above, (left + above) / 2, nearest(left, above, corner)};
            out[x] = (uint8_t)(*stored++ + guesses[filter]);
        }
    }
    return 0;
}
