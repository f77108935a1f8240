/* The UCI Adult table (Becker and Kohavi 1996) as hashed sparse features.
 *
 * A line holds 15 fields separated by commas, blanks around a field ignored:
 *
 *     age, type_employer, fnlwgt, education, education_num, marital, occupation, relationship,
 *     race, sex, capital_gain, capital_loss, hr_per_week, country, income
 *
 * Line 1 may be that header (or UCI's own spelling of the names, or the first line of UCI's
 * adult.test, "|1x3 Cross validator"). The income is "<=50K" (label 0) or ">50K" (label 1), with or
 * without the full stop that adult.test has. "?" (unknown) is a category like any other.
 *
 * From text to features. Every used column gives one text "name=value" with the names of the list
 * above; a number's value is its bucket, that is how many of the column's edges (adult.c) are at
 * most the number. Two columns are checked but not used: fnlwgt, a sampling weight and no property
 * of the person, and education_num, which says the same as education. Every pair of used columns,
 * in file order, gives a text "name=value&name=value". A text's id is XXH64(text, seed 0)
 * mod 2^20; its value is 1; texts of one row that share an id add up. So a row has 12 + 66 features
 * before the bias.
 *
 * The format adult3 has every three of the used columns as well, "name=value&name=value&name=value":
 * 220 more features a row, and fifteen times as many in all. It is the same table, the same rows
 * and the same split; what it is for is in docs/MODELS.md section 5.
 *
 * Not here: learned vocabularies, min-max scaling, anything that would need a second pass.
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
