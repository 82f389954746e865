#include "twin.h"

static long twin(long ops)
{
	long bytes = 128 * MIB, done = 0;

	while (done < ops) {
		void *mem = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		for (long i = 0; i < bytes / PAGE; i++, done++)
			touch(mem, i);
		munmap(mem, bytes);
	}
	return done;
}
