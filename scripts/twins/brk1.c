#include "twin.h"

/* Like the script, without brk: a mapping behind another one. */
static long twin(long ops)
{
	char *heap = map(2 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	long done;

	munmap(heap + PAGE, PAGE);
	touch(heap, 0);
	for (done = 0; done < ops; done += 2) {
		mmap(heap + PAGE, PAGE, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		munmap(heap + PAGE, PAGE);
	}
	return done;
}
