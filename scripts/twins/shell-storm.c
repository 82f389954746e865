#include "twin.h"

/* The copy of the shell forks the command. As with a process of a script, the command
 * is a fork that drops the memory of its parent. */
static long twin(long ops)
{
	long shell = 1536 << 10, image = MIB;
	void *mem = map(shell, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1);

	for (long done = 0; done < ops; done++) {
		pid_t pid = fork();

		if (pid == 0) {
			for (long i = 0; i < 24; i++)
				touch(mem, i);
			pid_t command = fork();

			if (command == 0) {
				unmap(mem, shell);

				void *text = map(image, MAP_PRIVATE | MAP_ANONYMOUS, -1);

				for (long i = 0; i < 64; i++)
					touch(text, i);
			}
			child_of(command);
		}
		child_of(pid);
	}
	return ops;
}
