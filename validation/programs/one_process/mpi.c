/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * MPI of one process, see mpich/mpi.h. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mpich/mpi.h"
#include "pagewalk.h"

int MPI_Init(int *count, char ***words) {
    (void)count, (void)words;
    return 0;
}

int MPI_Comm_rank(MPI_Comm world, int *rank) {
    (void)world;
    *rank = 0;
    return 0;
}

int MPI_Comm_size(MPI_Comm world, int *size) {
    (void)world;
    *size = 1;
    return 0;
}

int MPI_Abort(MPI_Comm world, int status) {
    (void)world;
    exit(status);
}

int MPI_Finalize(void) { return 0; }

int MPI_Barrier(MPI_Comm world) {
    static int barriers;
    (void)world;
    if (barriers++)
        pagewalk_roi_end();
    else
        pagewalk_roi_begin();
    return 0;
}

double MPI_Wtime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

/* A process alone has no partner: these two are never called. */
int MPI_Sendrecv(const void *from, int sent, MPI_Datatype type, int to_whom, int tag,
                 void *to, int most, MPI_Datatype type_too, int from_whom, int tag_too,
                 MPI_Comm world, MPI_Status *status) {
    (void)from, (void)sent, (void)type, (void)to_whom, (void)tag, (void)to, (void)most;
    (void)type_too, (void)from_whom, (void)tag_too, (void)world, (void)status;
    abort();
}

int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count) {
    (void)status, (void)type, (void)count;
    abort();
}

int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op how,
                  MPI_Comm world) {
    (void)how, (void)world;
    memcpy(to, from, (size_t)count * (size_t)type);
    return 0;
}
