#include "twin.h"

static long twin(long ops)
{
	long bytes = 8 * MIB, done = 0;
	int fd = file_of(bytes);

	while (done < ops) {
		void *mem = map(bytes, MAP_PRIVATE, fd);

		for (long i = 0; i < bytes / PAGE && done < ops; i++, done++)
			touch(mem, i);
		unmap(mem, bytes);
	}
	return done;
}
