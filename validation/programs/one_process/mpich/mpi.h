/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * As much of MPI as gups_vanilla.c calls, for one process that never sends. The first
 * of its barriers begins the region of interest, the second ends it. */
#ifndef ONE_PROCESS_MPI_H
#define ONE_PROCESS_MPI_H

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pagewalk.h"

typedef int MPI_Comm;
typedef int MPI_Status;
/* The size of a datum. */
typedef size_t MPI_Datatype;
#define MPI_COMM_WORLD 0
#define MPI_INT sizeof(int)
#define MPI_DOUBLE sizeof(double)
#define MPI_UNSIGNED_LONG sizeof(unsigned long)
#define MPI_LONG_LONG_INT sizeof(long long)
#define MPI_SUM 0
#define MPI_MAX 1

/* What a function of a library may read and write later: the compiler keeps it in memory. */
static inline void one_process_known(void *variable) {
    __asm__ __volatile__("" : : "g"(variable) : "memory");
}
static inline void one_process_is(int value, int *variable) {
    *variable = value;
    one_process_known(variable);
}
#define MPI_Init(count, words) (one_process_known(count), one_process_known(words))
#define MPI_Comm_rank(world, rank) one_process_is(0, rank)
#define MPI_Comm_size(world, size) one_process_is(1, size)
#define MPI_Abort(world, status) exit(status)
#define MPI_Finalize() ((void)0)
#define MPI_Sendrecv(from, sent, type, to_whom, tag, to, most, type_too, from_whom, tag_too, world, status) \
    (one_process_known(from), one_process_known(to), one_process_known(status))
#define MPI_Get_count(status, datatype, count) one_process_is(0, count)
#define MPI_Allreduce(from, to, count, datatype, how, world) \
    memcpy(to, from, (count) * (datatype))

static inline double MPI_Wtime(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static inline void one_process_barrier(void) {
    static int barriers;
    if (barriers++)
        pagewalk_roi_end();
    else
        pagewalk_roi_begin();
}
#define MPI_Barrier(world) one_process_barrier()

#endif
