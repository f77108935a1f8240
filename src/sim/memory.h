/* Memory of a process that simulates.
 *
 * Endpoints, shards and aggregators allocate the memory of their limits when they are created, with
 * calloc, and rely on pages that nobody writes costing nothing. That is so with fresh pages of the
 * kernel. After the first large free glibc serves such sizes from its heap (its threshold for mmap
 * grows to 32 MB), and calloc then clears all of it: half of the time of a swarm with aggregators,
 * and ten times its memory. The allocator of AddressSanitizer has no such threshold. */
#ifndef WEFT_SIM_MEMORY_H
#define WEFT_SIM_MEMORY_H

/* Call at the start of the process.   Thread: none other exists. */
void weft_sim_memory_init(void);

#endif
