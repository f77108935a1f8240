/* The view of `weft top`: targets in, lines of text out, without terminal or clock. The screen and
 * --once use the same lines. */
#ifndef WEFT_CLI_TOP_VIEW_H
#define WEFT_CLI_TOP_VIEW_H

#include "cli/top/target.h"

enum { WEFT_TOP_LINES_MAX = 400, WEFT_TOP_WIDTH_MAX = 240 };

struct weft_top_view {
    char lines[WEFT_TOP_LINES_MAX][WEFT_TOP_WIDTH_MAX + 1];
    bool is_head[WEFT_TOP_LINES_MAX]; /* highlighted */
    uint32_t count;
};

enum { WEFT_TOP_LEFT_OUT_MAX = 1024 };

/* left_out: number of targets for which there was no room; WEFT_TOP_LEFT_OUT_MAX = at least that.
 * Shape:   targets (count,); width 60 to WEFT_TOP_WIDTH_MAX columns. */
void weft_top_view_draw(struct weft_top_view *view, const struct weft_top_target *targets,
                        uint32_t count, uint32_t left_out, uint32_t width);

#endif
