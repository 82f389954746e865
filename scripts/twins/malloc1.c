#include "twin.h"

static long twin(long ops)
{
	long bytes = 128 * MIB;

	for (long done = 0; done < ops; done++) {
		void *mem = map(bytes + PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);

		touch(mem, 0);
		unmap(mem, bytes + PAGE);
	}
	return ops;
}
