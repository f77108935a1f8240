/* The BPF objects of bpf/, embedded in the binary; bpf/embed.sh generates the definitions. Only
 * in builds with BPF (WEFT_HAVE_BPF). */
#ifndef WEFT_LAB_BPF_OBJECTS_H
#define WEFT_LAB_BPF_OBJECTS_H

#include <stddef.h>

extern const unsigned char weft_bpf_aggregate[];
extern const size_t weft_bpf_aggregate_bytes;
extern const unsigned char weft_bpf_dctcp[];
extern const size_t weft_bpf_dctcp_bytes;
extern const unsigned char weft_bpf_link[];
extern const size_t weft_bpf_link_bytes;

#endif
