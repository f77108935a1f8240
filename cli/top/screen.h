/* The terminal of `weft top`: ncurses, and nothing else. */
#ifndef WEFT_CLI_TOP_SCREEN_H
#define WEFT_CLI_TOP_SCREEN_H

#include "cli/top/view.h"

/* False: standard output is no terminal that ncurses knows; why_p says it. */
bool weft_top_screen_open(const char **why_p);
void weft_top_screen_close(void);

/* Columns to draw for: at least 60, at most WEFT_TOP_WIDTH_MAX. */
uint32_t weft_top_screen_width(void);

/* Lines that do not fit are left out; the last one says how many. */
void weft_top_screen_show(const struct weft_top_view *view, const char *foot);

enum weft_top_key { WEFT_TOP_KEY_NONE, WEFT_TOP_KEY_QUIT, WEFT_TOP_KEY_DRAW, WEFT_TOP_KEY_NEXT };

/* Wait for a key, a new size of the window, or timeout_ms. q and Ctrl-C end, a space asks again now. */
enum weft_top_key weft_top_screen_wait(int timeout_ms);

#endif
