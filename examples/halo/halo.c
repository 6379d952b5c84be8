/* Where does an MPI program wait? A grid is split between the ranks. In each step they exchange
 * the edges of their parts by non-blocking messages. Every message ends in MPI_Wait, which is
 * reached through several wrappers. One caller waits far longer than the others. To find it:
 *
 *     make -C examples
 *     mpirun -n 2 examples/halo/halo &
 *     ipath attach $(pgrep -n -x halo) -f MPI_Wait
 *
 * What you see: `exchange_corners` waits for a neighbor whose `refine_corners` has more work
 * (only rank 0 has corners to refine), while the other callers of MPI_Wait return at once.
 *
 *     halo [STEPS]        a step takes about 2 ms; the default of 5000 about 10 seconds */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDTH 256
#define HEIGHT 128
#define NOINLINE __attribute__((noinline))

enum { TAG_ROWS = 1, TAG_CORNERS = 2, TAG_FLUX = 3 };

static double grid[HEIGHT + 2][WIDTH];
static double next[HEIGHT + 2][WIDTH];
static double corners[64], their_corners[64];
static int rank, ranks;
static long completed, rows, steps_done;

/* The one place where the program completes a request. */
NOINLINE static void complete(MPI_Request *request)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
    completed++;
}

NOINLINE static void complete_both(MPI_Request *receive, MPI_Request *send)
{
    complete(receive);
    complete(send);
    rows++;
}

/* Sends and receives one row; a neighbor outside the grid is MPI_PROC_NULL. */
NOINLINE static void swap_row(double *mine, double *theirs, int neighbour, int tag)
{
    MPI_Request receive, send;
    MPI_Irecv(theirs, WIDTH, MPI_DOUBLE, neighbour, tag, MPI_COMM_WORLD, &receive);
    MPI_Isend(mine, WIDTH, MPI_DOUBLE, neighbour, tag, MPI_COMM_WORLD, &send);
    complete_both(&receive, &send);
}

static int above(void) { return rank == 0 ? MPI_PROC_NULL : rank - 1; }

static int below(void) { return rank == ranks - 1 ? MPI_PROC_NULL : rank + 1; }

NOINLINE static void exchange_rows(void)
{
    swap_row(grid[1], grid[0], above(), TAG_ROWS);
    swap_row(grid[HEIGHT], grid[HEIGHT + 1], below(), TAG_ROWS);
    steps_done++;
}

/* The cause of the waiting: an uneven share of the work. */
NOINLINE static void refine_corners(void)
{
    int rounds = rank == 0 ? 30000 : 30;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 64; i++)
            corners[i] = 0.5 * corners[i] + 0.5 * grid[1 + i][round % WIDTH];
}

/* The effect: here the other ranks wait. */
NOINLINE static void exchange_corners(void)
{
    int partner = rank ^ 1;
    if (partner >= ranks)
        partner = MPI_PROC_NULL;
    MPI_Request receive, send;
    MPI_Irecv(their_corners, 64, MPI_DOUBLE, partner, TAG_CORNERS, MPI_COMM_WORLD, &receive);
    MPI_Isend(corners, 64, MPI_DOUBLE, partner, TAG_CORNERS, MPI_COMM_WORLD, &send);
    complete(&receive);
    complete(&send);
}

NOINLINE static double smooth(void)
{
    double change = 0;
    for (int y = 1; y <= HEIGHT; y++)
        for (int x = 1; x < WIDTH - 1; x++) {
            next[y][x] = 0.25 * (grid[y - 1][x] + grid[y + 1][x] + grid[y][x - 1] + grid[y][x + 1]);
            change += (next[y][x] - grid[y][x]) * (next[y][x] - grid[y][x]);
        }
    for (int y = 1; y <= HEIGHT; y++)
        for (int x = 1; x < WIDTH - 1; x++)
            grid[y][x] = next[y][x];
    return change;
}

/* Passes a sum down the ranks, with a recursive call for each part. */
NOINLINE static double pass_flux(double own, int part)
{
    double theirs = 0;
    MPI_Request request;
    if (part == 0)
        return own;
    MPI_Irecv(&theirs, 1, MPI_DOUBLE, above(), TAG_FLUX, MPI_COMM_WORLD, &request);
    MPI_Send(&own, 1, MPI_DOUBLE, below(), TAG_FLUX, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    return 0.5 * pass_flux(theirs, part - 1) + own;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 5000;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int y = 0; y < HEIGHT + 2; y++)
        for (int x = 0; x < WIDTH; x++)
            grid[y][x] = (x * 31 + (y + rank * HEIGHT) * 17) % 101;

    double change = 0, flux = 0;
    for (int step = 0; step < steps; step++) {
        exchange_rows();
        change = smooth();
        refine_corners();
        exchange_corners();
        grid[1][1] += 1e-3 * their_corners[0];
        if (step % 10 == 0)
            flux = pass_flux(change, 3);
    }

    double mine[3] = {change, flux, (double)completed}, all[3] = {0, 0, 0};
    MPI_Reduce(mine, all, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks, %ld steps, %ld rows: change %.6e, flux %.6e, %.0f messages completed\n", ranks,
               steps_done, rows, all[0], all[1], all[2]);
    MPI_Finalize();
    return 0;
}
