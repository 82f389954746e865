#include "twin.h"

static long twin(long ops)
{
	long bytes = 128 * MIB, done = 0;
	int fd = file_of(bytes);
	char *mem = map(bytes, MAP_SHARED, fd);

	while (done < ops)
		for (long i = 0; i < bytes / PAGE && done < ops; i++, done++) {
			touch(mem, i);
			madvise(mem + i * PAGE, PAGE, MADV_DONTNEED);
			look(mem, i);
		}
	return done;
}
