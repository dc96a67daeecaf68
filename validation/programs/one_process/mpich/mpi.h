/* SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * As much of MPI as gups_vanilla.c calls, for one process that never sends (mpi.c).
 * The functions are a library's, of which the compiler sees no more than this. */
#ifndef ONE_PROCESS_MPI_H
#define ONE_PROCESS_MPI_H

typedef int MPI_Comm;
/* The size of a datum. */
typedef int MPI_Datatype;
typedef int MPI_Op;
typedef struct {
    int count_lo, count_hi_and_cancelled, MPI_SOURCE, MPI_TAG, MPI_ERROR;
} MPI_Status;
#define MPI_COMM_WORLD ((MPI_Comm)1)
#define MPI_INT ((MPI_Datatype)4)
#define MPI_DOUBLE ((MPI_Datatype)8)
#define MPI_UNSIGNED_LONG ((MPI_Datatype)8)
#define MPI_LONG_LONG_INT ((MPI_Datatype)8)
#define MPI_MAX ((MPI_Op)1)
#define MPI_SUM ((MPI_Op)2)

int MPI_Init(int *count, char ***words);
int MPI_Comm_rank(MPI_Comm world, int *rank);
int MPI_Comm_size(MPI_Comm world, int *size);
int MPI_Abort(MPI_Comm world, int status);
int MPI_Finalize(void);
/* The first begins the region of interest, the second ends it. */
int MPI_Barrier(MPI_Comm world);
double MPI_Wtime(void);
int MPI_Sendrecv(const void *from, int sent, MPI_Datatype type, int to_whom, int tag,
                 void *to, int most, MPI_Datatype type_too, int from_whom, int tag_too,
                 MPI_Comm world, MPI_Status *status);
int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count);
int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op how,
                  MPI_Comm world);

#endif
