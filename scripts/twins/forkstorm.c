#include "twin.h"

static long twin(long ops)
{
	long bytes = 64 * PAGE;
	void *mem = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);

	for (long done = 0; done < ops; done++) {
		pid_t pid = fork();

		for (long i = 0; pid == 0 && i < 8; i++)
			touch(mem, i);
		child_of(pid);
	}
	return ops;
}
