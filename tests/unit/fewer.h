/* Numbers of random cases. AddressSanitizer makes a program several times slower, and its build runs
 * the same seeds as the release build: a quarter of them. */
#ifndef WEFT_TESTS_FEWER_H
#define WEFT_TESTS_FEWER_H

#if defined(__SANITIZE_ADDRESS__)
#define FEWER(cases) (((cases) + 3) / 4)
#else
#define FEWER(cases) (cases)
#endif

#endif
