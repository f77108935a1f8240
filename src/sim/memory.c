#include "sim/memory.h"

#include <malloc.h>

/* Below the arrays of an endpoint of few peers. With 256 KB the test of the swarm gained little. */
enum { MMAP_BYTES = 32 << 10 };

void weft_sim_memory_init(void)
{
#ifdef M_MMAP_THRESHOLD
    (void)mallopt(M_MMAP_THRESHOLD, MMAP_BYTES); /* and the threshold no longer grows */
#endif
}
