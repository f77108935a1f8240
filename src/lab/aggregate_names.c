#include "lab/aggregate.h"

const char *const weft_aggregate_verdict_names[WEFT_AGG_VERDICTS] = {
    [WEFT_AGG_MALFORMED] = "malformed",
    [WEFT_AGG_FOREIGN] = "foreign",
    [WEFT_AGG_EPOCH] = "epoch",
    [WEFT_AGG_STALE] = "stale",
    [WEFT_AGG_EARLY] = "early",
    [WEFT_AGG_SUMMED] = "summed",
    [WEFT_AGG_WAITING] = "waiting",
    [WEFT_AGG_COMPLETE] = "complete",
    [WEFT_AGG_RESULT] = "result",
    [WEFT_AGG_ADDED] = "rows_added",
    [WEFT_AGG_AGAIN] = "rows_again",
    [WEFT_AGG_PASSED] = "rows_passed",
    [WEFT_AGG_AHEAD] = "rows_ahead",
    [WEFT_AGG_REFUSED_EPOCH] = "rows_refused_epoch",
    [WEFT_AGG_REFUSED_FORM] = "rows_refused_form",
    [WEFT_AGG_REFUSED_CLOSED] = "rows_refused_closed",
    [WEFT_AGG_REFUSED_RANGE] = "rows_refused_range",
};
