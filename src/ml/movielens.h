/* The MovieLens ratings table (Harper and Konstan 2015, ratings.csv), one rating per line:
 *
 *     line    = userId "," movieId "," rating "," timestamp
 *     userId, movieId = digits, below 2^32
 *     rating  = decimal, 0 to 5             timestamp = digits, seconds since 1970
 *
 * Line 1 may be the header `userId,movieId,rating,timestamp`. There are no blanks and no quotes. A
 * row has two features of value 1: the user, whose id is the userId, and the movie, whose id is
 * 2^32 + movieId; so ids need no hashing, and an id shows whether its row belongs to a user or a
 * movie. The target is the rating; the label (the click) is 1 for a rating of at least 4. The
 * timestamp is checked and not used: the split is by line, not by time.
 *
 * Not here: movies.csv and tags.csv. Titles, genres and tags would be features for new movies; the
 * models of docs/MODELS.md do not use them.
 */
#ifndef WEFT_ML_MOVIELENS_H
#define WEFT_ML_MOVIELENS_H

#include "ml/format.h"

#define WEFT_ML_MOVIELENS_MOVIES    (UINT64_C(1) << 32) /* the id of movie 0 */
#define WEFT_ML_MOVIELENS_CLICK_MIN 4.0F

/* See weft_ml_parse_fn. */
weft_status weft_ml_movielens_parse(const char *text, size_t bytes, uint64_t number,
                                    struct weft_ml_row *row, struct weft_error *error,
                                    bool *is_row_p);

#endif
