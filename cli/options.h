/* Options of one verb, from one table: name, argument, default with its unit, help, type, target.
 *
 * The parser, `weft VERB --help` and the sentences for bad input all come from the table, so they
 * cannot disagree. A default is what the target holds before parsing; nothing repeats it.
 *
 *     struct weft_option options[] = {
 *         {"workers", "N", "worker processes", WEFT_OPTION_U32, .value = &workers, .min = 1},
 *         {"json", NULL, "print the report on standard output", WEFT_OPTION_FLAG, .value = &json},
 *         {0},
 *     };
 *     struct weft_command command = {.name = "train", ..., .options = options};
 *     int status = weft_options_parse(&command, argc, argv);
 *     if (status != WEFT_OPTIONS_RUN) {
 *         return status;
 *     }
 *
 * It is not getopt: no short options but -h and those with a letter, no abbreviations, no order that
 * matters. `--name value` and `--name=value` are the same.
 */
#ifndef WEFT_CLI_OPTIONS_H
#define WEFT_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Exit statuses of the program. */
enum { WEFT_EXIT_OK = 0, WEFT_EXIT_FAILED = 1, WEFT_EXIT_USAGE = 2 };

/* What weft_options_parse returns when the verb shall go on; else it is the exit status. */
enum { WEFT_OPTIONS_RUN = -1 };

enum weft_option_type {
    WEFT_OPTION_FLAG,   /* bool: no argument */
    WEFT_OPTION_STRING, /* const char *: points into argv; not empty */
    WEFT_OPTION_U32,    /* uint32_t in [min, max] */
    WEFT_OPTION_U64,    /* uint64_t in [min, max] */
    WEFT_OPTION_PPM,    /* uint32_t parts per million, written as a decimal in [0, 1) */
    WEFT_OPTION_F32,    /* float, finite, above 0 */
    WEFT_OPTION_F64,    /* double in [least, most]; most = 0 means no limit */
    WEFT_OPTION_CHOICE, /* an enum or uint32_t: the index in `choices` */
    WEFT_OPTION_CUSTOM, /* parse() decides */
    WEFT_OPTION_HEADING, /* no option: `help` is the heading of those that follow */
};

struct weft_option {
    const char *name;     /* without the dashes; NULL ends the table */
    const char *argument; /* "N", "FILE"; NULL for a flag */
    const char *help;     /* one line or more; what it does, with the unit */
    enum weft_option_type type;
    void *value;          /* the target; holds the default before parsing */
    uint64_t min;         /* U32, U64; max = 0 means the type's own maximum */
    uint64_t max;
    const char *fallback; /* shown as the default instead of the target's value; "" = show none */
    /* CUSTOM: NULL on success, else what is allowed ("N..M with N <= M"). */
    const char *(*parse)(const char *text, void *value);
    bool hidden;          /* not in --help: for the program's own use */
    const char *const *choices; /* CHOICE: ends with NULL. Help's default and refusals name them */
    double least;         /* F64 */
    double most;
    char letter;          /* 'o': -o means this option, too; 0 = none */
};

#define WEFT_OPTIONS_HEADING(text) {"", NULL, text, WEFT_OPTION_HEADING, .value = NULL}

struct weft_command {
    const char *name;        /* "train", "sim swarm" */
    const char *summary;     /* one line */
    const char *arguments;   /* of the usage line, after the options; NULL = takes none */
    const char **operand;    /* takes the one word that is no option; NULL = there is none */
    const char *without;     /* what to say when it is missing; NULL = it may be */
    const char *const **operands; /* or all of them, (*operand_count,): argv, in which they move
                                     to the front. One may be empty; NULL = the above */
    uint32_t *operand_count;
    const char *description; /* paragraphs; NULL = none */
    const char *example;     /* lines that can be pasted; NULL = none */
    const struct weft_option *options; /* ends with a NULL name */
};

/* Read argv[1] .. argv[argc - 1] into the targets. --help prints the help and gives WEFT_EXIT_OK.
 * Anything wrong prints one or two lines on standard error and gives WEFT_EXIT_USAGE.
 * A word that is no option goes to `operand`, once, or to `operands`, or is refused (a verb with sub-verbs takes its
 * word off before). */
int weft_options_parse(const struct weft_command *command, int argc, char **argv);

/* Print on standard error "weft NAME: sentence" and a line that points to --help; returns
 * WEFT_EXIT_USAGE. For what only the verb itself can judge. */
[[gnu::format(printf, 2, 3)]] int weft_options_usage(const struct weft_command *command,
                                                     const char *format, ...);

/* "weft VERB: ..." on standard error: why it failed. Returns WEFT_EXIT_FAILED. */
[[gnu::format(printf, 2, 3)]] int weft_cli_fail(const char *verb, const char *format, ...);

/* The name nearest to `word` that is near enough to be a slip, or NULL. names ends with NULL. */
const char *weft_options_closest(const char *word, const char *const *names);

#endif
