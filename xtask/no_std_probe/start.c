/* Starts `crates/frames-c/examples/kernel.c` without a C library, as a program of Linux for x86-64,
 * on a stack of the size that the allocator is promised to need. With an argument it makes a wrong
 * call afterwards, which must end in `mms_panic`. */

#include "mmscale_frames.h"

#define STACK_BYTES (16 << 10)
/* Below the stack: bytes that must not change. */
#define SPARE_BYTES (64 << 10)
#define SPARE 0x5a
/* Exit codes above the lines of the example. */
#define STACK_TOO_SMALL 253
#define NO_PANIC 254

int main(void);
extern mms_frames *frames;
static unsigned char stack[SPARE_BYTES + STACK_BYTES] __attribute__((aligned(16)));

static long call(long number, long first, const void *second, long third) {
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

void say(const char *text) {
    long length = 0;
    while (text[length] != 0) {
        length++;
    }
    call(1, 1, text, length);
    call(1, 1, "\n", 1);
}

/* Runs on the stack above, until the end of the program. */
__attribute__((used)) static void run(long arguments) {
    int code = main();
    if (code == 0 && arguments > 1) {
        mms_split(frames, 0x2000, 9, 8);
        code = NO_PANIC;
    }
    for (long at = 0; at < SPARE_BYTES; at++) {
        if (stack[at] != SPARE) {
            code = STACK_TOO_SMALL;
        }
    }
    call(60, code, 0, 0);
    __builtin_trap();
}

/* Gets the number of arguments. */
__attribute__((used, noreturn)) static void start(long arguments) {
    for (long at = 0; at < SPARE_BYTES; at++) {
        stack[at] = SPARE;
    }
    __asm__ volatile("mov %0, %%rsp\n\tcall run"
                     :
                     : "r"(stack + sizeof stack), "D"(arguments)
                     : "memory");
    __builtin_unreachable();
}

__asm__(".globl _start\n_start:\n\tmov (%rsp), %rdi\n\tand $-16, %rsp\n\tcall start\n");
