#include "twin.h"

/* One thread; one operation in four with MADV_FREE, without its time to compute. */
static long twin(long ops)
{
	long extent = 64 << 10, extents = 64;
	char *arena = map(extent * extents, MAP_PRIVATE | MAP_ANONYMOUS, -1);

	for (long i = 0; i < extent * extents / PAGE; i++)
		touch(arena, i);
	for (long done = 0; done < ops; done++) {
		char *mine = arena + done * 7 % extents * extent;

		madvise(mine, extent, done % 4 ? MADV_DONTNEED : MADV_FREE);
		for (long i = 0; i < extent / PAGE; i++)
			touch(mine, i);
	}
	return ops;
}
