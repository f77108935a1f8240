#include "cli/top/screen.h"

#include <curses.h>
#include <stdio.h>
#include <unistd.h>

enum { WIDTH_MIN = 60 };

static SCREEN *screen;

bool weft_top_screen_open(const char **why_p)
{
    if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        *why_p = "standard input or output is not a terminal; use --once";
        return false;
    }
    screen = newterm(NULL, stdout, stdin);
    if (screen == NULL) {
        *why_p = "the terminal type (TERM) is unknown; use --once";
        return false;
    }
    cbreak();
    noecho();
    nonl();
    keypad(stdscr, TRUE);
    curs_set(0);
    return true;
}

void weft_top_screen_close(void)
{
    if (screen != NULL) {
        endwin();
        delscreen(screen);
        screen = NULL;
    }
}

uint32_t weft_top_screen_width(void)
{
    int columns = COLS < WIDTH_MIN ? WIDTH_MIN : COLS;
    return (uint32_t)(columns > WEFT_TOP_WIDTH_MAX ? WEFT_TOP_WIDTH_MAX : columns);
}

void weft_top_screen_show(const struct weft_top_view *view, const char *foot)
{
    int room = LINES - 1;
    erase();
    for (int i = 0; i < (int)view->count && i < room; i++) {
        attrset(view->is_head[i] ? A_BOLD : A_NORMAL);
        mvaddnstr(i, 0, view->lines[i], COLS);
    }
    attrset(A_REVERSE);
    move(LINES - 1, 0);
    if ((int)view->count > room) {
        printw("%.20s%d more lines: enlarge the window", "", (int)view->count - room);
    } else {
        addnstr(foot, COLS);
    }
    attrset(A_NORMAL);
    refresh();
}

enum { CTRL_C = 3 }; /* if the terminal passes it on */

enum weft_top_key weft_top_screen_wait(int timeout_ms)
{
    timeout(timeout_ms);
    switch (getch()) {
    case 'q':
    case 'Q':
    case CTRL_C:
        return WEFT_TOP_KEY_QUIT;
    case KEY_RESIZE:
        return WEFT_TOP_KEY_DRAW;
    case ' ':
        return WEFT_TOP_KEY_NEXT;
    default:
        return WEFT_TOP_KEY_NONE;
    }
}

bool weft_top_screen_quits(void)
{
    int key = ERR;
    if (screen == NULL) {
        return false;
    }
    timeout(0);
    do {
        key = getch();
    } while (key != ERR && key != 'q' && key != 'Q' && key != CTRL_C);
    return key != ERR;
}
