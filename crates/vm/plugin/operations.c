/*
 * A plugin of QEMU that records what a CPU does in the kernel in operations:
 * accesses to memory, locks taken and released, and the instructions between
 * them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * Arguments: symbols=PATH and out=PATH.
 *
 * An operation is between BEGIN and END on one CPU. Programs take turns: at any
 * time one CPU at most is in an operation. From ARM on the plugin knows which
 * CPUs use each line of memory. At END it writes the records of the operation;
 * `struct record` has their form.
 *
 * An access is recorded
 *   - once in an operation, and again at its first write, while no other CPU has
 *     used the line, or none has written to it;
 *   - each time, if CPUs share the line and one has written to it. Accesses of one
 *     instruction to one line are one.
 * Not recorded: the stack that the CPU runs on, memory of user space, interrupts
 * (from their entry to their return; their instructions are summed), and what
 * functions that take or release a lock do with memory. What a repeated string
 * instruction writes is one record with the number of bytes.
 *
 * Interrupts of the timer that begin while an operation lasts, on any CPU, are recorded
 * as the answers to calls are, with the RCU callbacks in them. What functions that
 * take a lock do with its word is an access there.
 *
 * Calls to other CPUs: SENT is where their interrupts are sent. What the receivers
 * execute in them while the operation lasts is recorded too, without locks: accesses
 * to lines that CPUs share and one has written to. Those records are behind those of
 * the operation, each with the CPU that it is of. Full buffers are written in
 * between, so records of both kinds may follow one another.
 *
 * A CPU that waits for others in a loop with PAUSE executes it as often as the
 * emulator likes: all rounds but the first are taken back, and WAITED is noted.
 */
#include "kernel.h"

extern bool qemu_plugin_mem_is_store(uint32_t info);
extern unsigned qemu_plugin_mem_size_shift(uint32_t info);

/* ---- records ---- */

enum type { BEGUN = 1, ACCESS, TAKEN, RELEASED, DOWNGRADED, SWITCHED, WAITED,
	    CLEARED, COPIED, STACK, ENDED, SENT, ANSWERING, ANSWERED,
	    CALLBACKS, CALLBACKS_DONE };

enum { WRITES = 1, LOCKED = 2 };
enum { TICKS = 0x8000 };

/*
 * What happens, after so many instructions since the record before.
 *
 * ACCESS             address, flags; function and caller: the code
 * TAKEN              the lock's address; function and caller: those that call
 *                    `acquire`, which takes it
 * RELEASED, DOWNGRADED   the lock's address
 * CLEARED, COPIED    address: bytes
 * STACK              address: the stack that the CPU is on from here on, which is
 *                    another one than before, in units of its size
 * ENDED              address: instructions; value: locked instructions;
 *                    acquire: what the tables had no room for
 * ANSWERING          on another CPU: value: how many SENT were before; or on any
 *                    CPU, in an interrupt of the timer
 * ANSWERED           on that CPU: address: instructions; acquire: 1 if it was cut off
 * CALLBACKS, CALLBACKS_DONE   in an interrupt of the timer: RCU callbacks begin, end
 *
 * `cpu` has the bit TICKS in interrupts of the timer.
 * `value` of BEGUN: instructions of interrupts on this CPU since the last one.
 * Functions are numbers of rows of the table of symbols, -1 for none.
 */
struct record {
	uint64_t address;
	uint32_t after;
	int32_t function, caller, acquire;
	uint32_t value;
	uint16_t cpu;
	uint8_t type, flags;
};

/* Records between two writes. */
#define NR_RECORDS (1u << 16)
static struct record *records;
static uint32_t nr_records;
static uint32_t nr_lost;

/* ---- which CPUs use a line ---- */

enum { SHARED = 1, WRITTEN = 2 };

struct line {
	/* The address without its 6 lowest bits, plus 1; 0: none. */
	uint64_t number;
	/* The last operation that recorded it, times two, plus one if a write. */
	uint32_t seen;
	uint16_t first_cpu;
	uint16_t flags;
};

#define LINE_SHIFT 6
#define NR_LINES (1u << 22)
static struct line *lines;
static uint32_t nr_known;
static struct line no_line;

static struct line *line_of(uint64_t address, unsigned cpu)
{
	uint64_t number = (address >> LINE_SHIFT) + 1;
	uint64_t hash = number * 0x9e3779b97f4a7c15ULL;

	for (uint32_t at = hash >> 42;; at++) {
		struct line *l = &lines[at % NR_LINES];

		if (l->number == number)
			return l;
		if (l->number)
			continue;
		if (nr_known >= NR_LINES / 4 * 3) {
			nr_lost++;
			no_line = (struct line){ .first_cpu = cpu };
			return &no_line;
		}
		nr_known++;
		l->number = number;
		l->first_cpu = cpu;
		return l;
	}
}

/* ---- the operation ---- */

/* A call whose return address is at `sp`. */
struct frame {
	uint64_t sp, lock;
	int caller, acquire;
};

#define NR_FRAMES 256

struct stack {
	uint64_t base;
	int nr_frames;
	struct frame frames[NR_FRAMES];
};

/* Linux on x86-64 has stacks of 16 KiB that begin at a multiple of it. */
#define STACK_SHIFT 14
#define NR_STACKS 64
static struct stack stacks[NR_STACKS];
static int nr_stacks;

#define MAX_CPUS 256
static uint64_t interrupt_instructions[MAX_CPUS];

static struct {
	int cpu;
	bool runs;
	uint32_t number;
	/* Instructions without interrupts: all, those before the last block. */
	uint64_t n, base, locked;
	/* `n` at the last record. */
	uint64_t recorded;
	/* The instruction and the line of the last access. */
	uint64_t last_instruction, last_line;
	int interrupts;
	uint64_t repeated;
	/* The string instruction at work, and its record. */
	const void *string;
	struct stack *stack;
	/* SENT so far. */
	uint32_t sent;
	/* The last PAUSE, and the state before it. */
	const void *paused;
	uint64_t paused_sp, paused_n, paused_locked, paused_recorded;
	uint32_t paused_records;
} now = { .cpu = -1 };

static void write_all(void);

static struct stack *stack_of(uint64_t address)
{
	uint64_t base = address >> STACK_SHIFT;
	struct stack *s;

	for (int i = 0; i < nr_stacks; i++)
		if (stacks[i].base == base)
			return &stacks[i];
	if (nr_stacks == NR_STACKS) {
		nr_lost++;
		nr_stacks--;
	}
	s = &stacks[nr_stacks++];
	s->base = base;
	s->nr_frames = 0;
	return s;
}

static struct record *add(enum type type, uint64_t at);

/* Notes the stack that the CPU is on. */
static struct stack *on_stack(uint64_t address)
{
	struct stack *s = stack_of(address);

	if (s != now.stack) {
		now.stack = s;
		add(STACK, now.base)->address = s->base;
	}
	return s;
}

static bool is_recorded(unsigned cpu)
{
	return now.runs && (int)cpu == now.cpu && now.interrupts == 0;
}

static struct record *add(enum type type, uint64_t at)
{
	struct record *r;

	if (nr_records == NR_RECORDS)
		write_all();
	r = &records[nr_records++];
	/* A repeated instruction is known by the block that it is in. */
	if (at < now.recorded)
		at = now.recorded;
	*r = (struct record){
		.after = at - now.recorded,
		.function = -1,
		.caller = -1,
		.acquire = -1,
		.cpu = now.cpu,
		.type = type,
	};
	now.recorded = at;
	now.last_instruction = 0;
	now.string = NULL;
	return r;
}

static int caller_now(void)
{
	struct stack *s = now.stack;

	return s && s->nr_frames ? s->frames[s->nr_frames - 1].caller : -1;
}

/* ---- interrupts of calls on other CPUs, and of timers ---- */

/* Records of answers between two writes. */
#define NR_ANSWERS (1u << 16)
static struct record *answers;
static uint32_t nr_answers;

static struct {
	/* The operation that it belongs to, and nested interrupts, this one included. */
	uint32_t number;
	int interrupts;
	/* Whether it is one of the timer. */
	bool ticks;
	/* Where the last call put its return address, and that of callbacks; 0: none run. */
	uint64_t called_sp, callbacks_sp;
	/* Instructions: all, those before the last block, those at the last record. */
	uint64_t n, base, recorded;
	uint64_t last_instruction, last_line;
} answering[MAX_CPUS];

static bool is_answering(unsigned cpu)
{
	return now.runs && cpu < MAX_CPUS && answering[cpu].interrupts > 0 &&
	       answering[cpu].number == now.number;
}

/*
 * Writes all records, and begins anew: what follows changes none of them. The begin of
 * the operation is the first record of all.
 */
static void write_all(void)
{
	fwrite(records, sizeof(*records), nr_records, out);
	fwrite(answers, sizeof(*answers), nr_answers, out);
	nr_records = nr_answers = 0;
	now.last_instruction = 0;
	now.string = now.paused = NULL;
	for (unsigned cpu = 0; cpu < MAX_CPUS; cpu++)
		answering[cpu].last_instruction = 0;
}

/* The CPU as its records of interrupts have it. */
static uint16_t marked(unsigned cpu)
{
	return cpu | (answering[cpu].ticks ? TICKS : 0);
}

static struct record *add_answer(unsigned cpu, enum type type, uint64_t at)
{
	struct record *r;

	if (nr_answers == NR_ANSWERS)
		write_all();
	r = &answers[nr_answers++];
	*r = (struct record){
		.after = at - answering[cpu].recorded,
		.function = -1,
		.caller = -1,
		.acquire = -1,
		.cpu = marked(cpu),
		.type = type,
	};
	answering[cpu].recorded = at;
	answering[cpu].last_instruction = 0;
	return r;
}

static void end_answer(unsigned cpu, bool cut)
{
	struct record *r;

	if (answering[cpu].callbacks_sp)
		add_answer(cpu, CALLBACKS_DONE, answering[cpu].n);
	r = add_answer(cpu, ANSWERED, answering[cpu].n);
	r->address = answering[cpu].n;
	r->acquire = cut;
	answering[cpu].interrupts = 0;
}

static void begin_answer(unsigned cpu, bool ticks)
{
	memset(&answering[cpu], 0, sizeof(answering[cpu]));
	answering[cpu].number = now.number;
	answering[cpu].interrupts = 1;
	answering[cpu].ticks = ticks;
	add_answer(cpu, ANSWERING, 0)->value = now.sent;
}

/* ---- callbacks while code runs ---- */

struct block {
	uint32_t n, locked;
	enum kind kind;
	/* Whether a function begins with it. */
	bool begins;
	bool returns_from_interrupt, pauses;
	/* The address of the repeated string instruction at its end, or 0. */
	uint64_t repeated;
};

/* Takes back what happened since the last time at this PAUSE. */
static void paused(const struct block *b)
{
	struct stack *s = now.stack;
	uint64_t sp = s && s->nr_frames ? s->frames[s->nr_frames - 1].sp : 0;

	if (now.paused == b && now.paused_sp == sp) {
		now.n = now.paused_n;
		now.locked = now.paused_locked;
		now.recorded = now.paused_recorded;
		nr_records = now.paused_records;
		return;
	}
	add(WAITED, now.n);
	now.paused = b;
	now.paused_sp = sp;
	now.paused_n = now.n;
	now.paused_locked = now.locked;
	now.paused_recorded = now.recorded;
	now.paused_records = nr_records;
}

/* A block of a CPU that is not in the operation, or in an interrupt. */
static void on_other(unsigned cpu, const struct block *b)
{
	bool called = b->begins && b->kind == CALLED && (int)cpu != now.cpu;

	if (cpu >= MAX_CPUS)
		return;
	/* Softirqs of a tick run with interrupts on. The call has its own records. */
	if (called && is_answering(cpu) && answering[cpu].ticks)
		end_answer(cpu, true);
	if (!is_answering(cpu)) {
		if (!called && !(b->begins && b->kind == TIMER))
			return;
		begin_answer(cpu, b->kind == TIMER);
	} else if (b->begins && b->kind == SWITCH) {
		/* The task does not go on, which is not part of the answer. */
		end_answer(cpu, false);
		return;
	} else if (b->begins && (is_interrupt(b->kind) || b->kind == EXCEPTION)) {
		answering[cpu].interrupts++;
	}
	if (answering[cpu].interrupts == 1) {
		if (b->begins && b->kind == BATCH && answering[cpu].ticks &&
		    !answering[cpu].callbacks_sp) {
			add_answer(cpu, CALLBACKS, answering[cpu].n);
			answering[cpu].callbacks_sp = answering[cpu].called_sp;
		}
		answering[cpu].base = answering[cpu].n;
		answering[cpu].n += b->n;
	}
	if (b->returns_from_interrupt && answering[cpu].interrupts-- == 1)
		end_answer(cpu, false);
}

static void on_block(unsigned cpu, void *data)
{
	const struct block *b = data;

	if (!now.runs)
		return;
	if ((int)cpu != now.cpu) {
		on_other(cpu, b);
		return;
	}
	if (is_interrupt(b->kind) && b->begins)
		now.interrupts++;
	else if (b->kind == EXCEPTION && b->begins && now.interrupts)
		now.interrupts++;
	if (now.interrupts) {
		on_other(cpu, b);
		interrupt_instructions[cpu % MAX_CPUS] += b->n;
		if (b->returns_from_interrupt)
			now.interrupts--;
		return;
	}
	if (b->pauses)
		paused(b);
	if (b->kind == SWITCH && b->begins)
		add(SWITCHED, now.n);
	if (b->kind == SEND && b->begins) {
		add(SENT, now.n);
		now.sent++;
	}
	now.base = now.n;
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

	/* It may read where it goes to, too. */
	if (sp < KERNEL_BASE || !qemu_plugin_mem_is_store(info))
		return;
	if (is_answering(cpu) && answering[cpu].interrupts == 1)
		answering[cpu].called_sp = sp;
	if (!is_recorded(cpu))
		return;
	s = on_stack(sp);
	now.paused = NULL;
	while (s->nr_frames > 0 && s->frames[s->nr_frames - 1].sp <= sp)
		s->nr_frames--;
	if (s->nr_frames == NR_FRAMES) {
		nr_lost++;
		return;
	}
	s->frames[s->nr_frames++] = (struct frame){
		.sp = sp,
		.caller = (int)(intptr_t)data - 1,
		.acquire = -1,
	};
}

static void on_return(unsigned cpu, uint32_t info, uint64_t sp, void *data)
{
	struct stack *s;

	(void)info;
	(void)data;
	if (is_answering(cpu) && answering[cpu].interrupts == 1 &&
	    answering[cpu].callbacks_sp == sp) {
		add_answer(cpu, CALLBACKS_DONE, answering[cpu].n);
		answering[cpu].callbacks_sp = 0;
	}
	if (!is_recorded(cpu) || sp < KERNEL_BASE)
		return;
	s = on_stack(sp);
	now.paused = NULL;
	while (s->nr_frames > 0 && s->frames[s->nr_frames - 1].sp <= sp) {
		const struct frame f = s->frames[--s->nr_frames];

		if (f.sp == sp && f.lock) {
			struct record *r = add(TAKEN, now.n);

			r->address = f.lock;
			r->function = f.caller;
			r->caller = caller_now();
			r->acquire = f.acquire;
		}
	}
}

/* An instruction that accesses memory. */
struct instruction {
	/* Its place in the block, and the function that it is in. */
	uint32_t index;
	int function;
	enum kind kind;
	bool locked;
	/* Whether it is repeated, and copies. */
	bool repeated, copies;
};

/* A function that takes or releases a lock, at work on memory. */
static void on_lock(const struct instruction *i, uint32_t info,
		    uint64_t address)
{
	struct stack *s = now.stack;

	switch (i->kind) {
	case ACQUIRE:
		if (i->locked && s && s->nr_frames > 0) {
			struct frame *f = &s->frames[s->nr_frames - 1];

			if (!f->lock) {
				f->lock = address;
				f->acquire = i->function;
			}
		}
		break;
	case DOWNGRADE:
		if (i->locked && qemu_plugin_mem_is_store(info))
			add(DOWNGRADED, now.base + i->index)->address = address;
		break;
	case RELEASE:
		/* The host takes the one that is of a lock that is held. */
		add(RELEASED, now.base + i->index)->address = address;
		break;
	default:
		break;
	}
}

static void on_string(const struct instruction *i, uint32_t info)
{
	if (!qemu_plugin_mem_is_store(info))
		return;
	if (now.string != i) {
		struct record *r = add(i->copies ? COPIED : CLEARED, now.base);

		r->function = i->function;
		r->caller = caller_now();
		now.string = i;
	}
	if (nr_records)
		records[nr_records - 1].address +=
			1ull << qemu_plugin_mem_size_shift(info);
}

/* An access of a CPU that answers a call, to a line that CPUs share and write. */
static void on_answer(unsigned cpu, const struct instruction *i, bool writes,
		      uint64_t address)
{
	uint8_t flags = (writes ? WRITES : 0) | (i->locked ? LOCKED : 0);
	struct record *r;

	if (answering[cpu].interrupts != 1 || i->kind == RELEASE ||
	    i->kind == DOWNGRADE ||
	    (i->kind == ACQUIRE && !(answering[cpu].ticks && i->locked)))
		return;
	if (answering[cpu].last_instruction == (uint64_t)(uintptr_t)i &&
	    answering[cpu].last_line == address >> LINE_SHIFT && nr_answers &&
	    answers[nr_answers - 1].cpu == marked(cpu)) {
		answers[nr_answers - 1].flags |= flags;
		return;
	}
	r = add_answer(cpu, ACCESS, answering[cpu].base + i->index);
	r->address = address;
	r->function = i->function;
	r->flags = flags;
	answering[cpu].last_instruction = (uint64_t)(uintptr_t)i;
	answering[cpu].last_line = address >> LINE_SHIFT;
}

static void on_access(unsigned cpu, uint32_t info, uint64_t address, void *data)
{
	const struct instruction *i = data;
	bool writes = i->locked || qemu_plugin_mem_is_store(info);
	struct line *l;
	struct record *r;

	if (i->repeated) {
		if (is_recorded(cpu))
			on_string(i, info);
		return;
	}
	if (address < KERNEL_BASE)
		return;
	l = line_of(address, cpu);
	if (l->first_cpu != cpu)
		l->flags |= SHARED;
	if (writes)
		l->flags |= WRITTEN;
	if (is_answering(cpu) && l->flags == (SHARED | WRITTEN)) {
		on_answer(cpu, i, writes, address);
		return;
	}
	if (!is_recorded(cpu))
		return;
	if (now.stack && address >> STACK_SHIFT == now.stack->base)
		return;
	if (i->kind == ACQUIRE || i->kind == RELEASE || i->kind == DOWNGRADE) {
		on_lock(i, info, address);
		return;
	}
	if (l->flags != (SHARED | WRITTEN)) {
		uint32_t seen = now.number * 2 + writes;

		if (l->seen >= seen && l->seen <= now.number * 2 + 1)
			return;
		l->seen = seen;
	} else if (now.last_instruction == (uint64_t)(uintptr_t)i &&
		   now.last_line == address >> LINE_SHIFT && nr_records) {
		records[nr_records - 1].flags |=
			(writes ? WRITES : 0) | (i->locked ? LOCKED : 0);
		return;
	}
	r = add(ACCESS, now.base + i->index);
	r->address = address;
	r->function = i->function;
	r->caller = caller_now();
	r->flags = (writes ? WRITES : 0) | (i->locked ? LOCKED : 0);
	now.last_instruction = (uint64_t)(uintptr_t)i;
	now.last_line = address >> LINE_SHIFT;
}

/* ---- translation ---- */

static void translate_kernel(struct tb *tb, uint64_t address)
{
	size_t n = qemu_plugin_tb_n_insns(tb);
	int within = symbol_at(address);
	enum kind kind = within < 0 ? PLAIN : symbols[within].kind;
	struct block *b = calloc(1, sizeof(*b));

	b->n = n;
	b->kind = kind;
	b->begins = within >= 0 && symbols[within].address == address;
	for (size_t at = 0; at < n; at++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, at);
		struct instruction *i = calloc(1, sizeof(*i));
		uint8_t bytes[16];
		struct code is;

		is = look(bytes, code_of(insn, bytes, sizeof(bytes)));
		*i = (struct instruction){
			.index = at,
			.function = within,
			.kind = kind,
			.locked = is.locked,
			.repeated = is.repeated,
			.copies = is.copies,
		};
		b->locked += is.locked;
		b->pauses |= is.pauses;
		b->returns_from_interrupt |= is.interrupt_return;
		b->repeated = is.repeated ? qemu_plugin_insn_vaddr(insn) : 0;
		/* A block ends with these; what they access is the stack. */
		if (is.call)
			qemu_plugin_register_vcpu_mem_cb(insn, on_call,
				NO_REGISTERS, READS_AND_WRITES,
				(void *)(intptr_t)(within + 1));
		else if (is.returns)
			qemu_plugin_register_vcpu_mem_cb(insn, on_return,
				NO_REGISTERS, READS_AND_WRITES, b);
		else if (!is.interrupt_return)
			qemu_plugin_register_vcpu_mem_cb(insn, on_access,
				NO_REGISTERS, READS_AND_WRITES, i);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, NO_REGISTERS, b);
}

/* ---- marks ---- */

static void arm(unsigned cpu)
{
	(void)cpu;
	records = calloc(NR_RECORDS, sizeof(*records));
	answers = calloc(NR_ANSWERS, sizeof(*answers));
	lines = calloc(NR_LINES, sizeof(*lines));
}

static void begin(unsigned cpu)
{
	struct record *r;
	uint32_t number = now.number + 1;

	memset(&now, 0, sizeof(now));
	now.cpu = (int)cpu;
	now.number = number;
	now.runs = true;
	nr_records = nr_lost = nr_answers = 0;
	nr_stacks = 0;
	r = add(BEGUN, 0);
	r->value = interrupt_instructions[cpu % MAX_CPUS];
	interrupt_instructions[cpu % MAX_CPUS] = 0;
}

static void end(unsigned cpu)
{
	struct record *r;

	if (!now.runs || (int)cpu != now.cpu)
		return;
	for (unsigned other = 0; other < MAX_CPUS; other++)
		if (is_answering(other))
			end_answer(other, answering[other].ticks);
	now.runs = false;
	r = add(ENDED, now.n);
	r->address = now.n;
	r->value = now.locked;
	r->acquire = nr_lost;
	fwrite(records, sizeof(*records), nr_records - 1, out);
	fwrite(answers, sizeof(*answers), nr_answers, out);
	fwrite(r, sizeof(*r), 1, out);
	fflush(out);
}
