/* Ask for a line of memory ahead of its use.
 *
 * Not __builtin_prefetch alone: gcc 12 takes a function whose only effect is a prefetch for one
 * without effects, and leaves out calls of it. The empty asm is an effect.
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
