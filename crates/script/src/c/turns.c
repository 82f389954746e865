
/* ---- turns: one round of one task at any time, between marks ---- */

#include <sys/resource.h>

/* An instruction without an effect, which an emulator recognises. */
#define MARK(kind)	__asm__ volatile(".byte 0x0f, 0x1f, 0x80, " #kind \
					 ", 0x53, 0x4d, 0x4d" ::: "memory")
#define MAX_ROWS	65536L
/* ns without a further task: if there is one for each CPU, and if there are fewer */
#define SETTLED		400000000L
#define SETTLED_WITH_FEW	5000000000L
#define PATIENCE	60000000000L	/* ns of another's turn */

static volatile struct {
	long come, members, wanted, turn, done, failed, rows, sleeps;
	int ops[MAX_ROWS];
} *turns;

__attribute__((constructor)) static void make_turns(void)
{
	turns = mmap(NULL, sizeof(*turns), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (turns == MAP_FAILED)
		err(1, "mmap");
}

/* Returns the number of this task, when all have come. */
static long come(void)
{
	long number = __atomic_fetch_add(&turns->come, 1, __ATOMIC_ACQ_REL);

	if (number == 0) {
		long seen = 0, since = now();
		long cpus = sysconf(_SC_NPROCESSORS_ONLN);

		while (now() - since <
		       (seen < cpus ? SETTLED_WITH_FEW : SETTLED)) {
			if (turns->come != seen) {
				seen = turns->come;
				since = now();
			}
			usleep(50000);
		}
		MARK(1);
		turns->members = turns->come;
	}
	while (!turns->members)
		usleep(50000);
	return number;
}

/* Waits in user mode. */
static int has_turn(long number)
{
	long seen = -1, since = now();

	while (number < turns->members && !turns->failed) {
		for (int i = 0; i < 1 << 14; i++) {
			if (turns->turn % turns->members == number)
				return 1;
			__builtin_ia32_pause();
		}
		if (turns->turn != seen) {
			seen = turns->turn;
			since = now();
		}
		if (now() - since > PATIENCE)
			break;
	}
	turns->failed = 1;
	return 0;
}

/* Returns how often this thread has slept. */
static long sleeps(void)
{
	struct rusage usage;

	getrusage(RUSAGE_THREAD, &usage);
	return usage.ru_nvcsw;
}

/* Returns how many rounds count, if one has so many operations. */
static long wanted(long ops)
{
	long by_ops = 400 / (ops > 0 ? ops : 1);
	long rounds = ROUNDS ? ROUNDS : by_ops < 4 ? 4 : by_ops > 50 ? 50 : by_ops;
	long most = MAX_ROWS / turns->members;

	return rounds < most ? rounds : most;
}

/* The edge between two rounds of a task. Returns whether there is another. */
static int turn(void)
{
	static __thread struct {
		int is_in, in_round;
		long number, rounds, before, slept;
	} own;
	long ops;

	if (own.in_round)
		MARK(3);
	ops = shared->cpu[cpu].ops;
	if (own.in_round) {
		if (sleeps() > own.slept)
			__atomic_fetch_add(&turns->sleeps, 1, __ATOMIC_ACQ_REL);
		turns->ops[__atomic_fetch_add(&turns->rows, 1,
					      __ATOMIC_ACQ_REL)] = ops - own.before;
	}
	if (!own.is_in) {
		own.is_in = 1;
		own.number = come();
	} else {
		own.rounds++;
		if (!turns->wanted)
			turns->wanted = wanted(ops - own.before);
		__atomic_fetch_add(&turns->turn, 1, __ATOMIC_ACQ_REL);
	}
	own.before = ops;
	if (turns->wanted && own.rounds >= 3 * turns->wanted) {
		__atomic_fetch_add(&turns->done, 1, __ATOMIC_ACQ_REL);
		while (turns->done < turns->members && !turns->failed)
			usleep(50000);
		own.is_in = own.in_round = 0;
		own.rounds = 0;
		return 0;
	}
	if (!has_turn(own.number))
		return 0;
	own.in_round = turns->wanted && own.rounds >= 2 * turns->wanted;
	own.slept = sleeps();
	if (own.in_round)
		MARK(2);
	return 1;
}

static int print_turns(void)
{
	while (running) {
		int status;

		if (waitpid(-1, &status, 0) > 0 && --running >= 0 && status)
			errx(1, "a process failed, status %#x", status);
	}
	if (turns->failed)
		errx(1, "its programs wait for one another within a round");
	if (!turns->members || turns->rows != turns->members * turns->wanted)
		errx(1, "%ld rounds of %ld", turns->rows,
		     turns->members * turns->wanted);
	printf("{\"members\":%ld,\"sleeps\":%ld,\"ops\":[", turns->members,
	       turns->sleeps);
	for (long i = 0; i < turns->rows; i++)
		printf(i ? ",%d" : "%d", turns->ops[i]);
	printf("]}\n");
	return 0;
}
