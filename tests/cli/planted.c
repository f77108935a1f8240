/* Writes a synthetic set with a known optimum to standard output: planted ratings|clicks SEED.
 * See tests/unit/planted.h. */
#include "../unit/planted.h"

#include <string.h>

int main(int argc, char **argv)
{
    struct planted planted;
    if (argc != 3 ||
        !planted_make(strtoull(argv[2], NULL, 10), strcmp(argv[1], "clicks") == 0, &planted)) {
        fprintf(stderr, "usage: planted ratings|clicks SEED\n");
        return 2;
    }
    bool good = fwrite(planted.text, 1, planted.bytes, stdout) == planted.bytes;
    good = fflush(stdout) == 0 && good;
    free(planted.text);
    free(planted.margins);
    return good ? 0 : 1;
}
