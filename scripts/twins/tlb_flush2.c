#include "twin.h"

static long twin(long ops)
{
	long bytes = MIB, done = 0;
	char *mem = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	while (done < ops)
		for (long i = 0; i < bytes / PAGE && done < ops; i++, done++) {
			touch(mem, i);
			madvise(mem + i * PAGE, PAGE, MADV_DONTNEED);
			look(mem, i);
		}
	return done;
}
