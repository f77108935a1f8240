/* The verbs. argv[0] is the verb itself; the return value is the exit status (options.h). */
#ifndef WEFT_CLI_VERBS_H
#define WEFT_CLI_VERBS_H

int weft_cli_run(int argc, char **argv);
int weft_cli_aggregate(int argc, char **argv);
int weft_cli_coordinator(int argc, char **argv);
int weft_cli_scheduler(int argc, char **argv);
int weft_cli_train(int argc, char **argv);
int weft_cli_server(int argc, char **argv);
int weft_cli_worker(int argc, char **argv);
int weft_cli_eval(int argc, char **argv);
int weft_cli_predict(int argc, char **argv);
int weft_cli_doctor(int argc, char **argv);
int weft_cli_keygen(int argc, char **argv);
int weft_cli_top(int argc, char **argv);
int weft_cli_trace(int argc, char **argv);
int weft_cli_load(int argc, char **argv);
int weft_cli_perf(int argc, char **argv);
int weft_cli_lab(int argc, char **argv);
int weft_cli_sim(int argc, char **argv);

/* Verbs of `weft sim` and `weft perf`. */
int weft_cli_sim_incast(int argc, char **argv);
int weft_cli_sim_exchange(int argc, char **argv);
int weft_cli_sim_allreduce(int argc, char **argv);
int weft_cli_sim_fabric(int argc, char **argv);
int weft_cli_sim_compression(int argc, char **argv);
int weft_cli_sim_grid(int argc, char **argv);
int weft_perf_stream(int argc, char **argv);
int weft_perf_collective(int argc, char **argv); /* allreduce, allgather, broadcast */
int weft_perf_rounds(int argc, char **argv);     /* pingpong to shuffle: enum weft_perf_pattern */
int weft_perf_compare(int argc, char **argv);

struct weft_verb {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv);
};

/* A command that is a list of verbs: `weft`, `weft lab`. */
struct weft_verb_list {
    const char *name;              /* "weft lab" */
    const char *word;              /* noun for a list entry: "command" */
    const char *summary;           /* one line */
    const char *usage;             /* "VERB [options]" */
    const char *description;       /* paragraphs before the list; NULL = none */
    const char *notes;             /* after the list: more help, examples */
    const struct weft_verb *verbs; /* ends with a NULL name */
};

/* Run the verb in argv[1], or print the help. For an unknown verb, print an error with a suggestion
 * on standard error and return WEFT_EXIT_USAGE. */
int weft_verbs_run(const struct weft_verb_list *list, int argc, char **argv);

#endif
