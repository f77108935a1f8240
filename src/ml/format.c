#include "ml/format.h"

#include "ml/adult.h"
#include "ml/docword.h"
#include "ml/libsvm.h"
#include "ml/movielens.h"
#include "ml/tsv.h"

#include <string.h>

const struct weft_ml_format weft_ml_formats[] = {
    {
        .name = "adult",
        .help = "UCI Adult CSV; one-hot and crossed features hashed to 2^20",
        .shipped = "adult.data",
        .parse = weft_ml_adult_parse,
    },
    {
        .name = "adult3",
        .help = "the same with crosses of three columns: 15 times the features",
        .shipped = "adult.data",
        .parse = weft_ml_adult3_parse,
    },
    {
        .name = "libsvm",
        .help = "lines of `label index:value ...`, labels 0/1 or -1/+1",
        .has_scale = true,
        .parse = weft_ml_libsvm_parse,
    },
    {
        .name = "movielens",
        .help = "MovieLens ratings.csv; click = a rating of at least 4",
        .has_ratings = true,
        .parse = weft_ml_movielens_parse,
    },
    {
        .name = "tsv",
        .help = "label 0 or 1 and categories, separated by tabs",
        .parse = weft_ml_tsv_parse,
    },
    {
        .name = "criteo",
        .help = "label, 13 integers and 26 categories, separated by tabs",
        .parse = weft_ml_criteo_parse,
    },
    {
        .name = "docword",
        .help = "UCI bag of words: three lines of sizes, then `document word count`",
        .has_counts = true,
        .parse = weft_ml_docword_parse,
    },
    {.name = NULL},
};

weft_status weft_ml_format_find(const char *name, struct weft_error *error,
                                const struct weft_ml_format **format_p)
{
    char known[128] = "";
    for (const struct weft_ml_format *format = weft_ml_formats; format->name != NULL; format++) {
        if (strcmp(name, format->name) == 0) {
            *format_p = format;
            return WEFT_OK;
        }
        strncat(known, known[0] != '\0' ? ", " : "", sizeof(known) - strlen(known) - 1);
        strncat(known, format->name, sizeof(known) - strlen(known) - 1);
    }
    return weft_fail(error, WEFT_NOTFOUND, "unknown data format \"%s\"; known: %s",
                     weft_ml_quote(name, strlen(name)).text, known);
}
