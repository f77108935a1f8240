#include "cli/box_metrics.h"

#include "lab/aggregate.h"

#include <stdio.h>

void weft_box_families(struct weft_exposition *text, const struct weft_box_figures *figures)
{
    const struct weft_aggregate_counts *counts = &figures->counts;
    char label[48];
    weft_exposition_family(text, "weft_box_packets_total", "counter",
                           "Packets received, by what became of them.");
    for (int v = 0; v < WEFT_AGG_VERDICTS; v++) {
        snprintf(label, sizeof(label), "verdict=\"%s\"", weft_aggregate_verdict_names[v]);
        weft_exposition_u64(text, "weft_box_packets_total", label, counts->box.packets[v]);
    }
    weft_exposition_one(text, "weft_box_values_total", "counter",
                        "Values added to a sum, or starting one.", counts->box.values);
    weft_exposition_one(text, "weft_box_rounds_void_total", "counter",
                        "Rounds whose sum is not valid: members sum these values in another way.",
                        counts->box.voided);
    weft_exposition_one(text, "weft_box_members_moved_total", "counter",
                        "Times that packets of a member began to come from another address in the "
                        "same epoch: two members have one number.",
                        counts->moved);
    weft_exposition_one(text, "weft_box_replies_unnoted_total", "counter",
                        "Replies sent only to the sender of the packet, even complete sums, because "
                        "a driver has no XDP metadata.",
                        counts->unnoted);
    weft_exposition_one(text, "weft_box_members", "gauge",
                        "Members from which packets were received.", figures->members);
    weft_exposition_one(text, "weft_box_epoch", "gauge", "The epoch.", figures->epoch);
}
