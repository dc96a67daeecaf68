// SPDX-License-Identifier: GPL-2.0
/*
 * Runs a program with hash placement, and prints where its pages lie just
 * before each of its processes ends:
 *
 *   dump_frames PROGRAM [ARGUMENT...] 3>FILE
 *
 * The dump goes to descriptor 3.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#define PR_HASH_PLACEMENT	0x48504c43
#define OUTPUT			3
#define FRAMES			"/sys/kernel/debug/hash_placement/frames"

static void fail(const char *what)
{
	printf("dump_frames: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* True if the address space of @pid is shared with a process that goes on. */
static int is_thread(pid_t pid)
{
	char path[64], line[256];
	int leader = -1, threads = 1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "r");
	while (file && fgets(line, sizeof(line), file)) {
		sscanf(line, "Tgid: %d", &leader);
		sscanf(line, "Threads: %d", &threads);
	}
	if (file)
		fclose(file);
	return threads > 1;
}

static void dump(pid_t pid, FILE *out)
{
	FILE *list = fopen(FRAMES, "r+");
	static int header_printed;
	char *line = NULL;
	size_t size = 0;

	if (!list || is_thread(pid))
		goto end;
	fprintf(list, "%d\n", pid);
	/* A process without an address space has nothing to show. */
	if (fflush(list))
		goto end;
	rewind(list);
	while (getline(&line, &size, list) > 0) {
		int is_header = !strncmp(line, "pagewalk-frames", 15);

		if (!is_header || !header_printed)
			fputs(line, out);
		header_printed |= is_header;
	}
	fflush(out);
end:
	free(line);
	if (list)
		fclose(list);
}

int main(int argc, char **argv)
{
	const long options = PTRACE_O_TRACEEXIT | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK |
			     PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
	FILE *out = fdopen(OUTPUT, "w");
	int status, result = 1;
	pid_t first, pid;

	if (argc < 2 || !out) {
		printf("dump_frames PROGRAM [ARGUMENT...] 3>FILE\n");
		return 1;
	}
	fcntl(OUTPUT, F_SETFD, FD_CLOEXEC);
	first = fork();
	if (!first) {
		if (prctl(PR_HASH_PLACEMENT, 0, 1, 0, 0))
			fail("prctl");
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		execvp(argv[1], argv + 1);
		fail(argv[1]);
	}
	waitpid(first, &status, 0);
	if (ptrace(PTRACE_SETOPTIONS, first, 0, options))
		fail("ptrace");
	ptrace(PTRACE_CONT, first, 0, 0);
	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		int signal = 0;

		if (!WIFSTOPPED(status)) {
			if (pid == first)
				result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
			continue;
		}
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_EXIT << 8))
			dump(pid, out);
		else if (status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP &&
			 WSTOPSIG(status) != SIGSTOP)
			signal = WSTOPSIG(status);
		ptrace(PTRACE_CONT, pid, 0, signal);
	}
	return result;
}
