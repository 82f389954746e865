#include "twin.h"

static long twin(long ops)
{
	long bytes = 128 * MIB;

	for (long done = 0; done < ops; done++) {
		void *mem = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		unmap(mem, bytes);
	}
	return ops;
}
