/* Numbers of random cases. AddressSanitizer makes a program several times slower, so its build runs
 * a quarter of the seeds of the release build. */
#ifndef WEFT_TESTS_FEWER_H
#define WEFT_TESTS_FEWER_H

#if defined(__SANITIZE_ADDRESS__)
#define FEWER(cases) (((cases) + 3) / 4)
#else
#define FEWER(cases) (cases)
#endif

#endif
