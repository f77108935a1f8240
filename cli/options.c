#include "cli/options.h"

#include "base/units.h"
#include "ml/number.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_BYTES_MAX = 64, HELP_COLUMN = 30, HELP_WIDTH = 100 };

static uint64_t option_max(const struct weft_option *option)
{
    uint64_t top = option->type == WEFT_OPTION_U32 ? UINT32_MAX : UINT64_MAX;
    return option->max != 0 ? option->max : top;
}

/* "a, b or c". */
static void list_choices(const char *const *choices, char *room, size_t bytes)
{
    size_t used = 0;
    room[0] = '\0';
    for (size_t i = 0; choices[i] != NULL && used < bytes; i++) {
        const char *before = i == 0 ? "" : choices[i + 1] == NULL ? " or " : ", ";
        used += (size_t)snprintf(room + used, bytes - used, "%s%s", before, choices[i]);
    }
}

/* The values that the option accepts, as the end of a sentence; `room` is the caller's buffer. */
static const char *option_allows(const struct weft_option *option, char *room, size_t bytes)
{
    switch (option->type) {
    case WEFT_OPTION_U32:
    case WEFT_OPTION_U64:
        if (option_max(option) == UINT64_MAX) {
            snprintf(room, bytes, "a whole number, at least %llu", (unsigned long long)option->min);
        } else {
            snprintf(room, bytes, "a whole number from %llu to %llu",
                     (unsigned long long)option->min, (unsigned long long)option_max(option));
        }
        return room;
    case WEFT_OPTION_PPM:
        return "a fraction of at least 0 and below 1, such as 0.10";
    case WEFT_OPTION_F32:
        return "a number above 0, such as 0.1";
    case WEFT_OPTION_F64:
        if (option->most > 0) {
            snprintf(room, bytes, "a number from %.10g to %.10g", option->least, option->most);
        } else {
            snprintf(room, bytes, "a number of at least %.10g", option->least);
        }
        return room;
    case WEFT_OPTION_CHOICE:
        list_choices(option->choices, room, bytes);
        return room;
    case WEFT_OPTION_STRING:
        return "a non-empty string";
    case WEFT_OPTION_FLAG:
    case WEFT_OPTION_CUSTOM:
    case WEFT_OPTION_HEADING:
        break;
    }
    return "another value";
}

static bool set_whole(const struct weft_option *option, const char *text)
{
    uint64_t value;
    if (!weft_ml_number_u64(text, strlen(text), &value) || value < option->min ||
        value > option_max(option)) {
        return false;
    }
    if (option->type == WEFT_OPTION_U32) {
        *(uint32_t *)option->value = (uint32_t)value;
    } else {
        *(uint64_t *)option->value = value;
    }
    return true;
}

static bool set_fraction(const struct weft_option *option, const char *text)
{
    float value;
    if (!weft_ml_number_f32(text, strlen(text), &value) || value < 0.0F || value >= 1.0F) {
        return false;
    }
    double ppm = round((double)value * WEFT_PPM);
    /* Rounding must not turn 0.9999999 into 1. */
    *(uint32_t *)option->value = (uint32_t)fmin(ppm, WEFT_PPM - 1);
    return true;
}

static bool set_positive(const struct weft_option *option, const char *text)
{
    float value;
    if (!weft_ml_number_f32(text, strlen(text), &value) || value <= 0.0F) {
        return false;
    }
    *(float *)option->value = value;
    return true;
}

static bool set_real(const struct weft_option *option, const char *text)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < option->least ||
        (option->most > 0 && value > option->most)) {
        return false;
    }
    *(double *)option->value = value;
    return true;
}

static bool set_choice(const struct weft_option *option, const char *text)
{
    for (uint32_t i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            *(uint32_t *)option->value = i;
            return true;
        }
    }
    return false;
}

/* Store the argument. NULL on success, else a description of the allowed values. */
static const char *option_set(const struct weft_option *option, const char *text, char *room,
                              size_t bytes)
{
    bool good = false;
    switch (option->type) {
    case WEFT_OPTION_STRING:
        good = text[0] != '\0';
        if (good) {
            *(const char **)option->value = text;
        }
        break;
    case WEFT_OPTION_U32:
    case WEFT_OPTION_U64:
        good = set_whole(option, text);
        break;
    case WEFT_OPTION_PPM:
        good = set_fraction(option, text);
        break;
    case WEFT_OPTION_F32:
        good = set_positive(option, text);
        break;
    case WEFT_OPTION_F64:
        good = set_real(option, text);
        break;
    case WEFT_OPTION_CHOICE:
        good = set_choice(option, text);
        break;
    case WEFT_OPTION_CUSTOM:
        return option->parse(text, option->value);
    case WEFT_OPTION_FLAG:
        *(bool *)option->value = true;
        good = true;
        break;
    case WEFT_OPTION_HEADING:
        break;
    }
    return good ? NULL : option_allows(option, room, bytes);
}

/* ---- misspelled words ------------------------------------------------------------------------ */

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edit distance of two words of at most WORD_BYTES_MAX bytes: insertions, deletions, substitutions
 * and transpositions of adjacent letters. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][WORD_BYTES_MAX + 1]; /* for the last three letters of a, as a ring */
    size_t a_bytes = strlen(a);
    size_t b_bytes = strlen(b);
    for (size_t j = 0; j <= b_bytes; j++) {
        rows[0][j] = (unsigned)j;
    }
    for (size_t i = 1; i <= a_bytes; i++) {
        unsigned *row = rows[i % 3];
        const unsigned *above = rows[(i + 2) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_bytes; j++) {
            row[j] = min3(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = min3(row[j], rows[(i + 1) % 3][j - 2] + 1, UINT32_MAX);
            }
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

const char *weft_options_closest(const char *word, const char *const *names)
{
    const char *best = NULL;
    unsigned best_distance = UINT32_MAX;
    size_t word_bytes = strlen(word);
    if (word_bytes == 0 || word_bytes > WORD_BYTES_MAX) {
        return NULL;
    }
    for (; *names != NULL; names++) {
        /* A prefix of the name counts as one error, independent of the missing length. */
        unsigned d = strncmp(*names, word, word_bytes) == 0 ? 1 : distance(word, *names);
        if (d < best_distance) {
            best_distance = d;
            best = *names;
        }
    }
    return best_distance <= 1 + word_bytes / 4 ? best : NULL;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* The default as text; "" when none is shown. */
static void default_text(const struct weft_option *option, char *room, size_t bytes)
{
    room[0] = '\0';
    if (option->fallback != NULL) {
        snprintf(room, bytes, "%s", option->fallback);
        return;
    }
    switch (option->type) {
    case WEFT_OPTION_STRING:
        if (*(const char **)option->value != NULL) {
            snprintf(room, bytes, "%s", *(const char **)option->value);
        }
        break;
    case WEFT_OPTION_U32:
        snprintf(room, bytes, "%u", *(const uint32_t *)option->value);
        break;
    case WEFT_OPTION_U64:
        snprintf(room, bytes, "%llu", (unsigned long long)*(const uint64_t *)option->value);
        break;
    case WEFT_OPTION_PPM:
        snprintf(room, bytes, "%g", (double)*(const uint32_t *)option->value / WEFT_PPM);
        break;
    case WEFT_OPTION_F32:
        snprintf(room, bytes, "%g", (double)*(const float *)option->value);
        break;
    case WEFT_OPTION_F64:
        snprintf(room, bytes, "%g", *(const double *)option->value);
        break;
    case WEFT_OPTION_CHOICE:
        snprintf(room, bytes, "%s", option->choices[*(const uint32_t *)option->value]);
        break;
    case WEFT_OPTION_FLAG:
    case WEFT_OPTION_CUSTOM:
    case WEFT_OPTION_HEADING:
        break;
    }
}

/* Print a text whose further lines are aligned with the first. Returns the column at its end. */
static int print_aligned(const char *text, int column)
{
    for (; *text != '\0'; text++) {
        putchar(*text);
        column++;
        if (*text == '\n') {
            column = printf("%*s", HELP_COLUMN, "");
        }
    }
    return column;
}

/* Print the help text. The default follows on the same line if it fits, else on its own line. */
static void print_text(const struct weft_option *option)
{
    char room[256];
    int column = print_aligned(option->help, HELP_COLUMN);
    default_text(option, room, sizeof(room));
    if (room[0] != '\0') {
        bool fits = column + strlen(" (default: )") + strlen(room) <= HELP_WIDTH;
        printf("%s%*s(default: ", fits ? " " : "\n", fits ? 0 : HELP_COLUMN, "");
        (void)print_aligned(room, 0);
        putchar(')');
    }
}

static void print_option(const struct weft_option *option)
{
    int width = printf("  --%s%s%s", option->name, option->argument != NULL ? " " : "",
                       option->argument != NULL ? option->argument : "");
    if (width + 2 > HELP_COLUMN) {
        putchar('\n');
        width = 0;
    }
    printf("%*s", HELP_COLUMN - width, "");
    print_text(option);
    putchar('\n');
}

static void print_help(const struct weft_command *command)
{
    printf("weft %s: %s\n\nusage: weft %s [options]%s%s\n", command->name, command->summary,
           command->name, command->arguments != NULL ? " " : "",
           command->arguments != NULL ? command->arguments : "");
    if (command->description != NULL) {
        printf("\n%s\n", command->description);
    }
    if (command->options->type != WEFT_OPTION_HEADING) {
        printf("\noptions:\n");
    }
    for (const struct weft_option *option = command->options; option->name != NULL; option++) {
        if (option->type == WEFT_OPTION_HEADING) {
            printf("\n%s options:\n", option->help);
        } else if (!option->hidden) {
            print_option(option);
        }
    }
    printf("  --help%*sprint this help\n", HELP_COLUMN - 8, "");
    if (command->example != NULL) {
        printf("\nexample:\n%s\n", command->example);
    }
}

/* ---- parsing --------------------------------------------------------------------------------- */

int weft_options_usage(const struct weft_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "weft %s: ", command->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n`weft %s --help` lists the options\n", command->name);
    va_end(arguments);
    return WEFT_EXIT_USAGE;
}

int weft_cli_fail(const char *verb, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "weft %s: ", verb);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return WEFT_EXIT_FAILED;
}

static const struct weft_option *find(const struct weft_command *command, const char *name,
                                      size_t bytes)
{
    for (const struct weft_option *option = command->options; option->name != NULL; option++) {
        if (option->type != WEFT_OPTION_HEADING && strlen(option->name) == bytes &&
            memcmp(option->name, name, bytes) == 0) {
            return option;
        }
    }
    return NULL;
}

/* Find the option of "-o" by its letter. */
static const struct weft_option *find_letter(const struct weft_command *command, const char *word)
{
    for (const struct weft_option *option = command->options; option->name != NULL; option++) {
        if (option->letter != 0 && word[0] == '-' && word[1] == option->letter && word[2] == '\0') {
            return option;
        }
    }
    return NULL;
}

static int unknown(const struct weft_command *command, const char *word, const char *name,
                   size_t bytes)
{
    enum { NAMES_MAX = 64 };
    const char *names[NAMES_MAX + 1];
    size_t count = 0;
    for (const struct weft_option *option = command->options; option->name != NULL; option++) {
        if (!option->hidden && option->type != WEFT_OPTION_HEADING && count < NAMES_MAX) {
            names[count++] = option->name;
        }
    }
    names[count] = NULL;
    char typed[WORD_BYTES_MAX + 1];
    snprintf(typed, sizeof(typed), "%.*s", (int)(bytes < WORD_BYTES_MAX ? bytes : 0), name);
    const char *closest = weft_options_closest(typed, names);
    if (closest != NULL) {
        return weft_options_usage(command, "unknown option %.80s; did you mean --%s?", word,
                                  closest);
    }
    return weft_options_usage(command, "unknown option %.80s", word);
}

int weft_options_parse(const struct weft_command *command, int argc, char **argv)
{
    if (command->operands != NULL) {
        *command->operands = (const char *const *)(argv + 1);
    }
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(command);
            return WEFT_EXIT_OK;
        }
        const struct weft_option *option = find_letter(command, word);
        bool is_operand = option == NULL && (word[0] != '-' || word[1] == '\0');
        if (is_operand && command->operand != NULL && *command->operand == NULL &&
            word[0] != '\0') {
            *command->operand = word;
            continue;
        }
        if (is_operand && command->operands != NULL) {
            argv[++*command->operand_count] = argv[i]; /* at most i: argv[i] was read already */
            continue;
        }
        if (option == NULL && strncmp(word, "--", 2) != 0) {
            return weft_options_usage(command, "\"%.80s\" is not an option; options begin with --",
                                      word);
        }
        const char *text = NULL;
        if (option == NULL) {
            const char *name = word + 2;
            const char *equals = strchr(name, '=');
            size_t name_bytes = equals != NULL ? (size_t)(equals - name) : strlen(name);
            option = find(command, name, name_bytes);
            if (option == NULL) {
                return unknown(command, word, name, name_bytes);
            }
            text = equals != NULL ? equals + 1 : NULL;
        }
        if (option->type == WEFT_OPTION_FLAG && text != NULL) {
            return weft_options_usage(command, "--%s takes no argument", option->name);
        }
        if (option->type != WEFT_OPTION_FLAG && text == NULL) {
            if (i + 1 >= argc) {
                return weft_options_usage(command, "--%s needs an argument: %s", option->name,
                                          option->argument);
            }
            text = argv[++i];
        }
        char room[96];
        const char *allowed = option_set(option, text, room, sizeof(room));
        if (allowed != NULL) {
            return weft_options_usage(command, "--%s \"%.80s\" is not allowed; it must be %s",
                                      option->name, text, allowed);
        }
    }
    if (command->without != NULL && *command->operand == NULL) {
        return weft_options_usage(command, "%s", command->without);
    }
    return WEFT_OPTIONS_RUN;
}

bool weft_options_given(int argc, char **argv, const char *name)
{
    const size_t length = strlen(name);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], name, length) == 0 &&
            (argv[i][length] == '\0' || argv[i][length] == '=')) {
            return true;
        }
    }
    return false;
}
