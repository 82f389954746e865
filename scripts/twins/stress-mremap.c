#include "twin.h"

static long twin(long ops)
{
	long bytes = 64 << 10, least = PAGE;

	for (long done = 0; done < ops; done++) {
		void *mem = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);
		long now = bytes;

		for (; now / 2 >= least; now /= 2) {
			mem = mremap(mem, now, now / 2, MREMAP_MAYMOVE);
			touch(mem, 0);
		}
		for (; now < bytes; now *= 2) {
			mem = mremap(mem, now, now * 2, MREMAP_MAYMOVE);
			for (long i = now / PAGE; i < now * 2 / PAGE; i++)
				touch(mem, i);
		}
		for (long i = 0; i < bytes / PAGE; i++)
			look(mem, i);
		unmap(mem, bytes);
	}
	return ops;
}
