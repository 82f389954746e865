/*
 * What the plugins of QEMU share: QEMU's functions, marks, the table of symbols,
 * instructions of x86-64, and the begin of translation.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 * The declarations follow QEMU's documentation of plugins; its header is not
 * used. From version 3 of the interface on, qemu_plugin_insn_data copies.
 *
 * Marks are instructions without an effect: a NOP whose displacement is MARK
 * plus one of ARM, BEGIN and END. At ARM a plugin reads the table of symbols,
 * which the host has by then, and translates all code anew; until then the
 * machine runs at its full speed.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef uint64_t plugin_id;
struct tb;
struct insn;

extern void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id,
		void (*)(plugin_id, struct tb *));
extern void qemu_plugin_register_vcpu_tb_exec_cb(struct tb *,
		void (*)(unsigned, void *), int flags, void *);
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct insn *,
		void (*)(unsigned, void *), int flags, void *);
extern void qemu_plugin_register_vcpu_mem_cb(struct insn *,
		void (*)(unsigned, uint32_t, uint64_t, void *), int flags,
		int rw, void *);
extern size_t qemu_plugin_tb_n_insns(const struct tb *);
extern uint64_t qemu_plugin_tb_vaddr(const struct tb *);
extern struct insn *qemu_plugin_tb_get_insn(const struct tb *, size_t);
extern size_t qemu_plugin_insn_size(const struct insn *);
extern uint64_t qemu_plugin_insn_vaddr(const struct insn *);
/* One name, two types: the version of the interface decides. */
extern const void *insn_data(const struct insn *)
		__asm__("qemu_plugin_insn_data");
extern size_t insn_data_to(const struct insn *, void *, size_t)
		__asm__("qemu_plugin_insn_data");
extern void qemu_plugin_reset(plugin_id, void (*)(plugin_id));

#define EXPORT __attribute__((visibility("default")))

/*
 * The host writes the version that its QEMU asks for behind the words. QEMU's
 * name for it is that of the number alone.
 */
struct versioned {
	char words[24];
	int version;
};
struct versioned versioned = { "mmscale plugin version ", 1 };
EXPORT extern int qemu_plugin_version;
__asm__(".globl qemu_plugin_version\n"
	".set qemu_plugin_version, versioned + 24\n"
	".type qemu_plugin_version, @object\n"
	".size qemu_plugin_version, 4\n");

/* Flags and directions of callbacks, as QEMU numbers them. */
enum { NO_REGISTERS = 0, READS_AND_WRITES = 3 };

#define KERNEL_BASE 0xffff800000000000ULL
#define MARK 0x4d4d5300u
enum { ARM = 1, BEGIN = 2, END = 3 };

/* Kinds of functions, as the host numbers them. */
enum kind {
	PLAIN, ACQUIRE, RELEASE, INTERRUPT, EXCEPTION, SWITCH, DOWNGRADE,
	/* The entry of the interrupt of a call, and what sends it. */
	CALLED, SEND,
	/* The entry of the interrupt of a timer, and what runs RCU callbacks. */
	TIMER, BATCH
};

static inline bool is_interrupt(enum kind kind)
{
	return kind == INTERRUPT || kind == CALLED || kind == TIMER;
}

struct symbol {
	uint64_t address;
	uint64_t kind;
};

static struct symbol *symbols;
static int nr_symbols;
static const char *symbols_path;
static FILE *out;

static int symbol_at(uint64_t address)
{
	int low = 0, high = nr_symbols - 1, found = -1;

	while (low <= high) {
		int middle = low + (high - low) / 2;

		if (symbols[middle].address <= address) {
			found = middle;
			low = middle + 1;
		} else {
			high = middle - 1;
		}
	}
	return found;
}

/* ---- instructions ---- */

/* Returns whether the instruction is a mark, and which. */
static int mark_of(const uint8_t *code, size_t size)
{
	uint32_t displacement;

	if (size != 7 || code[0] != 0x0f || code[1] != 0x1f || code[2] != 0x80)
		return 0;
	memcpy(&displacement, code + 3, sizeof(displacement));
	return (displacement & ~0xffu) == MARK ? (int)(displacement & 0xff) : 0;
}

struct code {
	bool locked, call, returns, interrupt_return, repeated, copies, pauses;
};

/* Looks at the prefixes, the operation and the byte after it. */
static struct code look(const uint8_t *code, size_t size)
{
	struct code is = { 0 };
	bool repeat = false;
	size_t at = 0;
	uint8_t op, after;

	for (; at < size; at++) {
		switch (code[at]) {
		case 0xf0:
			is.locked = true;
			continue;
		case 0xf2: case 0xf3:
			repeat = true;
			continue;
		case 0x26: case 0x2e: case 0x36: case 0x3e:
		case 0x64: case 0x65: case 0x66: case 0x67:
			continue;
		}
		break;
	}
	if (at < size && (code[at] & 0xf0) == 0x40)
		at++;
	if (at >= size)
		return is;
	op = code[at];
	after = at + 1 < size ? code[at + 1] : 0;
	/* An exchange with memory is locked without a prefix. */
	if ((op == 0x86 || op == 0x87) && (after >> 6) != 3)
		is.locked = true;
	is.call = op == 0xe8 || (op == 0xff && ((after >> 3) & 7) == 2);
	is.returns = op == 0xc3 || op == 0xc2;
	is.interrupt_return = op == 0xcf;
	is.pauses = repeat && op == 0x90;
	is.repeated = repeat && ((op >= 0xa4 && op <= 0xa7) ||
				 (op >= 0xaa && op <= 0xaf));
	is.copies = is.repeated && (op == 0xa4 || op == 0xa5);
	return is;
}

static size_t code_of(const struct insn *insn, uint8_t *to, size_t room)
{
	size_t size = qemu_plugin_insn_size(insn);

	if (size > room)
		size = room;
	if (qemu_plugin_version >= 3)
		return insn_data_to(insn, to, size);
	memcpy(to, insn_data(insn), size);
	return size;
}

/* ---- the table of symbols, and the begin ---- */

static void read_all(int fd, void *to, size_t size)
{
	char *at = to;

	while (size > 0) {
		ssize_t got = read(fd, at, size);

		if (got <= 0) {
			fprintf(stderr, "plugin: no symbols\n");
			exit(1);
		}
		at += got;
		size -= got;
	}
}

/* Waits until the host has written the table. */
static void read_symbols(void)
{
	int fd = open(symbols_path, O_RDONLY);
	uint64_t n = 0;

	if (fd < 0) {
		perror(symbols_path);
		exit(1);
	}
	read_all(fd, &n, sizeof(n));
	symbols = calloc(n + 1, sizeof(*symbols));
	read_all(fd, symbols, n * sizeof(*symbols));
	nr_symbols = (int)n;
	close(fd);
}

/* Reads the arguments: symbols=PATH and out=PATH. Returns whether both are there. */
static bool read_arguments(int argc, char **argv)
{
	for (int i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "symbols=", 8))
			symbols_path = strdup(argv[i] + 8);
		if (!strncmp(argv[i], "out=", 4))
			out = fopen(argv[i] + 4, "w");
	}
	if (!symbols_path || !out)
		fprintf(stderr, "plugin: needs symbols=PATH and out=PATH\n");
	return symbols_path && out;
}

/* ---- translation, and marks ---- */

/* What a plugin has of its own. */
static void translate_kernel(struct tb *tb, uint64_t address);
static void arm(unsigned cpu);
static void begin(unsigned cpu);
static void end(unsigned cpu);

static plugin_id own_id;

static void again(plugin_id id);

/* From ARM on, all code is translated anew. */
static void on_mark(unsigned cpu, void *data)
{
	switch ((intptr_t)data) {
	case ARM:
		if (symbols)
			return;
		read_symbols();
		arm(cpu);
		qemu_plugin_reset(own_id, again);
		break;
	case BEGIN:
		if (symbols)
			begin(cpu);
		break;
	case END:
		if (symbols)
			end(cpu);
		break;
	}
}

static void translate_user(struct tb *tb)
{
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint8_t code[16];
		int mark;

		if (qemu_plugin_insn_size(insn) != 7)
			continue;
		mark = mark_of(code, code_of(insn, code, sizeof(code)));
		if (mark)
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark,
				NO_REGISTERS, (void *)(intptr_t)mark);
	}
}

static void on_translation(plugin_id id, struct tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);

	(void)id;
	if (address < KERNEL_BASE)
		translate_user(tb);
	else if (symbols)
		translate_kernel(tb, address);
}

static void again(plugin_id id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc,
			       char **argv)
{
	(void)info;
	if (!read_arguments(argc, argv))
		return 1;
	own_id = id;
	again(id);
	return 0;
}
