#include "twin.h"

/* One operation in four drops its pages; the script draws lots for that. */
static long twin(long ops)
{
	long bytes = MIB;
	void *mem = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	for (long done = 0; done < ops; done++) {
		for (long i = 0; i < bytes / PAGE; i++)
			touch(mem, i);
		for (long i = 0; i < bytes / PAGE; i++)
			look(mem, i);
		if (done % 4 == 0) {
			madvise(mem, bytes, MADV_DONTNEED);
		} else {
			unmap(mem, bytes);
			mem = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		}
	}
	return ops;
}
