/*
 * A plugin of QEMU that counts the instructions of a kernel by function and by
 * hold of a lock, between two marks that the first CPU's program executes.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Arguments: symbols=PATH and out=PATH.
 *
 * Between BEGIN and END it counts what the CPU that armed it executes in the
 * kernel. At END it writes lines, and forgets them:
 *
 *   R instructions locked                       the round
 *   F symbol calls inclusive self locked        a function; see `frame`
 *   f symbol instructions count                 calls of one length
 *   D symbol count                              calls that were disturbed
 *   H outer caller acquire count instructions locked   holds of a lock
 *   h outer caller acquire instructions count   holds of one length
 *   A outer caller acquire address count        holds of the lock at an address
 *   L kind count                                what was lost: see `lost`
 *
 * Symbols are numbers of rows of the table, -1 for none. `caller` calls the
 * function that acquires, and `outer` calls `caller`.
 *
 * What is counted: instructions, a repeated string instruction once. What is
 * not: interrupts (from their entry to their return), user space. A call or a
 * hold in which the CPU went to another task is disturbed, and only counted.
 */
#include "kernel.h"

/* ---- sums of a round ---- */

struct function {
	uint64_t calls, inclusive, self, locked, disturbed;
};

static struct function *functions;

/* A key with a count: an open table that is emptied at the end of a round. */
enum count_kind { FREE, LENGTH, HOLD, HOLD_LENGTH, HOLD_ADDRESS };

struct count {
	enum count_kind kind;
	int outer, caller, acquire;
	uint64_t value;
	uint64_t count, sum, locked;
};

#define NR_COUNTS (1u << 18)
static struct count *counts;
static unsigned nr_used;

/* What did not fit: counts, frames of a stack, holds of a stack. */
enum { LOST_COUNTS, LOST_FRAMES, LOST_HOLDS, NR_LOST };
static uint64_t lost[NR_LOST];

static void count(struct count key, uint64_t sum, uint64_t locked)
{
	uint64_t hash = key.kind;

	hash = hash * 0x9e3779b97f4a7c15ULL + (uint32_t)key.outer;
	hash = hash * 0x9e3779b97f4a7c15ULL + (uint32_t)key.caller;
	hash = hash * 0x9e3779b97f4a7c15ULL + (uint32_t)key.acquire;
	hash = hash * 0x9e3779b97f4a7c15ULL + key.value;
	hash ^= hash >> 29;
	hash *= 0x9e3779b97f4a7c15ULL;
	for (unsigned at = hash >> 40;; at++) {
		struct count *c = &counts[at % NR_COUNTS];

		if (c->kind == FREE) {
			if (nr_used >= NR_COUNTS / 2) {
				lost[LOST_COUNTS]++;
				return;
			}
			nr_used++;
			*c = key;
		} else if (c->kind != key.kind || c->outer != key.outer ||
			   c->caller != key.caller ||
			   c->acquire != key.acquire || c->value != key.value) {
			continue;
		}
		c->count++;
		c->sum += sum;
		c->locked += locked;
		return;
	}
}

static void write_round(uint64_t instructions, uint64_t locked)
{
	fprintf(out, "R %lu %lu\n", instructions, locked);
	for (int i = 0; i < nr_symbols; i++) {
		struct function *f = &functions[i];

		if (f->calls)
			fprintf(out, "F %d %lu %lu %lu %lu\n", i, f->calls,
				f->inclusive, f->self, f->locked);
		if (f->disturbed)
			fprintf(out, "D %d %lu\n", i, f->disturbed);
	}
	for (unsigned i = 0; i < NR_COUNTS; i++) {
		struct count *c = &counts[i];

		switch (c->kind) {
		case FREE:
			break;
		case LENGTH:
			fprintf(out, "f %d %lu %lu\n", c->caller, c->value,
				c->count);
			break;
		case HOLD:
			fprintf(out, "H %d %d %d %lu %lu %lu\n", c->outer,
				c->caller, c->acquire, c->count, c->sum,
				c->locked);
			break;
		case HOLD_LENGTH:
			fprintf(out, "h %d %d %d %lu %lu\n", c->outer,
				c->caller, c->acquire, c->value, c->count);
			break;
		case HOLD_ADDRESS:
			fprintf(out, "A %d %d %d %lx %lu\n", c->outer,
				c->caller, c->acquire, c->value, c->count);
			break;
		}
	}
	for (int i = 0; i < NR_LOST; i++)
		if (lost[i])
			fprintf(out, "L %d %lu\n", i, lost[i]);
	fflush(out);
}

static void forget(void)
{
	memset(functions, 0, nr_symbols * sizeof(*functions));
	memset(counts, 0, NR_COUNTS * sizeof(*counts));
	memset(lost, 0, sizeof(lost));
	nr_used = 0;
}

/* ---- the state of the CPU that is counted ---- */

/*
 * A call whose return address is at `sp`. Its function is known when the first
 * block of it runs; a function that it jumps to at its end is part of it.
 */
struct frame {
	uint64_t sp, begun, locked_begun, switches, children;
	/* The function, and the one that calls it; -1: not known yet. */
	int function, caller;
	/* The lock that it has acquired, if it is a function that does. */
	uint64_t lock;
	int acquire;
};

struct hold {
	uint64_t lock, begun, locked_begun, switches;
	int outer, caller, acquire;
};

#define NR_FRAMES 256
#define NR_HOLDS 32

/* A kernel stack: frames from the outermost on, and the locks held. */
struct stack {
	uint64_t base;
	int nr_frames, nr_holds;
	struct frame frames[NR_FRAMES];
	struct hold holds[NR_HOLDS];
};

/* Linux on x86-64 has stacks of 16 KiB that begin at a multiple of it. */
#define STACK_SHIFT 14
#define NR_STACKS (1u << 14)
static struct stack *stacks[NR_STACKS];

static struct {
	int cpu;
	bool counts;
	/* Instructions and locked ones since the mark, without interrupts. */
	uint64_t n, locked;
	/* Entries of interrupts and, within them, of exceptions. */
	int interrupts;
	/* Times at which the CPU went to another task. */
	uint64_t switches;
	/* `n` and `locked` when the last function began that releases. */
	uint64_t release_n, release_locked;
	/* Where the last block ended, if by a repeated string instruction. */
	uint64_t repeated;
	struct stack *stack;
} now = { .cpu = -1 };

static struct stack *stack_of(uint64_t address)
{
	uint64_t base = address >> STACK_SHIFT;
	unsigned at = (base * 0x9e3779b97f4a7c15ULL) >> 50;

	for (unsigned tried = 0; tried < NR_STACKS; tried++, at++) {
		struct stack **s = &stacks[at % NR_STACKS];

		if (!*s) {
			*s = calloc(1, sizeof(**s));
			(*s)->base = base;
		}
		if ((*s)->base == base)
			return *s;
	}
	lost[LOST_FRAMES]++;
	return stacks[at % NR_STACKS];
}

static void forget_stacks(void)
{
	for (unsigned i = 0; i < NR_STACKS; i++)
		if (stacks[i])
			stacks[i]->nr_frames = stacks[i]->nr_holds = 0;
	now.stack = NULL;
}

static bool is_counted(unsigned cpu)
{
	return now.counts && (int)cpu == now.cpu && now.interrupts == 0;
}

static void hold_begins(struct stack *s, const struct frame *f)
{
	struct hold *h;

	/* An attempt that failed left one. */
	for (int i = 0; i < s->nr_holds; i++)
		if (s->holds[i].lock == f->lock)
			s->holds[i] = s->holds[--s->nr_holds];
	if (s->nr_holds == NR_HOLDS) {
		lost[LOST_HOLDS]++;
		return;
	}
	h = &s->holds[s->nr_holds++];
	*h = (struct hold){
		.lock = f->lock,
		.begun = now.n,
		.locked_begun = now.locked,
		.switches = now.switches,
		.outer = s->nr_frames > 0 ?
			s->frames[s->nr_frames - 1].caller : -1,
		.caller = f->caller,
		.acquire = f->acquire,
	};
}

static void hold_ends(struct stack *s, struct hold *h)
{
	uint64_t length = now.release_n - h->begun;
	struct count key = {
		.outer = h->outer, .caller = h->caller, .acquire = h->acquire,
	};

	if (h->switches == now.switches) {
		key.kind = HOLD;
		count(key, length, now.release_locked - h->locked_begun);
		key.kind = HOLD_LENGTH;
		key.value = length;
		count(key, 0, 0);
		key.kind = HOLD_ADDRESS;
		key.value = h->lock;
		count(key, 0, 0);
	}
	*h = s->holds[--s->nr_holds];
}

static void frame_ends(struct stack *s, const struct frame *f)
{
	uint64_t inclusive = now.n - f->begun;
	struct function *function;

	if (f->function < 0)
		return;
	function = &functions[f->function];
	if (f->switches != now.switches) {
		function->disturbed++;
		return;
	}
	function->calls++;
	function->inclusive += inclusive;
	function->self += inclusive - f->children;
	function->locked += now.locked - f->locked_begun;
	count((struct count){ .kind = LENGTH, .caller = f->function,
			      .value = inclusive }, 0, 0);
	if (s->nr_frames > 0)
		s->frames[s->nr_frames - 1].children += inclusive;
}

/* ---- callbacks while code runs ---- */

struct block {
	uint32_t n, locked;
	/* The function that begins with it, and its kind; -1 for none. */
	int function;
	enum kind kind;
	bool returns_from_interrupt;
	/* The address of the repeated string instruction at its end, or 0. */
	uint64_t repeated;
};

static void function_begins(const struct block *b)
{
	struct stack *s = now.stack;
	struct frame *f;

	if (b->kind == SWITCH)
		now.switches++;
	if (b->kind == RELEASE) {
		now.release_n = now.n;
		now.release_locked = now.locked;
	}
	if (!s || s->nr_frames == 0)
		return;
	f = &s->frames[s->nr_frames - 1];
	if (f->function < 0)
		f->function = b->function;
}

static void on_block(unsigned cpu, void *data)
{
	const struct block *b = data;

	if (!now.counts || (int)cpu != now.cpu)
		return;
	if (is_interrupt(b->kind) || (b->kind == EXCEPTION && now.interrupts))
		now.interrupts++;
	if (now.interrupts) {
		if (b->returns_from_interrupt)
			now.interrupts--;
		return;
	}
	if (b->function >= 0)
		function_begins(b);
	/* Each repetition is a block of its own. */
	if (b->repeated && b->repeated == now.repeated)
		now.n += b->n - 1;
	else
		now.n += b->n;
	now.repeated = b->repeated;
	now.locked += b->locked;
}

/* `data` is the function that calls, plus one. */
static void on_call(unsigned cpu, uint32_t info, uint64_t sp, void *data)
{
	struct stack *s;
	struct frame *f;

	(void)info;
	if (!is_counted(cpu))
		return;
	s = stack_of(sp);
	now.stack = s;
	while (s->nr_frames > 0 && s->frames[s->nr_frames - 1].sp <= sp)
		s->nr_frames--;
	if (s->nr_frames == NR_FRAMES) {
		lost[LOST_FRAMES]++;
		return;
	}
	f = &s->frames[s->nr_frames++];
	*f = (struct frame){
		.sp = sp,
		.begun = now.n,
		.locked_begun = now.locked,
		.switches = now.switches,
		.function = -1,
		.caller = (int)(intptr_t)data - 1,
	};
}

static void on_return(unsigned cpu, uint32_t info, uint64_t sp, void *data)
{
	struct stack *s;

	(void)info;
	(void)data;
	if (!is_counted(cpu))
		return;
	s = stack_of(sp);
	now.stack = s;
	while (s->nr_frames > 0 && s->frames[s->nr_frames - 1].sp <= sp) {
		const struct frame f = s->frames[--s->nr_frames];

		if (f.sp != sp)
			continue;
		frame_ends(s, &f);
		if (f.lock)
			hold_begins(s, &f);
	}
	if (s->nr_frames == 0)
		s->nr_holds = 0;
}

/* A locked instruction of a function that acquires; `data` as in `on_call`. */
static void on_acquire(unsigned cpu, uint32_t info, uint64_t lock, void *data)
{
	struct stack *s = now.stack;
	struct frame *f;

	(void)info;
	if (!is_counted(cpu) || !s || s->nr_frames == 0)
		return;
	f = &s->frames[s->nr_frames - 1];
	if (f->lock)
		return;
	f->lock = lock;
	f->acquire = (int)(intptr_t)data - 1;
}

/* An access to memory of a function that releases. */
static void on_release(unsigned cpu, uint32_t info, uint64_t lock, void *data)
{
	struct stack *s = now.stack;

	(void)info;
	(void)data;
	if (!is_counted(cpu) || !s)
		return;
	for (int i = s->nr_holds - 1; i >= 0; i--) {
		if (s->holds[i].lock == lock) {
			hold_ends(s, &s->holds[i]);
			return;
		}
	}
}

/* ---- translation ---- */

static void translate_kernel(struct tb *tb, uint64_t address)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	int within = symbol_at(address);
	enum kind kind = within < 0 ? PLAIN : symbols[within].kind;
	struct block *b = calloc(1, sizeof(*b));

	b->n = n;
	b->function = -1;
	if (within >= 0 && symbols[within].address == address) {
		b->function = within;
		b->kind = kind;
	}
	for (size_t i = 0; i < n; i++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
		void *here = (void *)(intptr_t)(within + 1);
		uint8_t bytes[16];
		struct code is;

		is = look(bytes, code_of(insn, bytes, sizeof(bytes)));
		b->locked += is.locked;
		if (kind == ACQUIRE && is.locked)
			qemu_plugin_register_vcpu_mem_cb(insn, on_acquire,
				NO_REGISTERS, READS_AND_WRITES, here);
		if (kind == RELEASE && !is.call && !is.returns)
			qemu_plugin_register_vcpu_mem_cb(insn, on_release,
				NO_REGISTERS, READS_AND_WRITES, b);
		/* These end a block. */
		if (is.call)
			qemu_plugin_register_vcpu_mem_cb(insn, on_call,
				NO_REGISTERS, READS_AND_WRITES, here);
		if (is.returns)
			qemu_plugin_register_vcpu_mem_cb(insn, on_return,
				NO_REGISTERS, READS_AND_WRITES, b);
		b->returns_from_interrupt |= is.interrupt_return;
		b->repeated = is.repeated ? qemu_plugin_insn_vaddr(insn) : 0;
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, b);
}

/* ---- marks ---- */

static void arm(unsigned cpu)
{
	functions = calloc(nr_symbols + 1, sizeof(*functions));
	counts = calloc(NR_COUNTS, sizeof(*counts));
	now.cpu = (int)cpu;
}

static void begin(unsigned cpu)
{
	if ((int)cpu != now.cpu)
		return;
	forget();
	forget_stacks();
	now.n = now.locked = now.switches = now.repeated = 0;
	now.interrupts = 0;
	now.counts = true;
}

static void end(unsigned cpu)
{
	if (!now.counts || (int)cpu != now.cpu)
		return;
	now.counts = false;
	write_round(now.n, now.locked);
}
