#include "twin.h"

static long twin(long ops)
{
	long bytes = 2 * MIB;
	map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);

	for (long done = 0; done < ops; done++) {
		pid_t pid = fork();

		child_of(pid);
	}
	return ops;
}
