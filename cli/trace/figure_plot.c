#define _GNU_SOURCE
#include "cli/trace/figure.h"

#include "base/units.h"

#include <stdlib.h>
#include <string.h>

enum { CAPTION_COLUMNS = 128, CAPTION_LINES_MAX = 8 };

/* Quote any text for gnuplot. */
static void print_quoted(FILE *script, const char *text)
{
    fputc('\'', script);
    for (; *text != '\0'; text++) {
        fputs(*text == '\'' ? "''" : "", script);
        if (*text != '\'') {
            fputc((unsigned char)*text < ' ' ? ' ' : *text, script);
        }
    }
    fputc('\'', script);
}

void weft_figure_cdf(FILE *script, const char *name, const struct weft_hist *hist, double scale)
{
    uint64_t seen = 0;
    fprintf(script, "$%s << EOD\n", name);
    for (size_t i = 0; i < WEFT_HIST_BUCKETS; i++) {
        if (hist->buckets[i] > 0) {
            double edge = (double)weft_min_u64(weft_hist_upper_edge(i), hist->max) / scale;
            if (seen == 0) {
                fprintf(script, "%.6g 0\n", edge); /* the curve starts at 0 */
            }
            seen += hist->buckets[i];
            fprintf(script, "%.6g %.6f\n", edge, (double)seen / (double)hist->count);
        }
    }
    fprintf(script, "EOD\n");
}

const char *weft_figure_verdict_name(enum weft_figure_verdict verdict)
{
    static const char *const names[] = {"agrees", "partly", "differs", "cannot tell"};
    return names[verdict];
}

/* ---- text below the picture ------------------------------------------------------------------ */

struct caption {
    char lines[CAPTION_LINES_MAX][CAPTION_COLUMNS + 1];
    unsigned count;
};

/* Break lines at blanks. */
static void caption_add(struct caption *caption, const char *text)
{
    while (*text != '\0' && caption->count < CAPTION_LINES_MAX) {
        size_t cut = strlen(text);
        if (cut > CAPTION_COLUMNS) {
            cut = CAPTION_COLUMNS;
            while (cut > CAPTION_COLUMNS / 2 && text[cut] != ' ') {
                cut--;
            }
        }
        snprintf(caption->lines[caption->count++], CAPTION_COLUMNS + 1, "%.*s", (int)cut, text);
        text += cut;
        text += *text == ' ';
    }
}

static void print_caption(FILE *script, const struct weft_figure *figure)
{
    struct caption caption = {.count = 0};
    char line[WEFT_FIGURE_WORDS + 64];
    snprintf(line, sizeof(line), "paper: %s", figure->kind->paper);
    caption_add(&caption, line);
    snprintf(line, sizeof(line), "here (%s): %s", weft_figure_verdict_name(figure->verdict),
             figure->here);
    caption_add(&caption, line);
    /* Lines of 17 pixels from the bottom; the plot ends above them. */
    double height = 600;
    fprintf(script, "set bmargin at screen %.4f\n", (17 * (caption.count + 0.5) + 55) / height);
    for (unsigned i = 0; i < caption.count; i++) {
        fprintf(script, "set label ");
        print_quoted(script, caption.lines[i]);
        fprintf(script, " at screen 0.02,%.4f left noenhanced font 'sans,10'\n",
                17 * (caption.count - i - 0.3) / height);
    }
}

static void print_head(FILE *script, const struct weft_figure *figure)
{
    char title[512];
    fprintf(script, "set terminal pngcairo size 1000,600 font 'sans,11'\nset output '%s'\n",
            figure->png);
    const bool is_predicted = strcmp(figure->kind->paper, WEFT_FIGURE_PREDICTION) == 0;
    snprintf(title, sizeof(title), "[imc20] %s%s, here: %s",
             is_predicted ? "section 4, a prediction" : "Figure ",
             is_predicted ? "" : figure->kind->number,
             figure->run != NULL ? figure->run->title : "several runs");
    fprintf(script, "set title ");
    print_quoted(script, title);
    fprintf(script, " noenhanced font 'sans,10'\n");
    print_caption(script, figure);
}

/* ---- files ----------------------------------------------------------------------------------- */

bool weft_figure_file(const char *folder, const char *name,
                      void (*write)(FILE *out, const void *arg), const void *arg)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", folder, name) < 0) {
        path = NULL;
    }
    FILE *out = weft_output_open(weft_trace_need(path));
    if (out != NULL) {
        write(out, arg);
    }
    bool good = weft_output_close("trace figures", path, out, out != NULL);
    free(path);
    return good;
}

struct script {
    const struct weft_figure *figure;
    const char *body;
};

static void print_script(FILE *out, const void *arg)
{
    const struct script *script = arg;
    print_head(out, script->figure);
    fputs(script->body, out);
}

void weft_figure_script_name(char png[WEFT_FIGURE_FILE])
{
    memcpy(strrchr(png, '.'), ".gp", 4);
}

enum weft_gnuplot weft_figure_draw(const struct weft_figure *figure, const char *body,
                                   const char *folder)
{
    char name[WEFT_FIGURE_FILE];
    const struct script script = {figure, body};
    snprintf(name, sizeof(name), "%s", figure->png);
    weft_figure_script_name(name);
    return weft_figure_file(folder, name, print_script, &script)
               ? weft_gnuplot_run("trace figures", folder, name)
               : WEFT_GNUPLOT_FAILED;
}
