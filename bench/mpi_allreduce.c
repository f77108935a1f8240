/* all_reduce of floats by MPI, timed as by bench/torch_allreduce.py, which compiles this program
 * with mpicc and starts it with mpirun (backend "openmpi").
 *
 *     mpirun -np 2 mpi_allreduce SIZE:ROUNDS [SIZE:ROUNDS ...]
 *
 * SIZE is in bytes. ROUNDS are measured, after one warm-up round. Rank 0 prints {"SIZE": [seconds,
 * ...]}: for each round the time of the slowest rank. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double round_s(float *vector, int count, int ranks)
{
    for (int i = 0; i < count; i++) {
        vector[i] = 1.0f;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double took = -MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, vector, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    took += MPI_Wtime();
    if (vector[count - 1] != (float)ranks) {
        fprintf(stderr, "the sum is wrong\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return took;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++) {
        char *colon;
        long bytes = strtol(argv[i], &colon, 10);
        long rounds = *colon == ':' ? strtol(colon + 1, NULL, 10) : 0;
        float *vector = bytes >= 4 ? malloc((size_t)bytes) : NULL;
        if (vector == NULL || rounds < 1) {
            fprintf(stderr, "mpi_allreduce: %s is not SIZE:ROUNDS\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        for (long k = 0; k <= rounds; k++) { /* the first is not counted */
            double took = round_s(vector, (int)(bytes / 4), ranks);
            if (rank == 0 && k == 0) {
                printf("%s\"%ld\": [", i > 1 ? "], " : "{", bytes);
            } else if (rank == 0) {
                printf("%s%.9f", k > 1 ? ", " : "", took);
            }
        }
        free(vector);
    }
    if (rank == 0) {
        printf("]}\n");
    }
    return MPI_Finalize();
}
