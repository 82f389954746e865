/* What all twins have: a C program for each script, that makes the same calls for the same operations. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
#define MIB (1L << 20)

/* Runs `ops` operations or a few more. Returns their number. */
static long twin(long ops);

/* The next address: below those that the kernel chooses, so that faults there are those of the twin's memory. */
static char *next_at = (char *)(1L << 44);

static inline void *map(long bytes, int flags, int fd)
{
	void *at = mmap(next_at, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (at == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	next_at += bytes;
	return at;
}

/* The next mapping uses the page tables again that this one had, if it was the last. */
static inline void unmap(void *at, long bytes)
{
	if (munmap(at, bytes)) {
		perror("munmap");
		exit(1);
	}
	if ((char *)at + bytes == next_at)
		next_at = at;
}

static inline int file_of(long bytes)
{
	int fd = memfd_create("twin", 0);

	if (fd < 0 || ftruncate(fd, bytes)) {
		perror("memfd_create");
		exit(1);
	}
	return fd;
}

static inline void touch(void *at, long page)
{
	*(volatile uint64_t *)((char *)at + page * PAGE) = 1;
}

static inline void look(void *at, long page)
{
	(void)*(volatile uint64_t *)((char *)at + page * PAGE);
}

/* Waits for a child, which only exits. */
static inline void child_of(pid_t pid)
{
	if (pid == 0)
		_exit(0);
	if (pid < 0 || waitpid(pid, NULL, 0) != pid) {
		perror("fork");
		exit(1);
	}
}

/* Prints the operations, and the faults of this process and its children. */
int main(int argc, char **argv)
{
	struct rusage own, children;
	long ops = twin(argc > 1 ? atol(argv[1]) : 1000);

	getrusage(RUSAGE_SELF, &own);
	getrusage(RUSAGE_CHILDREN, &children);
	printf("%ld %ld\n", ops, own.ru_minflt + children.ru_minflt);
	return 0;
}
