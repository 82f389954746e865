//! The parts that each program has: what tasks share, `main`, and the measurement.

use super::helpers::{Facts, Helper};

/// Returns what all tasks share.
pub(super) fn shared(facts: Facts<'_>) -> String {
    let begin = if facts.needs.contains(&Helper::SinceStart) {
        "\tlong begin;\t\t/* the time of the start */\n"
    } else {
        ""
    };
    format!(
        "static volatile struct {{\n\
         \tint ready;\t\t/* tasks that wait for the start */\n\
         \tint go;\t\t\t/* the start */\n\
         \tint stop;\t\t/* the end of the run */\n{begin}\
         \tstruct {{\n\
         \t\tlong ops;\n\
         \t}} __attribute__((aligned(128))) cpu[MAX_CPUS];\n\
         }} *shared;\n\n\
         static int cpus;\t\t\t/* number of CPUs to use (-n) */\n\
         static int cpu_ids[MAX_CPUS];\t\t/* their numbers in the kernel */\n\
         static int running;\t\t\t/* processes that main has started */\n\
         static __thread int cpu = -1;\t\t/* where this task is, below cpus */\n"
    )
}

/// Functions that come before all others.
pub(super) const PIN: &str = "\
static long now(void)
{
	struct timespec ts;

	if (clock_gettime(CLOCK_MONOTONIC, &ts))
		err(1, \"clock_gettime\");
	return ts.tv_sec * 1000000000L + ts.tv_nsec;
}

static void pin(int to)
{
	cpu_set_t set[MAX_CPUS / CPU_SETSIZE];

	if (to == cpu)
		return;
	if (to < 0 || to >= cpus)
		errx(1, \"there is no CPU %d below -n %d\", to, cpus);
	CPU_ZERO_S(sizeof(set), set);
	CPU_SET_S(cpu_ids[to], sizeof(set), set);
	if (sched_setaffinity(0, sizeof(set), set))
		err(1, \"sched_setaffinity\");
	cpu = to;
}
";

/// Functions that tasks call.
pub(super) const TASKS: &str = "
/* Waits until all tasks are ready. */
static void start(void)
{
	__atomic_fetch_add(&shared->ready, 1, __ATOMIC_RELAXED);
	while (!shared->go)
		usleep(100);
}

static void count(long ops)
{
	__atomic_fetch_add(&shared->cpu[cpu].ops, ops, __ATOMIC_RELAXED);
}
";

/// Functions that main calls.
pub(super) const MEASURE: &str = "
static long total(void)
{
	long ops = 0;

	for (int i = 0; i < cpus; i++)
		ops += shared->cpu[i].ops;
	return ops;
}

/* Sleeps, and reaps processes that have ended. The others end with main. */
static void nap(double seconds)
{
	int status;

	usleep(seconds * 1e6);
	while (running && waitpid(-1, &status, WNOHANG) > 0) {
		if (status)
			errx(1, \"a process failed, status %#x\", status);
		running--;
	}
}

static int by_rate(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* Prints operations per second, each second or for a fifth of a shorter run. */
static void measure(double seconds)
{
	int rounds = seconds < 5 ? 5 : seconds;
	double rate[rounds];

	for (int i = 0; i < rounds; i++) {
		long ops = total(), begin = now();

		nap(seconds / rounds);
		rate[i] = (total() - ops) * 1e9 / (now() - begin);
		printf(\"%14.0f ops/s\\n\", rate[i]);
	}
	qsort(rate, rounds, sizeof(rate[0]), by_rate);
	printf(\"median %.0f ops/s, from %.0f to %.0f\\n\",
	       rate[rounds / 2], rate[0], rate[rounds - 1]);
}

static void find_cpus(void)
{
	cpu_set_t set[MAX_CPUS / CPU_SETSIZE];
	int found = 0;

	if (sched_getaffinity(0, sizeof(set), set))
		err(1, \"sched_getaffinity\");
	for (int i = 0; i < MAX_CPUS; i++)
		if (CPU_ISSET_S(i, sizeof(set), set))
			cpu_ids[found++] = i;
	if (cpus > found)
		errx(1, \"-n %d, but only %d CPUs are allowed\", cpus, found);
	if (!cpus)
		cpus = found;
}
";

/// Returns the usage.
pub(super) fn usage(random: bool) -> String {
    let (seed, line) = if random {
        (" [-s SEED]", "\t\t\"  -s SEED     of random numbers (1)\\n\"\n")
    } else {
        ("", "")
    };
    format!(
        "\nstatic void usage(void)\n{{\n\
         \tfprintf(stderr,\n\
         \t\t\"usage: repro [-n CPUS] [-t SECONDS] [-w SECONDS]{seed}\\n\"\n\
         \t\t\"  -n CPUS     to run on (all that are allowed)\\n\"\n\
         \t\t\"  -t SECONDS  to measure (10)\\n\"\n\
         \t\t\"  -w SECONDS  to warm up before (1)\\n\"\n{line}\
         \t\t);\n\
         \texit(2);\n}}\n"
    )
    .replace("\"\n\t\t);", "\");")
}

/// Returns `main`. `starter` starts the tasks, and begins the loop that waits for them.
pub(super) fn main(facts: Facts<'_>, starter: &str) -> String {
    let random = facts.needs.contains(&Helper::Random);
    let (option, case) = if random {
        ("n:t:w:s:", "\t\tcase 's':\n\t\t\trng = strtoul(optarg, NULL, 0);\n\t\t\tbreak;\n")
    } else {
        ("n:t:w:", "")
    };
    let seed = if random { "\trng = 1;\n" } else { "" };
    let begin =
        if facts.needs.contains(&Helper::SinceStart) { "\tshared->begin = now();\n" } else { "" };
    let places = if facts.needs.contains(&Helper::NextInOrder) { "\tfind_places();\n" } else { "" };
    let (placed, starter) = match starter.strip_prefix("\tplaced = 0;\n") {
        Some(rest) => (", placed = 0", rest),
        None => ("", starter),
    };
    format!(
        "\nint main(int argc, char **argv)\n{{\n\
         \tdouble seconds = 10, warmup = 1;\n\
         \tint option{placed};\n\n{seed}\
         \twhile ((option = getopt(argc, argv, \"{option}\")) != -1) {{\n\
         \t\tswitch (option) {{\n\
         \t\tcase 'n':\n\t\t\tcpus = atoi(optarg);\n\t\t\tbreak;\n\
         \t\tcase 't':\n\t\t\tseconds = atof(optarg);\n\t\t\tbreak;\n\
         \t\tcase 'w':\n\t\t\twarmup = atof(optarg);\n\t\t\tbreak;\n{case}\
         \t\tdefault:\n\t\t\tusage();\n\t\t}}\n\t}}\n\
         \tif (optind < argc || cpus < 0 || seconds <= 0 || warmup < 0)\n\t\tusage();\n\
         \tif (sysconf(_SC_PAGESIZE) != PAGE)\n\t\terrx(1, \"pages are not of %ld bytes\", PAGE);\n\
         \tfind_cpus();\n{places}\
         \tshared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,\n\
         \t\t      MAP_SHARED | MAP_ANONYMOUS, -1, 0);\n\
         \tif (shared == MAP_FAILED)\n\t\terr(1, \"mmap\");\n\
         {starter}\
         \t\tnap(0.001);\n\
         \tprintf(\"%d CPUs, %d processes\\n\", cpus, running);\n{begin}\
         \tshared->go = 1;\n\
         \tnap(warmup);\n\
         \tmeasure(seconds);\n\
         \tshared->stop = 1;\n\
         \tfor (int i = 0; running && i < 1000; i++)\n\t\tnap(0.01);\n\
         \tif (running)\n\
         \t\terrx(1, \"%d processes go on after 10 s and are killed\", running);\n\
         \tprintf(\"%ld operations in all\\n\", total());\n\
         \treturn 0;\n}}\n"
    )
}
