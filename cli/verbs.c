#include "cli/verbs.h"

#include "cli/options.h"

#include <stdio.h>
#include <string.h>

enum { VERBS_MAX = 32 };

static void print_help(const struct weft_verb_list *list)
{
    int width = 0;
    for (const struct weft_verb *verb = list->verbs; verb->name != NULL; verb++) {
        int bytes = (int)strlen(verb->name);
        width = bytes > width ? bytes : width;
    }
    printf("%s: %s\n\nusage: %s %s\n", list->name, list->summary, list->name, list->usage);
    if (list->description != NULL) {
        printf("\n%s\n", list->description);
    }
    printf("\n%ss:\n", list->word);
    for (const struct weft_verb *verb = list->verbs; verb->name != NULL; verb++) {
        printf("  %-*s  %s\n", width, verb->name, verb->summary);
    }
    printf("\n%s\n", list->notes);
}

static void print_unknown(const struct weft_verb_list *list, const char *word)
{
    const char *names[VERBS_MAX + 1] = {NULL};
    for (size_t i = 0; i < VERBS_MAX && list->verbs[i].name != NULL; i++) {
        names[i] = list->verbs[i].name;
    }
    const char *closest = weft_options_closest(word, names);
    fprintf(stderr, "%s: unknown %s \"%.80s\"%s%s%s\n", list->name, list->word, word,
            closest != NULL ? "; did you mean " : "", closest != NULL ? closest : "",
            closest != NULL ? "?" : "");
}

int weft_verbs_run(const struct weft_verb_list *list, int argc, char **argv)
{
    const char *word = argc >= 2 ? argv[1] : "";
    for (const struct weft_verb *verb = list->verbs; verb->name != NULL; verb++) {
        if (strcmp(word, verb->name) == 0) {
            return verb->run(argc - 1, argv + 1);
        }
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_help(list);
        return WEFT_EXIT_OK;
    }
    if (word[0] == '\0') {
        fprintf(stderr, "%s: a %s is missing\n", list->name, list->word);
    } else {
        print_unknown(list, word);
    }
    fprintf(stderr, "`%s --help` lists the %ss\n", list->name, list->word);
    return WEFT_EXIT_USAGE;
}
