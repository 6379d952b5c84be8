/* Two ranks that only pass a message back and forth: fully bound by communication.
 *
 *     pingpong ROUNDS
 */
#include <mpi.h>
#include <stdlib.h>

volatile long steps_done;

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long rounds = argc > 1 ? atol(argv[1]) : 1000, word = 0;
    for (long round = 0; round < rounds; round++) {
        MPI_Request request;
        for (int turn = 0; turn < 2; turn++) {
            if (turn == rank)
                MPI_Isend(&word, 1, MPI_LONG, !rank, 0, MPI_COMM_WORLD, &request);
            else
                MPI_Irecv(&word, 1, MPI_LONG, !rank, 0, MPI_COMM_WORLD, &request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        steps_done++;
    }
    MPI_Finalize();
    return 0;
}
