#include "ps/divergence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Upper limit of a path's length, so that the squares of all rows sum in a double. */
static const double way_max = 1e18;

/* Far more than the rounding errors of the sums below. */
static const double rounding = 1e-9;

weft_status weft_divergence_init(struct weft_divergence *divergence, uint32_t slots)
{
    *divergence = (struct weft_divergence){.slots = slots};
    divergence->since = calloc(slots, sizeof(*divergence->since));
    divergence->sent = calloc(slots, sizeof(*divergence->sent));
    if (divergence->since == NULL || divergence->sent == NULL) {
        weft_divergence_fini(divergence);
        return WEFT_NOMEM;
    }
    return WEFT_OK;
}

void weft_divergence_fini(struct weft_divergence *divergence)
{
    free(divergence->since);
    free(divergence->sent);
    *divergence = (struct weft_divergence){0};
}

/* Round up, so that the result is never less than the value. */
static float round_up(double value)
{
    float rounded = (float)value;
    return (double)rounded < value ? nextafterf(rounded, INFINITY) : rounded;
}

static double square(double value)
{
    return value * value;
}

/* Returns the increase of the sum of squares. */
static double walk(struct weft_divergence *divergence, uint32_t slot, double squares)
{
    float *way = &divergence->since[slot];
    double before = *way;
    if (squares == 0) {
        return 0;
    }
    double step = sqrt(squares) * (1 + rounding);
    double after = before + step;
    after = after <= way_max ? after : way_max; /* also replaces NaN */
    *way = round_up(after);
    divergence->since_end = slot >= divergence->since_end ? slot + 1 : divergence->since_end;
    return square(*way) - square(before);
}

void weft_divergence_add(struct weft_divergence *divergence, uint32_t slot, double squares)
{
    divergence->since_squares += walk(divergence, slot, squares);
}

void weft_divergence_add_later(struct weft_divergence *divergence, uint32_t slot, double squares)
{
    divergence->later_squares += walk(divergence, slot, squares);
}

void weft_divergence_settle(struct weft_divergence *divergence)
{
    divergence->since_squares += divergence->later_squares;
    divergence->later_squares = 0;
}

void weft_divergence_cut(struct weft_divergence *divergence)
{
    float *none = divergence->sent;
    weft_divergence_settle(divergence);
    divergence->sent = divergence->since;
    divergence->since = none;
    divergence->sent_end = divergence->since_end;
    divergence->since_end = 0;
    divergence->sent_squares = divergence->since_squares;
    divergence->since_squares = 0;
}

void weft_divergence_end(struct weft_divergence *divergence, bool kept)
{
    if (!kept && divergence->sent_squares != 0) {
        double squares = 0;
        if (divergence->since_end < divergence->sent_end) {
            divergence->since_end = divergence->sent_end;
        }
        for (uint32_t i = 0; i < divergence->since_end; i++) {
            float *way = &divergence->since[i];
            *way = round_up(fmin((double)*way + divergence->sent[i], way_max));
            squares += square(*way);
        }
        divergence->since_squares = fmax(squares - divergence->later_squares, 0);
    }
    memset(divergence->sent, 0, divergence->sent_end * sizeof(*divergence->sent));
    divergence->sent_end = 0;
    divergence->sent_squares = 0;
}

static double root(double squares)
{
    return squares > 0 ? sqrt(squares) * (1 + rounding) : 0;
}

double weft_divergence_now(const struct weft_divergence *divergence)
{
    return root(divergence->since_squares) + root(divergence->sent_squares);
}

double weft_divergence_since(const struct weft_divergence *divergence)
{
    return root(divergence->since_squares);
}
