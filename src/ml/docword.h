/* Bags of words in UCI's format (docword.NAME.txt): the count of each word in each document.
 *
 *     line 1  = documents     line 2 = words in the vocabulary     line 3 = lines that follow
 *     others  = document " " word " " count
 *     all of them digits; document and word from 1 and below 2^32, count from 1 to 2^24
 *
 * The lines of a document are adjacent, and documents are in ascending order. The lines of a
 * document become one row: a feature for each word, whose id is the word's number, and whose value
 * is the count. A row has no label. The split rule of dataset.h is applied to the digits of its
 * document number.
 *
 * Source: Newman 2008, Bag of Words, UCI Machine Learning Repository.
 */
#ifndef WEFT_ML_DOCWORD_H
#define WEFT_ML_DOCWORD_H

#include "ml/format.h"

enum { WEFT_ML_DOCWORD_COUNT_MAX = 1 << 24 }; /* float32 counts exactly up to this */

/* See weft_ml_parse_fn. A row is one line, with row->document; line 3 sets row->lines_announced. */
weft_status weft_ml_docword_parse(const char *text, size_t bytes, uint64_t number,
                                  struct weft_ml_row *row, struct weft_error *error,
                                  bool *is_row_p);

#endif
