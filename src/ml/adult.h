/* The UCI Adult table (Becker and Kohavi 1996) as hashed sparse features.
 *
 * A line has 15 fields separated by commas; blanks around a field are ignored:
 *
 *     age, type_employer, fnlwgt, education, education_num, marital, occupation, relationship,
 *     race, sex, capital_gain, capital_loss, hr_per_week, country, income
 *
 * Line 1 may be that header (or UCI's own spelling of the names, or the first line of UCI's
 * adult.test, "|1x3 Cross validator"). The income is "<=50K" (label 0) or ">50K" (label 1), with or
 * without the full stop of adult.test. "?" (unknown) is treated as a normal category.
 *
 * Features: every used column gives one text "name=value" with the names of the list above. The
 * value of a number is its bucket: the count of the column's edges (adult.c) that are at most the
 * number. Two columns are checked but not used: fnlwgt, which is a sampling weight and not a
 * property of the person, and education_num, which is equivalent to education. Every pair of used
 * columns, in file order, gives a text "name=value&name=value". A text's id is XXH64(text, seed 0)
 * mod 2^20; its value is 1; the values of texts of one row with the same id are added. So a row has
 * 12 + 66 features before the bias.
 *
 * The format adult3 also has every triple of used columns, "name=value&name=value&name=value": 220
 * more features per row, and fifteen times as many in total. Table, rows and split are the same;
 * docs/MODELS.md section 5 describes its use.
 *
 * Not here: learned vocabularies, min-max scaling, anything that needs a second pass.
 * docs/MODELS.md repeats this with a worked example.
 */
#ifndef WEFT_ML_ADULT_H
#define WEFT_ML_ADULT_H

#include "ml/format.h"

enum { WEFT_ML_ADULT_HASH_BITS = 20 };

/* See weft_ml_parse_fn. */
weft_status weft_ml_adult_parse(const char *text, size_t bytes, uint64_t number,
                                struct weft_ml_row *row, struct weft_error *error, bool *is_row_p);

/* The same with triples. */
weft_status weft_ml_adult3_parse(const char *text, size_t bytes, uint64_t number,
                                 struct weft_ml_row *row, struct weft_error *error, bool *is_row_p);

#endif
