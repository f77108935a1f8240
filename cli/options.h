/* Command-line options of a verb, defined by a table: name, argument, default with its unit, help,
 * type, target.
 *
 * The parser, `weft VERB --help` and the error messages are all generated from the table, so they
 * cannot disagree. The default is the value of the target before parsing; nothing repeats it.
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
 * Differences from getopt_long: no short options except -h and those with a letter, no
 * abbreviations, and options may appear in any order. `--name value` and `--name=value` are the
 * same.
 */
#ifndef WEFT_CLI_OPTIONS_H
#define WEFT_CLI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

/* Exit statuses of the program. */
enum { WEFT_EXIT_OK = 0, WEFT_EXIT_FAILED = 1, WEFT_EXIT_USAGE = 2 };

/* Returned by weft_options_parse if the verb should run; any other value is the exit status. */
enum { WEFT_OPTIONS_RUN = -1 };

enum weft_option_type {
    WEFT_OPTION_FLAG,    /* bool: no argument */
    WEFT_OPTION_STRING,  /* const char *: points into argv; not empty */
    WEFT_OPTION_U32,     /* uint32_t in [min, max] */
    WEFT_OPTION_U64,     /* uint64_t in [min, max] */
    WEFT_OPTION_PPM,     /* uint32_t parts per million, written as a decimal in [0, 1) */
    WEFT_OPTION_F32,     /* float, finite, above 0 */
    WEFT_OPTION_F64,     /* double in [least, most]; most = 0 means no limit */
    WEFT_OPTION_CHOICE,  /* an enum or uint32_t: the index in `choices` */
    WEFT_OPTION_CUSTOM,  /* parse() decides */
    WEFT_OPTION_HEADING, /* not an option: `help` is the heading of the options that follow */
};

struct weft_option {
    const char *name;     /* without the dashes; NULL ends the table */
    const char *argument; /* "N", "FILE"; NULL for a flag */
    const char *help;     /* one or more lines; the effect, with the unit */
    enum weft_option_type type;
    void *value;  /* the target; holds the default before parsing */
    uint64_t min; /* U32, U64; max = 0 means the type's own maximum */
    uint64_t max;
    const char *fallback; /* shown as the default instead of the target's value; "" = show none */
    /* CUSTOM: returns NULL on success, else a description of the allowed values ("N..M with N <=
     * M"). */
    const char *(*parse)(const char *text, void *value);
    bool hidden;                /* not in --help: for internal use */
    const char *const *choices; /* CHOICE: ends with NULL. Help and error messages list them */
    double least;               /* F64 */
    double most;
    char letter; /* 'o': -o is the same option; 0 = none */
};

#define WEFT_OPTIONS_HEADING(text) {"", NULL, text, WEFT_OPTION_HEADING, .value = NULL}

struct weft_command {
    const char *name;             /* "train", "sim swarm" */
    const char *summary;          /* one line */
    const char *arguments;        /* in the usage line, after the options; NULL = no arguments */
    const char **operand;         /* target of the single operand; NULL = no operands */
    const char *without;          /* error message if it is missing; NULL = it is optional */
    const char *const **operands; /* all operands, (*operand_count,): argv, whose operands are
                                   * moved to the front. An operand may be empty. NULL = use
                                   * `operand` */
    uint32_t *operand_count;
    const char *description;           /* paragraphs; NULL = none */
    const char *example;               /* commands that can be pasted; NULL = none */
    const struct weft_option *options; /* ends with a NULL name */
};

/* Parse argv[1] .. argv[argc - 1] into the targets. --help prints the help and returns
 * WEFT_EXIT_OK. An error prints one or two lines on standard error and returns WEFT_EXIT_USAGE. An
 * operand is stored in `operand` (at most one) or `operands`, else it is an error. A verb with
 * sub-verbs removes the sub-verb first. */
int weft_options_parse(const struct weft_command *command, int argc, char **argv);

/* Whether an option, such as "--xdp", is among the arguments, as `--name` or `--name=VALUE`; also
 * if it has the default value. */
bool weft_options_given(int argc, char **argv, const char *name);

/* Print "weft NAME: sentence" and a reference to --help on standard error. Returns WEFT_EXIT_USAGE.
 * For checks that the table cannot express. */
[[gnu::format(printf, 2, 3)]] int weft_options_usage(const struct weft_command *command,
                                                     const char *format, ...);

/* Print the error "weft VERB: ..." on standard error. Returns WEFT_EXIT_FAILED. */
[[gnu::format(printf, 2, 3)]] int weft_cli_fail(const char *verb, const char *format, ...);

/* The name most similar to `word`, or NULL if none is similar enough to be a likely misspelling.
 * names ends with NULL. */
const char *weft_options_closest(const char *word, const char *const *names);

#endif
