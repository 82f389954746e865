// SPDX-License-Identifier: (GPL-2.0 OR BSD-2-Clause)
//
// Measurements in the live kernel: locks, LRU lists and calls between CPUs, added up in the kernel:
// one record for each call path, not one for each event. The kernel's types are not taken from the
// header of one kernel: the few fields in use are declared here, and relocated at load time.

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define CORE __attribute__((preserve_access_index))
#define INLINE static inline __attribute__((always_inline))

#define __uint(name, value) int(*name)[value]
#define __type(name, value) typeof(value) *name

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_ARRAY 2
#define BPF_MAP_TYPE_PERCPU_HASH 5
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_STACK_TRACE 7
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_ANY 0
#define BPF_NOEXIST 1

// Helpers by their numbers in linux/bpf.h.
static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*const bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*const bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*const bpf_get_stackid)(void *ctx, void *map, u64 flags) = (void *)27;
struct task_struct;
static struct task_struct *(*const bpf_get_current_task_btf)(void) = (void *)158;
static long (*const bpf_probe_read_kernel)(void *dst, u32 size, const void *src) = (void *)113;

struct upid {
	int nr;
} CORE;

// One number for each namespace, from the initial one to the one that the process was made in.
struct pid {
	unsigned int level;
	struct upid numbers[1];
} CORE;

struct mm_struct;

struct signal_struct {
	struct pid *pids[4];
} CORE;

struct task_struct {
	unsigned int flags;
	struct mm_struct *mm;
	struct signal_struct *signal;
} CORE;

#define TYPE_SIZE 1

#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000
#define PIDTYPE_SID 3

// The origin of an event.
#define SIDE_OTHER 0
#define SIDE_OURS 1
#define SIDE_KERNEL 2
#define SIDE_EXITING 4

#define BUCKETS 32
#define PATHS 16384
#define DEPTH 32
#define HOLDERS 128

struct config {
	// Events count in this window only, in ns of the monotonic clock.
	u64 from_ns;
	u64 until_ns;
	// The session of our processes; 0 if all processes are ours.
	u32 session;
	// A longer gap than this between two insertions on one CPU separates two batches.
	u32 batch_gap_ns;
	// The number of CPUs whose lock holders are recorded; 0 for none.
	u32 holders;
	// Of very frequent events one in sparse + 1 is recorded, and counts for all of them. A
	// power of two less one.
	u32 sparse;
	// Whether the kernel reports releases of contended locks.
	u32 releases;
	u32 padding;
};

struct sums {
	u64 count;
	u64 total_ns;
	u64 max_ns;
	u64 log2[BUCKETS];
};

struct path {
	s32 stack;
	u32 flags;
	u32 side;
	u32 holder;
};

struct waiting {
	u64 since_ns;
	s32 stack;
	u32 flags;
};

struct waiter {
	u64 lock;
	// The CPU for a spin lock; otherwise the task, above all CPUs.
	u64 who;
};

// A wait for a spin lock that has not ended.
struct spin {
	u64 lock;
	u64 since_ns;
	s32 stack;
	u32 flags;
};

// An interrupt may wait while the interrupted code waits: the most nested waits.
#define SPINS 4

// Counters of short waits, by lock; several locks share one.
#define SHORTS_LOG2 6
// After this many short waits, fewer are recorded.
#define OFTEN 512
#define RARELY_LOG2 3

struct spins {
	u32 depth;
	u32 random;
	struct spin at[SPINS];
	u32 shorts[1 << SHORTS_LOG2];
};

// A lock's last release with a waiter, and its last acquisition after a wait.
struct handover {
	u64 acquired_ns;
	// When the task that released it had acquired it, if that was after a wait too.
	u64 held_from_ns;
	u64 released_ns;
	s32 stack;
	// How many releases this one stands for; 0: its stack was not taken.
	u32 times;
	// Whether waiters of this lock sleep: their releases are rare, and all are recorded.
	u64 sleeps;
};

// Waits that ended with the releases of one call path, and the holds before these releases, as far
// as their length is known.
struct holds {
	struct sums waits;
	struct sums whole;
};

struct batch {
	u64 last_ns;
	// All folios that were seen, and those that began a batch.
	u64 folios;
	u64 begun;
};

struct call {
	u64 queued_ns;
	u64 entered_ns;
	u64 func;
	u64 ours;
};

struct calls {
	struct sums delivery;
	struct sums run;
	struct sums total;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct config);
} CONFIG SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, PATHS);
	__uint(key_size, sizeof(u32));
	__uint(value_size, DEPTH * sizeof(u64));
} STACKS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct waiter);
	__type(value, struct waiting);
} WAITING SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct path);
	__type(value, struct sums);
} WAITS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct sums);
} EMPTY SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct spins);
} SPINNING SEC(".maps");

// By lock. Those that are used least recently make room for others.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct handover);
} HANDOVERS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, struct path);
	__type(value, struct holds);
} HELD_BY SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct holds);
} EMPTY_HOLDS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct batch);
} BATCH SEC(".maps");

// The window in which folios are recorded, if they are not recorded all the time.
struct stretch {
	u64 from_ns;
	u64 until_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stretch);
} STRETCH SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct call);
} QUEUED SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct path);
	__type(value, struct calls);
} CALLS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct calls);
} EMPTY_CALLS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, u64);
	__type(value, struct waiting);
} PHASE SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 256);
	__type(key, struct path);
	__type(value, struct sums);
} PHASES SEC(".maps");

// Counts of events of the out-of-memory killer and its reaper.
#define EVENTS 8

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, u32);
	__type(value, u64);
} HAPPENED SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} RESCHED SEC(".maps");

struct holder {
	u64 last_ns;
	u64 stack;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HOLDERS);
	__type(key, u32);
	__type(value, struct holder);
} HELD SEC(".maps");

INLINE const struct config *config(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&CONFIG, &zero);
}

INLINE u32 log2_of(u64 x)
{
	u32 at = 0;

	if (x >> 32)
		return BUCKETS - 1;
#pragma unroll
	for (u32 step = 16; step; step >>= 1) {
		if (x >> step) {
			x >>= step;
			at += step;
		}
	}
	return at;
}

// Adds an event of `ns` that stands for `times` events.
INLINE void add(struct sums *sums, u64 ns, u64 times)
{
	__sync_fetch_and_add(&sums->count, times);
	__sync_fetch_and_add(&sums->total_ns, ns * times);
	if (ns > sums->max_ns)
		sums->max_ns = ns;
	__sync_fetch_and_add(&sums->log2[log2_of(ns) & (BUCKETS - 1)], times);
}

INLINE int counts(const struct config *conf, u64 now)
{
	return conf && now >= conf->from_ns && now < conf->until_ns;
}

// Namespaces nest 32 deep at most: offsets in the numbers of a process are below this power of two.
#define OFFSETS 4096

// Returns a process's number in the namespace that it was made in: the tool's namespace for
// processes of the tool. The verifier accepts a bounded offset only, and that of Linux 6.1 derives
// no bound of a product.
INLINE int number(struct pid *pid)
{
	u64 at = (u64)__builtin_preserve_access_index(&pid->numbers[0]);
	int nr = 0;

	at += pid->level * (u64)__builtin_preserve_type_info(*(struct upid *)0, TYPE_SIZE) &
	      (OFFSETS - 1);
	bpf_probe_read_kernel(&nr, sizeof(nr), (const void *)at);
	return nr;
}

// Returns the origin of an event: the current task, whatever interrupted it.
INLINE u32 side(const struct config *config)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 flags = task->flags, exiting;
	struct pid *session;

	if (flags & PF_KTHREAD)
		return SIDE_KERNEL;
	exiting = flags & PF_EXITING ? SIDE_EXITING : 0;
	if (!config->session)
		return SIDE_OURS | exiting;
	session = task->signal->pids[PIDTYPE_SID];
	if (!session)
		return SIDE_OTHER;
	if (number(session) != (int)config->session)
		return SIDE_OTHER;
	return SIDE_OURS | exiting;
}

// The flags of lock:contention_begin.
#define LCB_F_SPIN 1
#define LCB_F_MUTEX 32

// A spinning waiter stays on its CPU; all other waiters are identified by their task.
INLINE int spins(u32 flags)
{
	return (flags & LCB_F_SPIN) && !(flags & LCB_F_MUTEX);
}

INLINE struct waiter sleeper(u64 lock)
{
	struct waiter waiter = { .lock = lock, .who = bpf_get_current_pid_tgid() };

	return waiter;
}

// Returns the record of a lock, which is made if there is none.
INLINE struct handover *handover(u64 lock)
{
	struct handover *found = bpf_map_lookup_elem(&HANDOVERS, &lock);
	struct handover none = {};

	if (found)
		return found;
	bpf_map_update_elem(&HANDOVERS, &lock, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&HANDOVERS, &lock);
}

// No stack was taken.
#define NOT_TAKEN (-1000)
// Waits for spin locks of at least this length are all recorded, in ns.
#define LONG_NS 10000

// Nothing is looked up or taken before the spin begins: it would delay the waiter.
INLINE void begin_spin(u64 *ctx, const struct config *conf, u64 now)
{
	u32 zero = 0, depth;
	struct spins *spins = bpf_map_lookup_elem(&SPINNING, &zero);
	struct spin *spin;

	if (!spins)
		return;
	depth = spins->depth;
	// The ends of these waits were missed.
	if (depth >= SPINS)
		depth = 0;
	spin = &spins->at[depth & (SPINS - 1)];
	spin->lock = ctx[0];
	spin->since_ns = now;
	spin->flags = ctx[1];
	spin->stack = conf->sparse ? NOT_TAKEN : bpf_get_stackid(ctx, &STACKS, 0);
	spins->depth = depth + 1;
}

SEC("tp_btf/contention_begin")
int contention_begin(u64 *ctx)
{
	const struct config *conf = config();
	u64 now = bpf_ktime_get_ns();
	u32 flags = ctx[1];
	struct waiter who;
	struct waiting entry = { .flags = flags, .since_ns = now };

	if (!counts(conf, now))
		return 0;
	if (spins(flags)) {
		begin_spin(ctx, conf, now);
		return 0;
	}
	who = sleeper(ctx[0]);
	// A waiter that spins first and then sleeps has two of these events.
	if (bpf_map_lookup_elem(&WAITING, &who))
		return 0;
	if (conf->releases) {
		struct handover *last = handover(ctx[0]);

		if (last)
			last->sleeps = 1;
	}
	entry.stack = bpf_get_stackid(ctx, &STACKS, 0);
	bpf_map_update_elem(&WAITING, &who, &entry, BPF_ANY);
	return 0;
}

// Returns the CPU that was last seen to hold a zone's lock since the wait began. Stacks are counted
// from 1.
INLINE u32 holder(const struct config *conf, u64 since_ns)
{
	u32 own = bpf_get_smp_processor_id(), found = 0;
	u64 last_ns = since_ns;

	for (u32 cpu = 0; cpu < HOLDERS; cpu++) {
		u32 key = cpu;
		struct holder *held;

		if (cpu >= conf->holders)
			break;
		held = bpf_map_lookup_elem(&HELD, &key);
		if (held && cpu != own && held->last_ns >= last_ns) {
			last_ns = held->last_ns;
			found = (u32)held->stack + 1;
		}
	}
	return found;
}

// Fires for each page while a zone's lock is held.
INLINE int holds(u64 *ctx)
{
	const struct config *conf = config();
	u32 cpu = bpf_get_smp_processor_id();
	struct holder *held = bpf_map_lookup_elem(&HELD, &cpu);

	if (!conf || !held || !conf->holders)
		return 0;
	held->stack = bpf_get_stackid(ctx, &STACKS, 0);
	held->last_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/mm_page_pcpu_drain")
int mm_page_pcpu_drain(u64 *ctx)
{
	return holds(ctx);
}

SEC("tp_btf/mm_page_alloc_zone_locked")
int mm_page_alloc_zone_locked(u64 *ctx)
{
	return holds(ctx);
}

// Returns whether a wait ended with the recorded release. Any other release of the lock during the
// wait would have been recorded later.
INLINE int ended_with(const struct handover *last, u64 since_ns)
{
	return last && last->released_ns >= since_ns;
}

// Adds a wait to those that ended with this release.
INLINE void held_by(const struct path *path, const struct waiting *entry,
		    const struct handover *last, u64 now)
{
	struct holds *holds = bpf_map_lookup_elem(&HELD_BY, path);
	u32 zero = 0;

	if (!holds) {
		struct holds *empty = bpf_map_lookup_elem(&EMPTY_HOLDS, &zero);

		if (!empty)
			return;
		bpf_map_update_elem(&HELD_BY, path, empty, BPF_NOEXIST);
		holds = bpf_map_lookup_elem(&HELD_BY, path);
		if (!holds)
			return;
	}
	add(&holds->waits, now - entry->since_ns, last->times);
	// The lock may have been free in the meantime unless this task waited all along.
	if (last->held_from_ns && entry->since_ns <= last->held_from_ns)
		add(&holds->whole, last->released_ns - last->held_from_ns, last->times);
}

INLINE void waited(const struct config *conf, const struct waiting *entry,
		   const struct handover *last, u64 now, u64 times)
{
	struct path path = { .stack = entry->stack, .flags = entry->flags };
	u32 zero = 0;
	struct sums *sums;

	path.side = side(conf);
	if (ended_with(last, entry->since_ns) && last->times) {
		path.holder = last->stack < 0 ? 0 : (u32)last->stack + 1;
		held_by(&path, entry, last, now);
		// Of releases that are not all recorded, the sums of waits do without.
		if (conf->sparse)
			path.holder = 0;
	} else if (conf->holders) {
		path.holder = holder(conf, entry->since_ns);
	}
	sums = bpf_map_lookup_elem(&WAITS, &path);
	if (!sums) {
		struct sums *empty = bpf_map_lookup_elem(&EMPTY, &zero);

		if (!empty)
			return;
		bpf_map_update_elem(&WAITS, &path, empty, BPF_NOEXIST);
		sums = bpf_map_lookup_elem(&WAITS, &path);
		if (!sums)
			return;
	}
	add(sums, now - entry->since_ns, times);
}

// Returns how many short waits for this spin lock the one that has just ended stands for; 0: not
// recorded. If there are many, a sample is enough: each stack is taken while other CPUs wait.
INLINE u32 stands_for(const struct config *conf, struct spins *spins, u64 lock)
{
	// The upper bits of Fibonacci hashing.
	u32 at = (lock * 0x9e3779b97f4a7c15ULL) >> (64 - SHORTS_LOG2);
	u32 one_in = conf->sparse + 1;

	if (spins->shorts[at & ((1 << SHORTS_LOG2) - 1)]++ >= OFTEN)
		one_in <<= RARELY_LOG2;
	spins->random = spins->random * 1664525 + 1013904223;
	return (spins->random >> 16) & (one_in - 1) ? 0 : one_in;
}

// Readers hold a lock together: the start of one's hold says nothing of the others.
#define LCB_F_READ 2

// The waiter has its lock now.
INLINE void acquires(struct handover *last, u32 flags, u64 now)
{
	if (last)
		last->acquired_ns = flags & LCB_F_READ ? 0 : now;
}

// Removes the wait for a spin lock that has ended. Returns whether there is one.
INLINE int end_spin(struct spins *spins, u64 lock, struct waiting *entry)
{
#pragma unroll
	for (u32 down = 1; down <= SPINS; down++) {
		u32 at = spins->depth - down;
		struct spin *spin = &spins->at[at & (SPINS - 1)];

		if (at >= SPINS)
			return 0;
		if (spin->lock != lock)
			continue;
		spins->depth = at;
		entry->since_ns = spin->since_ns;
		entry->stack = spin->stack;
		entry->flags = spin->flags;
		return 1;
	}
	return 0;
}

// Removes the wait of a task that has ended. Returns whether there is one.
INLINE int end_sleep(u64 lock, struct waiting *entry)
{
	struct waiter who = sleeper(lock);
	struct waiting *found = bpf_map_lookup_elem(&WAITING, &who);

	if (!found)
		return 0;
	*entry = *found;
	bpf_map_delete_elem(&WAITING, &who);
	return 1;
}

// The waiter has its lock now, and others wait for it: stacks are taken for long waits only, and
// for a sample of the others. There is one call of `waited`: the verifier follows each by itself.
SEC("tp_btf/contention_end")
int contention_end(u64 *ctx)
{
	const struct config *conf = config();
	u64 now = bpf_ktime_get_ns(), lock = ctx[0], times = 1;
	struct handover *last = 0;
	struct waiting entry = {};
	struct spins *spins;
	u32 zero = 0;

	spins = bpf_map_lookup_elem(&SPINNING, &zero);
	if (!conf || !spins)
		return 0;
	if (conf->releases)
		last = bpf_map_lookup_elem(&HANDOVERS, &lock);
	if (end_spin(spins, lock, &entry)) {
		// A wait is recorded with the release that ended it, or without.
		if (conf->sparse && now - entry.since_ns < LONG_NS)
			times = ended_with(last, entry.since_ns) ? last->times :
								   stands_for(conf, spins, lock);
		if (conf->sparse && times)
			entry.stack = bpf_get_stackid(ctx, &STACKS, 0);
	} else if (!end_sleep(lock, &entry)) {
		return 0;
	}
	acquires(last, entry.flags, now);
	if (times)
		waited(conf, &entry, last, now, times);
	return 0;
}

// Fires in the task that releases a lock while others wait for it, mostly before they have it.
SEC("tp_btf/contended_release")
int contended_release(u64 *ctx)
{
	const struct config *conf = config();
	u64 now = bpf_ktime_get_ns(), held_from_ns;
	struct spins *spins;
	struct handover *last;
	u32 zero = 0, times = 1;

	if (!counts(conf, now))
		return 0;
	last = handover(ctx[0]);
	spins = bpf_map_lookup_elem(&SPINNING, &zero);
	if (!last || !spins)
		return 0;
	held_from_ns = last->acquired_ns;
	// A sample of short holds is enough, as of short waits.
	if (conf->sparse && !last->sleeps && !(held_from_ns && now - held_from_ns >= LONG_NS))
		times = stands_for(conf, spins, ctx[0]);
	last->acquired_ns = 0;
	last->held_from_ns = held_from_ns;
	last->times = times;
	last->stack = times ? bpf_get_stackid(ctx, &STACKS, 0) : NOT_TAKEN;
	last->released_ns = now;
	return 0;
}

// Folios of one batch are added one after another, with interrupts off. This fires for each folio,
// while the list's lock is held: if not all folios are recorded, the program is attached for short
// stretches of time only.
SEC("tp_btf/mm_lru_insertion")
int mm_lru_insertion(u64 *ctx)
{
	const struct config *conf = config();
	u32 zero = 0;
	struct batch *batch = bpf_map_lookup_elem(&BATCH, &zero);
	struct stretch *stretch = bpf_map_lookup_elem(&STRETCH, &zero);
	u64 now;

	if (!conf || !batch || !stretch)
		return 0;
	if (!(side(conf) & SIDE_OURS))
		return 0;
	now = bpf_ktime_get_ns();
	if (!counts(conf, now))
		return 0;
	// The program is attached a little before the window, and detached a little after it.
	if (conf->sparse && (now < stretch->from_ns || now >= stretch->until_ns))
		return 0;
	batch->folios += 1;
	if (now - batch->last_ns > conf->batch_gap_ns)
		batch->begun += 1;
	batch->last_ns = now;
	return 0;
}

SEC("tp_btf/csd_queue_cpu")
int csd_queue_cpu(u64 *ctx)
{
	const struct config *conf = config();
	u64 now = bpf_ktime_get_ns();
	struct call call = { .queued_ns = now };
	u64 csd = ctx[3];

	if (!counts(conf, now))
		return 0;
	// Not the record's function: wake-ups have none there. The verifier does not let programs read
	// pointers to functions from their arguments, but they may read the memory of the arguments.
	bpf_probe_read_kernel(&call.func, sizeof(call.func), ctx + 2);
	call.ours = side(conf);
	bpf_map_update_elem(&QUEUED, &csd, &call, BPF_ANY);
	return 0;
}

SEC("tp_btf/csd_function_entry")
int csd_function_entry(u64 *ctx)
{
	u64 csd = ctx[1];
	struct call *call = bpf_map_lookup_elem(&QUEUED, &csd);

	if (call)
		call->entered_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/csd_function_exit")
int csd_function_exit(u64 *ctx)
{
	u64 csd = ctx[1], now = bpf_ktime_get_ns();
	struct call *call = bpf_map_lookup_elem(&QUEUED, &csd);
	struct path path = {};
	struct calls *calls;
	u32 zero = 0;

	if (!call)
		return 0;
	if (call->entered_ns) {
		path.stack = (s32)call->func;
		path.flags = (u32)(call->func >> 32);
		path.side = call->ours;
		calls = bpf_map_lookup_elem(&CALLS, &path);
		if (!calls) {
			struct calls *empty = bpf_map_lookup_elem(&EMPTY_CALLS, &zero);

			if (!empty)
				return 0;
			bpf_map_update_elem(&CALLS, &path, empty, BPF_NOEXIST);
			calls = bpf_map_lookup_elem(&CALLS, &path);
			if (!calls)
				return 0;
		}
		add(&calls->delivery, call->entered_ns - call->queued_ns, 1);
		add(&calls->run, now - call->entered_ns, 1);
		add(&calls->total, now - call->queued_ns, 1);
	}
	bpf_map_delete_elem(&QUEUED, &csd);
	return 0;
}

// Phases of an exit, by the exiting task's use of its mmap_lock.
#define PHASE_ZAP 1
#define PHASE_AWAIT_REAPER 2
#define PHASE_TABLES 3
#define PHASE_RESCHED 5
// Phases of another task that zaps or reads the memory.
#define PHASE_AWAIT_OTHERS 6
#define PHASE_OTHERS 7
// The same phase of the out-of-memory killer's reaper, from its own events.
#define PHASE_OOM_REAP 8

// In PHASE, separates the events of a reaper from its locks.
#define REAPING (1ULL << 63)

INLINE void phase_done(u32 which, s32 stack, u64 ns)
{
	struct path path = { .flags = which, .stack = stack };
	u32 zero = 0;
	struct sums *sums = bpf_map_lookup_elem(&PHASES, &path);

	if (!sums) {
		struct sums *empty = bpf_map_lookup_elem(&EMPTY, &zero);

		if (!empty)
			return;
		bpf_map_update_elem(&PHASES, &path, empty, BPF_NOEXIST);
		sums = bpf_map_lookup_elem(&PHASES, &path);
		if (!sums)
			return;
	}
	add(sums, ns, 1);
}

INLINE void phase_begins(u64 who, u32 which, s32 stack)
{
	struct waiting entry = { .flags = which, .stack = stack };

	entry.since_ns = bpf_ktime_get_ns();
	bpf_map_update_elem(&PHASE, &who, &entry, BPF_ANY);
}

INLINE void phase_ends(const struct config *conf, u64 who)
{
	struct waiting *entry = bpf_map_lookup_elem(&PHASE, &who);
	u64 now;

	if (!entry)
		return;
	now = bpf_ktime_get_ns();
	if (counts(conf, now))
		phase_done(entry->flags, entry->stack, now - entry->since_ns);
	bpf_map_delete_elem(&PHASE, &who);
}

// The relation of a task to an address space whose lock it takes; NOBODY: it works in its own.
#define NOBODY 0
#define EXITING 1
#define STRANGER 2

INLINE u32 meddles(const struct config *conf, u64 mm)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 who;

	if (!conf || (u64)task->mm == mm)
		return NOBODY;
	who = side(conf);
	if ((who & SIDE_OURS) && (who & SIDE_EXITING))
		return EXITING;
	// The reaper is a kernel thread: its side is KERNEL.
	return who == SIDE_OTHER ? NOBODY : STRANGER;
}

SEC("tp_btf/mmap_lock_start_locking")
int mmap_lock_start_locking(u64 *ctx)
{
	const struct config *conf = config();
	u32 who = meddles(conf, ctx[0]);

	if (who == EXITING && (u8)ctx[1])
		phase_begins(bpf_get_current_pid_tgid(), PHASE_AWAIT_REAPER, 0);
	if (who == STRANGER)
		phase_begins(bpf_get_current_pid_tgid(), PHASE_AWAIT_OTHERS,
			     bpf_get_stackid(ctx, &STACKS, 0));
	return 0;
}

SEC("tp_btf/mmap_lock_acquire_returned")
int mmap_lock_acquire_returned(u64 *ctx)
{
	const struct config *conf = config();
	u64 self = bpf_get_current_pid_tgid();
	u32 who = meddles(conf, ctx[0]);
	u32 which = (u8)ctx[1] ? PHASE_TABLES : PHASE_ZAP;
	s32 stack = 0;

	if (who == NOBODY)
		return 0;
	phase_ends(conf, self);
	if (!(u8)ctx[2])
		return 0;
	if (who == STRANGER) {
		which = PHASE_OTHERS;
		stack = bpf_get_stackid(ctx, &STACKS, 0);
	}
	phase_begins(self, which, stack);
	return 0;
}

SEC("tp_btf/mmap_lock_released")
int mmap_lock_released(u64 *ctx)
{
	const struct config *conf = config();

	if (meddles(conf, ctx[0]) != NOBODY)
		phase_ends(conf, bpf_get_current_pid_tgid());
	return 0;
}

// Events of the out-of-memory killer count for the whole computer, for every victim.
#define OOM_MARKED 0
#define OOM_WOKEN 1
#define OOM_STARTED 2
#define OOM_FINISHED 3
#define OOM_SKIPPED 4
#define OOM_ADJUSTED 5

INLINE void happened(const struct config *conf, u32 which)
{
	u64 *count;

	if (!counts(conf, bpf_ktime_get_ns()))
		return;
	count = bpf_map_lookup_elem(&HAPPENED, &which);
	if (count)
		*count += 1;
}

SEC("tp_btf/mark_victim")
int mark_victim(u64 *ctx)
{
	happened(config(), OOM_MARKED);
	return 0;
}

SEC("tp_btf/wake_reaper")
int wake_reaper(u64 *ctx)
{
	happened(config(), OOM_WOKEN);
	return 0;
}

SEC("tp_btf/start_task_reaping")
int start_task_reaping(u64 *ctx)
{
	happened(config(), OOM_STARTED);
	phase_begins(bpf_get_current_pid_tgid() | REAPING, PHASE_OOM_REAP, 0);
	return 0;
}

SEC("tp_btf/finish_task_reaping")
int finish_task_reaping(u64 *ctx)
{
	const struct config *conf = config();

	happened(conf, OOM_FINISHED);
	phase_ends(conf, bpf_get_current_pid_tgid() | REAPING);
	return 0;
}

SEC("tp_btf/skip_task_reaping")
int skip_task_reaping(u64 *ctx)
{
	happened(config(), OOM_SKIPPED);
	return 0;
}

SEC("tp_btf/oom_score_adj_update")
int oom_score_adj_update(u64 *ctx)
{
	happened(config(), OOM_ADJUSTED);
	return 0;
}

// Measures from the request to reschedule to the switch, on one CPU: a substitute for the time with
// preemption off, which only kernels with a special configuration report.
SEC("tp_btf/sched_set_need_resched_tp")
int need_resched(u64 *ctx)
{
	const struct config *conf = config();
	u32 zero = 0, cpu = ctx[1];
	u64 *since = bpf_map_lookup_elem(&RESCHED, &zero);

	// A request for another CPU is not timed.
	if (conf && since && cpu == bpf_get_smp_processor_id() && !*since)
		*since = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	const struct config *conf = config();
	u32 zero = 0;
	u64 *since = bpf_map_lookup_elem(&RESCHED, &zero), now;

	if (!conf || !since || !*since)
		return 0;
	now = bpf_ktime_get_ns();
	if (*since >= conf->from_ns && counts(conf, now))
		phase_done(PHASE_RESCHED, 0, now - *since);
	*since = 0;
	return 0;
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
