/* Prefetch a cache line.
 *
 * __builtin_prefetch alone is not enough: gcc 12 treats a function whose only effect is a prefetch
 * as free of side effects and removes calls of it. The empty asm counts as a side effect.
 */
#ifndef WEFT_BASE_PREFETCH_H
#define WEFT_BASE_PREFETCH_H

static inline void weft_prefetch(const void *at)
{
    __builtin_prefetch(at);
    __asm__ volatile("");
}

static inline void weft_prefetch_to_write(const void *at)
{
    __builtin_prefetch(at, 1);
    __asm__ volatile("");
}

#endif
