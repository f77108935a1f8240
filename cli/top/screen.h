/* The terminal of `weft top`, using ncurses. */
#ifndef WEFT_CLI_TOP_SCREEN_H
#define WEFT_CLI_TOP_SCREEN_H

#include "cli/top/view.h"

/* False: standard output is not a terminal that ncurses supports; *why_p has the reason. */
bool weft_top_screen_open(const char **why_p);
void weft_top_screen_close(void);

/* Usable columns: at least 60, at most WEFT_TOP_WIDTH_MAX. */
uint32_t weft_top_screen_width(void);

/* Lines that do not fit are omitted; the last line shows how many were omitted. */
void weft_top_screen_show(const struct weft_top_view *view, const char *foot);

/* DRAW: the window was resized; NEXT: fetch new values now; NONE: the timeout, or any other key. */
enum weft_top_key { WEFT_TOP_KEY_NONE, WEFT_TOP_KEY_QUIT, WEFT_TOP_KEY_DRAW, WEFT_TOP_KEY_NEXT };

/* Wait for a key, a window resize, or timeout_ms. q and Ctrl-C quit, space refreshes. */
enum weft_top_key weft_top_screen_wait(int timeout_ms);

/* Has a key that quits been pressed? Other keys are discarded, so call it only before a new view is
 * shown. */
bool weft_top_screen_quits(void);

#endif
