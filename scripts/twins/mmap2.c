#include "twin.h"

static long twin(long ops)
{
	long bytes = 128 * MIB;
	int fd = file_of(bytes);

	for (long done = 0; done < ops; done++) {
		void *mem = map(bytes, MAP_PRIVATE, fd);

		unmap(mem, bytes);
	}
	return ops;
}
