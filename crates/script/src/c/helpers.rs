//! Functions of the program that its tasks use. Those that no task uses are left out.

use crate::ast::Order;
use std::collections::BTreeSet;

/// A function, or a few lines that belong together, in the order of the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Helper {
    Syscalls,
    Ok,
    Children,
    Threads,
    Mark,
    Min,
    Max,
    Random,
    SinceStart,
    Realtime,
    NextCpu,
    NextInOrder,
    Fork,
    WaitFor,
    WaitForAll,
    StartThread,
    JoinThread,
    WritePage,
    WritePages,
    ReadPage,
    ReadPages,
    CheckPages,
    Present,
    Memfd,
    DiskFile,
    Fadvise,
    Nodes,
    Mbind,
    OomScoreAdj,
    Compute,
    SleepFor,
}

/// Properties of the program that decide about the text of a helper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts<'a> {
    pub(super) needs: &'a BTreeSet<Helper>,
    /// Whether a task kills others.
    pub(super) kills: bool,
}

impl Facts<'_> {
    fn has(&self, helper: Helper) -> bool {
        self.needs.contains(&helper)
    }
}

/// Returns the name of an order of CPUs.
pub(super) const fn order(order: Order) -> &'static str {
    match order {
        Order::Cores => "on_cores",
        Order::Nodes => "on_nodes",
        Order::Spread => "spread",
        Order::Near => "near",
    }
}

/// Adds the helpers that others need.
pub(super) fn complete(needs: &mut BTreeSet<Helper>) {
    use Helper as H;
    let pairs = [
        (H::WaitForAll, H::Children),
        (H::WaitForAll, H::WaitFor),
        (H::WritePages, H::WritePage),
        (H::ReadPages, H::ReadPage),
        (H::CheckPages, H::ReadPage),
        (H::CheckPages, H::Mark),
    ];
    for (one, other) in pairs {
        if needs.contains(&one) {
            needs.insert(other);
        }
    }
    if !needs.contains(&H::WritePage) {
        needs.remove(&H::Mark);
    }
}

/// Variables that each task has.
pub(super) fn variables(facts: Facts<'_>) -> String {
    let mut text = String::new();
    let all = [
        (Helper::Ok, "static __thread int ok = 1;\t/* the last call that may fail succeeded */\n"),
        (Helper::Children, "static __thread int children;\t/* not waited for */\n"),
        (Helper::Threads, "static __thread int threads;\t/* not joined */\n"),
        (Helper::Random, "static __thread unsigned long rng;\n"),
        (Helper::Mark, "static long mark;\t\t/* what this process writes */\n"),
    ];
    for (helper, line) in all {
        if facts.has(helper) {
            text.push_str(line);
        }
    }
    text
}

/// Returns the text of a function; empty for what is not one.
pub(super) fn function(helper: Helper, facts: Facts<'_>) -> String {
    let text = match helper {
        Helper::Min => MIN,
        Helper::Max => MAX,
        Helper::Random => RANDOM,
        Helper::SinceStart => SINCE_START,
        Helper::Realtime => REALTIME,
        Helper::NextCpu => NEXT_CPU,
        Helper::NextInOrder => NEXT_IN_ORDER,
        Helper::Fork => return fork(facts),
        Helper::WaitFor => return wait_for(facts),
        Helper::WaitForAll => WAIT_FOR_ALL,
        Helper::StartThread => START_THREAD,
        Helper::JoinThread => JOIN_THREAD,
        Helper::WritePage => {
            return WRITE_PAGE
                .replace("= 1;", if facts.has(Helper::Mark) { "= mark;" } else { "= 1;" });
        }
        Helper::WritePages => WRITE_PAGES,
        Helper::ReadPage => READ_PAGE,
        Helper::ReadPages => READ_PAGES,
        Helper::CheckPages => {
            return CHECK_PAGES.replace("MARK", if facts.has(Helper::Mark) { "mark" } else { "0" });
        }
        Helper::Present => PRESENT,
        Helper::Memfd => MEMFD,
        Helper::DiskFile => DISK_FILE,
        Helper::Nodes => NODES,
        Helper::Mbind => MBIND,
        Helper::OomScoreAdj => OOM_SCORE_ADJ,
        Helper::Compute => COMPUTE,
        Helper::SleepFor => SLEEP_FOR,
        _ => "",
    };
    text.to_owned()
}

fn fork(facts: Facts<'_>) -> String {
    let mut text = String::from(
        "/* Forks. The child runs on CPU \"to\", and dies with its parent. */\n\
         static pid_t start_child(int to)\n{\n",
    );
    if facts.has(Helper::Random) {
        text.push_str("\tunsigned long seed = next_random();\n");
    }
    text.push_str("\tpid_t parent = getpid(), pid = fork();\n\n");
    text.push_str("\tif (pid < 0)\n\t\terr(1, \"fork\");\n");
    if facts.has(Helper::Children) {
        text.push_str("\tif (pid) {\n\t\tchildren++;\n\t\treturn pid;\n\t}\n\tchildren = 0;\n");
    } else {
        text.push_str("\tif (pid)\n\t\treturn pid;\n");
    }
    if facts.has(Helper::Threads) {
        text.push_str("\tthreads = 0;\n");
    }
    if facts.has(Helper::Random) {
        text.push_str("\trng = seed;\n");
    }
    if facts.has(Helper::Mark) {
        text.push_str("\tmark = getpid();\n");
    }
    text.push_str("\tif (prctl(PR_SET_PDEATHSIG, SIGKILL))\n\t\terr(1, \"prctl\");\n");
    text.push_str("\tif (getppid() != parent)\n\t\t_exit(1);\n");
    text.push_str("\tpin(to);\n\treturn 0;\n}\n");
    text
}

fn wait_for(facts: Facts<'_>) -> String {
    let threads = facts.has(Helper::StartThread) && facts.has(Helper::WaitForAll);
    let flags = if threads { "__WNOTHREAD" } else { "0" };
    let count = if facts.has(Helper::Children) { "\tchildren--;\n" } else { "" };
    let killed = if facts.kills {
        "\tif (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)\n\t\treturn;\n"
    } else {
        ""
    };
    format!(
        "static void wait_for(pid_t pid)\n{{\n\tint status;\n\n\
         \tif (waitpid(pid, &status, {flags}) < 0)\n\t\terr(1, \"waitpid\");\n{count}{killed}\
         \tif (status)\n\t\terrx(1, \"a child failed, status %#x\", status);\n}}\n"
    )
}

const MIN: &str = "\
static long min(long a, long b)
{
	return a < b ? a : b;
}
";
const MAX: &str = "\
static long max(long a, long b)
{
	return a > b ? a : b;
}
";
const RANDOM: &str = "\
static unsigned long next_random(void)
{
	unsigned long z = rng += 0x9e3779b97f4a7c15;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

/* A random number from \"from\" to \"until\" - 1. */
static long rnd(long from, long until)
{
	if (until <= from)
		errx(1, \"no number from %ld to %ld\", from, until - 1);
	return from + next_random() % (until - from);
}
";
const SINCE_START: &str = "\
static long since_start(void)
{
	return now() - shared->begin;
}
";
const REALTIME: &str = "\
static void realtime(int priority)
{
	struct sched_param param = { .sched_priority = priority };

	if (sched_setscheduler(0, SCHED_FIFO, &param))
		err(1, \"sched_setscheduler\");
}
";
const NEXT_CPU: &str = "\
/* The CPU of the nth task near this one. Equal tasks are \"stride\" CPUs apart. */
static int next_cpu(long nth, int stride)
{
	int common = cpus, rest, round, by = stride;

	while (by) {
		rest = common % by;
		common = by;
		by = rest;
	}
	round = cpus / common;
	return (cpu + nth % round * stride + nth / round % common) % cpus;
}
";
const NEXT_IN_ORDER: &str = "\
enum order {
	on_cores,	/* the first thread of each core, node after node; then the others */
	on_nodes,	/* all CPUs of a node, then those of the next one */
	spread,		/* one CPU of each node in turn */
	near,		/* the core of this task, its cache, its node, the next node */
};

static struct {
	int core, cache, node;
	int thread;	/* number in the core */
	int turn;	/* number in the node, first threads of cores first */
} place[MAX_CPUS];

/* The number at the beginning of a file that describes a CPU. */
static int number_in(int id, const char *name)
{
	char path[128];
	int number = -1;
	FILE *file;

	snprintf(path, sizeof(path), \"/sys/devices/system/cpu/cpu%d/%s\", id, name);
	file = fopen(path, \"r\");
	if (file) {
		if (fscanf(file, \"%d\", &number) != 1)
			number = -1;
		fclose(file);
	}
	return number;
}

static void find_places(void)
{
	char name[64];

	for (int i = 0; i < cpus; i++) {
		int id = cpu_ids[i], number = number_in(id, \"topology/thread_siblings_list\");

		place[i].core = number < 0 ? id : number;
		for (int node = 0; node < 1024; node++) {
			sprintf(name, \"/sys/devices/system/cpu/cpu%d/node%d\", id, node);
			if (!access(name, F_OK)) {
				place[i].node = node;
				break;
			}
		}
		place[i].cache = place[i].node;
		for (int level = 0; level < 8; level++) {
			sprintf(name, \"cache/index%d/shared_cpu_list\", level);
			number = number_in(id, name);
			if (number >= 0)
				place[i].cache = number;
		}
		for (int j = 0; j < i; j++)
			place[i].thread += place[j].core == place[i].core;
	}
	for (int i = 0; i < cpus; i++)
		for (int j = 0; j < cpus; j++)
			place[i].turn += place[j].node == place[i].node &&
				(place[j].thread < place[i].thread ||
				 (place[j].thread == place[i].thread && j < i));
}

static __thread enum order sort_by;

static long key_of(int to)
{
	int from = cpu < 0 ? 0 : cpu;
	long key;

	switch (sort_by) {
	case on_cores:
		key = place[to].thread * 1024L + place[to].node;
		break;
	case on_nodes:
		key = place[to].node * (long)MAX_CPUS + place[to].turn;
		break;
	case spread:
		key = place[to].turn * 1024L + place[to].node;
		break;
	default:
		if (to == from)
			return -1;
		key = (place[to].node - place[from].node + 1024) % 1024;
		key = key * 2 + (place[to].core != place[from].core);
		key = key * 2 + (place[to].cache != place[from].cache);
		key = key * 64 + place[to].thread;
		return key * MAX_CPUS + (to - from + cpus) % cpus;
	}
	return key * MAX_CPUS + to;
}

static int by_key(const void *a, const void *b)
{
	long one = key_of(*(const int *)a), other = key_of(*(const int *)b);

	return (one > other) - (one < other);
}

/* The CPU that is \"nth\" places behind this task in an order. */
static int next_in_order(enum order order, long nth)
{
	static __thread int sorted[4][MAX_CPUS], sorted_for[4];
	int from = cpu < 0 ? 0 : cpu, begin = 0;

	if (sorted_for[order] != from + 1) {
		for (int i = 0; i < cpus; i++)
			sorted[order][i] = i;
		sort_by = order;
		qsort(sorted[order], cpus, sizeof(int), by_key);
		sorted_for[order] = from + 1;
	}
	while (cpu >= 0 && sorted[order][begin] != from)
		begin++;
	return sorted[order][(begin + nth) % cpus];
}
";
const WAIT_FOR_ALL: &str = "\
static void wait_for_all(void)
{
	while (children)
		wait_for(-1);
}
";
const START_THREAD: &str = "\
static pthread_t start_thread(void *(*body)(void *), const void *arg,
			      size_t size)
{
	void *copy = malloc(size);
	pthread_t thread;

	if (!copy)
		err(1, \"malloc\");
	memcpy(copy, arg, size);
	errno = pthread_create(&thread, NULL, body, copy);
	if (errno)
		err(1, \"pthread_create\");
	return thread;
}
";
const JOIN_THREAD: &str = "\
static void join_thread(pthread_t thread)
{
	errno = pthread_join(thread, NULL);
	if (errno)
		err(1, \"pthread_join\");
}
";
const WRITE_PAGE: &str = "\
static void write_page(char *page)
{
	*(volatile long *)page = 1;
}
";
const WRITE_PAGES: &str = "\
static void write_pages(char *mem, long size)
{
	for (long at = 0; at < size; at += PAGE)
		write_page(mem + at);
}
";
const READ_PAGE: &str = "\
static long read_page(const char *page)
{
	return *(const volatile long *)page;
}
";
const READ_PAGES: &str = "\
static void read_pages(const char *mem, long size)
{
	for (long at = 0; at < size; at += PAGE)
		read_page(mem + at);
}
";
const CHECK_PAGES: &str = "\
static void check_pages(const char *mem, long size)
{
	for (long at = 0; at < size; at += PAGE)
		if (read_page(mem + at) != MARK)
			errx(1, \"page %ld is not what was written\", at / PAGE);
}
";
const PRESENT: &str = "\
static long present_pages(char *mem, long size)
{
	long pages = (size + PAGE - 1) / PAGE, found = 0;
	unsigned char *vec = malloc(pages);

	if (!vec)
		err(1, \"malloc\");
	if (mincore(mem, size, vec))
		err(1, \"mincore\");
	for (long i = 0; i < pages; i++)
		found += vec[i] & 1;
	free(vec);
	return found;
}
";
const MEMFD: &str = "\
static int new_file(long size)
{
	int fd = memfd_create(\"file\", MFD_CLOEXEC);

	if (fd < 0)
		err(1, \"memfd_create\");
	if (ftruncate(fd, size))
		err(1, \"ftruncate\");
	return fd;
}
";
const DISK_FILE: &str = "\
/* A file without a name, whose pages are on the disk and not in memory. */
static int new_file_on_disk(long size)
{
	static char zeros[1 << 16];
	const char *dir = getenv(\"TMPDIR\") ? getenv(\"TMPDIR\") : \"/var/tmp\";
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	struct statfs fs;

	if (fd < 0 || fstatfs(fd, &fs))
		err(1, \"a new file in %s\", dir);
	if (fs.f_type == TMPFS_MAGIC)
		errx(1, \"%s is in memory: set TMPDIR to a directory on a disk\", dir);
	while (size > 0) {
		long some = size < (long)sizeof(zeros) ? size : (long)sizeof(zeros);

		if (write(fd, zeros, some) != some)
			err(1, \"write\");
		size -= some;
	}
	if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		err(1, \"fsync\");
	return fd;
}
";
const NODES: &str = "\
static int nodes(void)
{
	char path[64];
	int node = 0;

	do
		sprintf(path, \"/sys/devices/system/node/node%d\", ++node);
	while (!access(path, F_OK));
	return node;
}
";
const MBIND: &str = "\
static int bind_to(void *mem, long size, int node, int flags)
{
	unsigned long mask = 1UL << node;

	/* The call takes one bit less than the given number. */
	return syscall(SYS_mbind, mem, size, MPOL_BIND, &mask,
		       8 * sizeof(mask) + 1, flags);
}
";
const OOM_SCORE_ADJ: &str = "\
static int oom_score_adj(pid_t pid, int score)
{
	char path[64];
	FILE *file;

	sprintf(path, \"/proc/%d/oom_score_adj\", pid);
	file = fopen(path, \"w\");
	if (!file)
		return -1;
	fprintf(file, \"%d\", score);
	return fclose(file);
}
";
const COMPUTE: &str = "\
/* Keeps the CPU for a time. */
static void compute(long ns)
{
	long end = now() + ns;

	while (now() < end)
		;
}
";
const SLEEP_FOR: &str = "\
static void sleep_for(long ns)
{
	struct timespec ts = { ns / 1000000000, ns % 1000000000 };

	if (clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL))
		errx(1, \"clock_nanosleep\");
}
";
